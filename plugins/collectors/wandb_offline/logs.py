"""One log: what is known about its run, and what its next records become."""

from __future__ import annotations

import copy
import fnmatch
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lens_core import SHOWN_NAME_LABEL, Event, Evidence, Measurement, Origin, Record, StepMetrics
from lens_core.plugin_api.protobuf import WireError

from .messages import (
    CONFIG,
    EXIT,
    HEADER,
    HISTORY,
    METRIC,
    RUN,
    STATS,
    HistoryRow,
    WandbOfflineSettings,
    body_of,
    read_exit,
    read_history,
    read_metric,
    read_records,
    read_run,
    read_stats,
    update_config,
)

# Steps that the Hugging Face Trainer and Lightning log beside wandb's own step.
_USUAL_AXES = ("train/global_step", "trainer/global_step")
_MAX_RECORD_BYTES = 256 * 1024 * 1024
_MAX_AXES = 1000


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Progress in a log, and its state; `next_step` is for rows that name no step."""

    inode: int
    offset: int = 0
    session: str = ""
    generation: int = 0
    run: dict[str, str] = {}
    tags: list[str] = []
    config: dict[str, Any] = {}
    axes: list[tuple[str, str]] = []
    next_step: int = 0
    last_time: float | None = None
    damaged: int = 0


class Piece(NamedTuple):
    """A piece of a log."""

    records: list[Record]
    progress: Progress
    size: int
    has_more: bool


def read_piece(path: Path, before: Progress | None, settings: WandbOfflineSettings) -> Piece | None:
    """The next piece of a log; None when it has nothing new. Raises OSError, ValueError for a file that is no log."""
    status = path.stat()
    progress = _next_progress(path, before, status)
    if status.st_size <= max(progress.offset, len(HEADER)):
        return None
    amount = settings.bytes_at_once
    with path.open("rb") as file:
        if progress.offset == 0:
            if file.read(len(HEADER)) != HEADER:
                raise ValueError("it does not begin like a log of wandb")
            progress.offset = len(HEADER)
        while True:
            file.seek(progress.offset)
            data = file.read(amount)
            log = Log(progress, settings)
            framed = read_records(data, progress.offset, log.parse_record)
            at_end = progress.offset + len(data) >= status.st_size
            # A record larger than the piece: a larger piece, once.
            if framed.end > progress.offset or at_end or amount >= _MAX_RECORD_BYTES:
                break
            amount *= 2
    if framed.end == progress.offset:
        return None
    log.describe_run()
    size = framed.end - progress.offset
    log.progress.offset = framed.end
    log.progress.damaged += framed.damaged
    return Piece(log.records, log.progress, size, not at_end)


def _next_progress(path: Path, before: Progress | None, status: os.stat_result) -> Progress:
    """A copy of where to go on; a file that was replaced or cut is a new one."""
    if before is not None and before.inode == status.st_ino and before.offset <= status.st_size:
        return msgspec.structs.replace(before, run=dict(before.run), axes=list(before.axes))
    generation = before.generation + 1 if before is not None else 0
    session = path.parent.name + (f"~{generation}" if generation else "")
    return Progress(inode=status.st_ino, session=session, generation=generation, run=_run_of(path))


def _run_of(path: Path) -> dict[str, str]:
    """The run's id from the file's name, until the log says it."""
    return {"run_id": path.stem.removeprefix("run-")}


class Log:
    """Turns the records of one piece into ours."""

    def __init__(self, progress: Progress, settings: WandbOfflineSettings) -> None:
        self.progress = msgspec.structs.replace(
            progress, run=dict(progress.run), config=copy.deepcopy(progress.config), axes=list(progress.axes)
        )
        self.records: list[Record] = []
        self._settings = settings
        self._origin: Origin | None = None
        self._described = True

    def parse_record(self, record: bytes, end: int) -> None:
        """One record, which ends at this offset of its file; a damaged one is counted."""
        try:
            found = body_of(record)
            if found is not None:
                self._parse_field(*found, end)
        except WireError:
            self.progress.damaged += 1

    def _parse_field(self, number: int, body: bytes, end: int) -> None:
        if number == HISTORY:
            self._emit_row(read_history(body), end)
        elif number == RUN:
            self._parse_run(body)
        elif number == CONFIG:
            self._parse_config(body)
        elif number == METRIC:
            axis = read_metric(body)
            if axis is not None and axis not in self.progress.axes and len(self.progress.axes) < _MAX_AXES:
                self.progress.axes.append(axis)
        elif number == EXIT:
            self._exit(read_exit(body))
        elif number == STATS and self._settings.system_metrics:
            self._stats(*read_stats(body))

    @property
    def _where(self) -> Origin:
        if self._origin is None:
            run = self.progress.run
            named = {"{entity}": run.get("entity", ""), "{project}": run.get("project", ""), "{run}": run["run_id"]}
            uid = self._settings.workload
            for place, text in named.items():
                uid = uid.replace(place, text)
            # Of a workload of several runs no run's name is the name.
            name = run.get("name", "") if "{run}" in self._settings.workload else ""
            self._origin = Origin(workload_uid=uid, labels={SHOWN_NAME_LABEL: name} if name else {})
        return self._origin

    def _emit_row(self, row: HistoryRow, end: int) -> None:
        step = self.progress.next_step if row.step is None else row.step
        self.progress.next_step = max(self.progress.next_step, step + 1)
        self.progress.last_time = row.time if row.time is not None else self.progress.last_time
        if not row.values:
            return
        self.records.append(
            StepMetrics(
                origin=self._where,
                data_source="wandb",
                echo_of="wandb",
                run_id=self.progress.run["run_id"],
                session=self.progress.session,
                row_step=step,
                iteration=self._iteration(row.values),
                values=row.values,
                event_time=row.time,
                sequence=end,
            )
        )

    def _iteration(self, values: Mapping[str, float]) -> int | None:
        """The training step of a row: what the axis of its metrics says, else the usual axes, else nothing."""
        for pattern, axis in self.progress.axes:
            step = _as_integer(values.get(axis))
            if step is not None and any(_matches(name, pattern) for name in values if name != axis):
                return step
        return next((step for axis in _USUAL_AXES if (step := _as_integer(values.get(axis))) is not None), None)

    def _parse_run(self, body: bytes) -> None:
        found = read_run(body)
        first = "project" not in self.progress.run
        self.progress.run.update({name: text for name, text in found.texts.items() if text})
        self.progress.tags = found.tags or self.progress.tags
        self.progress.config = {**self.progress.config, **found.config}
        self.progress.last_time = found.started or self.progress.last_time
        self._origin = None
        if first:
            self._emit_event("training_started", {})
        self._described = False

    def _parse_config(self, body: bytes) -> None:
        update_config(self.progress.config, body)
        self._described = False

    def describe_run(self) -> None:
        """Describe the run as it is at the end of the piece, if the piece has changed what is known of it."""
        if self._described or "project" not in self.progress.run:
            return
        facts = {name: text for name, text in self.progress.run.items() if name != "run_id"}
        told = {"id": self.progress.run["run_id"], "tags": self.progress.tags, "config": self.progress.config}
        self.records.append(
            Evidence(
                origin=self._where,
                source="wandb",
                facts={"wandb": {**facts, **{name: value for name, value in told.items() if value}}},
                run_id=self.progress.run["run_id"],
                session=self.progress.session,
                event_time=self.progress.last_time,
            )
        )

    def _exit(self, code: int) -> None:
        self._emit_event("training_failed" if code else "training_ended", {"exit_code": code})

    def _emit_event(self, kind: str, details: dict[str, int]) -> None:
        self.records.append(
            Event(
                origin=self._where,
                type=kind,
                run_id=self.progress.run["run_id"],
                session=self.progress.session,
                event_time=self.progress.last_time,
                data_source="wandb",
                details=dict(details),
            )
        )

    def _stats(self, time: float | None, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            tags = {"run_id": self.progress.run["run_id"]}
            found = Measurement(
                origin=self._where, name=f"wandb.system.{name}", value=value, event_time=time, tags=tags
            )
            self.records.append(found)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or ("*" in pattern and fnmatch.fnmatchcase(name, pattern))


def _as_integer(value: float | None) -> int | None:
    if value is None or not math.isfinite(value) or not value.is_integer() or abs(value) >= 1 << 62:
        return None
    return int(value)
