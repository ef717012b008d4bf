"""A processor to be fed with lines: a clock to turn, and a spool that remembers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeVar

from lens_core import Event, LogLine, Origin, Record, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.detection.log_lines import Reading
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.model.processing import Processed
from lens_core.plugin_api.components import Detector

POD = Origin(workload_uid="w", pod_name="trainer-0", namespace="ns", container="main")
RecordT = TypeVar("RecordT", bound=Record)


@functools.cache
def compiled_once(detectors: tuple[Detector, ...]) -> DetectorProcessor:
    """A processor whose compiled patterns others share: to compile those of everything takes 30 ms."""
    return DetectorProcessor(detectors, SelfMetrics())


class Stand:
    """A processor with a clock to turn, and a spool that remembers."""

    def __init__(self, detectors: Sequence[Detector]) -> None:
        self.now = 1_000_000.0
        self.stored: dict[str, bytes] = {}
        self._detectors = list(detectors)
        self.processor = self._new()

    def _new(self) -> DetectorProcessor:
        compiled = compiled_once(tuple(self._detectors))
        return DetectorProcessor((), SelfMetrics(), clock=lambda: self.now, sibling=compiled)

    def feed(self, *lines: str, at: float | None = None, origin: Origin = POD, commit: bool = True) -> Processed:
        records = []
        for line in lines:
            self.now += 1.0
            records.append(LogLine(origin=origin, text=line, event_time=self.now if at is None else at))
        return self.give(records, commit=commit)

    def give(self, records: Sequence[Record], *, commit: bool = True) -> Processed:
        done = self.processor.process(records)
        if commit:
            for key, value in done.state_changes.items():
                if value is None:
                    del self.stored[key]
                else:
                    self.stored[key] = value
        else:
            self.processor.rollback()
        return done

    def restart(self) -> None:
        self.processor = self._new()
        self.processor.load(dict(self.stored))


def of(kind: type[RecordT], done: Processed) -> list[RecordT]:
    return [record for record in done.records if isinstance(record, kind)]


def megatron(step: int, rest: str = "lm loss: 2.5E+00 |", total: int = 1000) -> str:
    return f" iteration {step:8d}/{total:8d} | elapsed time per iteration (ms): 1000.0 | {rest}"


def attempts(done: Processed) -> list[tuple[int | None, int]]:
    return [(row.attempt, row.row_step) for row in of(StepMetrics, done)]


def events(done: Processed) -> list[str]:
    return [event.type for event in of(Event, done)]


def says_something(reading: Reading) -> bool:
    """Whether a reading is a step or an event; that an evaluation runs or has run is neither, for these tests."""
    if reading.log_event is not None and reading.log_event.type == "evaluation":
        return bool(reading.format)
    return reading.kind != "none"
