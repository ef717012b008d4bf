"""The contract checks find what is wrong: each plugin here has one defect, and one check that must say so."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from lens_core import (
    Answer,
    Batch,
    Collector,
    Delivered,
    Detector,
    IngestRequest,
    LogFormat,
    Measurement,
    NoSettings,
    Record,
    Rejected,
    Reply,
    Retry,
    Route,
    Sink,
    Source,
    StepMetrics,
)
from lens_core.testing import (
    SINK_CHECKS,
    SinkHarness,
    Trouble,
    check_collector,
    check_detector,
    check_source,
    make_context,
)
from lens_core.testing.sinks import SinkCheck

CHECKS = {check.__name__.removeprefix("check_"): check for check in SINK_CHECKS}


class Shelf:
    """The other side of the sinks here: what is stored, and what it is made to do."""

    def __init__(self) -> None:
        self.rows: list[StepMetrics] = []
        self.trouble: Trouble | None = None
        self.changed = asyncio.Event()

    def become(self, trouble: Trouble | None) -> None:
        self.trouble = trouble
        self.changed.set()
        self.changed = asyncio.Event()

    async def store(self, rows: Sequence[Record]) -> None:
        if self.trouble == "hang":
            await self.changed.wait()
            raise ConnectionError("reset")
        if self.trouble == "error":
            raise ConnectionError("HTTP 500")
        self.rows += [row for row in rows if isinstance(row, StepMetrics)]


class Good(Sink):
    """Stores everything, every time."""

    name = "good"
    shelf: ClassVar[Shelf]

    async def send(self, batch: Batch) -> Answer:
        await self.shelf.store(batch.records)
        return Delivered()


class LosesOnTrouble(Good):
    async def send(self, batch: Batch) -> Answer:
        try:
            return await super().send(batch)
        except ConnectionError:
            return Delivered()


class RejectsOnTrouble(Good):
    async def send(self, batch: Batch) -> Answer:
        try:
            return await super().send(batch)
        except ConnectionError:
            return Rejected(dict.fromkeys(range(len(batch.records)), "HTTP 500"))


class Doubles(Good):
    async def send(self, batch: Batch) -> Answer:
        await self.shelf.store(batch.records[:1])
        return await super().send(batch)


class RejectsNeighbours(Good):
    async def send(self, batch: Batch) -> Answer:
        values = [value for row in batch.records if isinstance(row, StepMetrics) for value in row.values.values()]
        if any(math.isnan(value) for value in values):
            return Rejected(dict.fromkeys(range(len(batch.records)), "NaN"))
        return await super().send(batch)


class SwallowsCancellation(Good):
    async def send(self, batch: Batch) -> Answer:
        try:
            return await super().send(batch)
        except asyncio.CancelledError:
            return Retry("cancelled")


class AnswersNonsense(Good):
    async def send(self, batch: Batch) -> Answer:
        await super().send(batch)
        return Rejected({len(batch.records): "one too many"})


class StopsBadly(Good):
    def __init__(self, settings: NoSettings, context: object) -> None:
        self._open = False

    async def start(self) -> None:
        self._open = True

    async def stop(self) -> None:
        if not self._open:
            raise RuntimeError("not open")
        self._open = False


class Harness(SinkHarness):
    troubles = ("error", "hang")

    def __init__(self, kind: type[Good], folder: Path) -> None:
        self._shelf = Shelf()
        self._kind: type[Sink] = type(kind.__name__, (kind,), {"shelf": self._shelf})
        self._folder = folder

    def make_sink(self) -> Sink:
        return self._kind(NoSettings(), make_context("checked", self._folder))

    async def trouble(self, kind: Trouble | None) -> None:
        self._shelf.become(kind)

    async def stored(self) -> Counter[int]:
        return Counter(row.row_step for row in self._shelf.rows)


class OnceHarness(Harness):
    exactly_once = True


@pytest.mark.parametrize("check", SINK_CHECKS, ids=[*CHECKS])
async def test_a_good_sink_goes_through(check: SinkCheck, tmp_path: Path) -> None:
    await check(Harness(Good, tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("harness", "kind", "check", "finding"),
    [
        (Harness, LosesOnTrouble, "no_trouble_loses_anything", "after 20 s still not: error is tried again"),
        (Harness, RejectsOnTrouble, "a_full_spool_keeps_what_it_took", "records are lost"),
        (Harness, Doubles, "everything_arrives_once", "records are there more than once"),
        (Harness, RejectsNeighbours, "odd_values_lose_no_neighbour", "ordinary records went to the dead letters"),
        (Harness, SwallowsCancellation, "cancelling_is_obeyed", "swallowed its cancellation"),
        (Harness, AnswersNonsense, "answers_make_sense", "rejected records that were not in the batch"),
        (OnceHarness, Good, "a_batch_sent_again_changes_nothing", "records are there more than once"),
    ],
)
async def test_what_is_wrong_with_a_sink_is_found(
    harness: Callable[[type[Good], Path], SinkHarness],
    kind: type[Good],
    check: str,
    finding: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lens_core.testing.sinks.until", _impatient)
    with pytest.raises(AssertionError, match=finding):
        await CHECKS[check](harness(kind, tmp_path), tmp_path)


async def _impatient(condition: Callable[[], bool], what: str, *, seconds: float = 20.0) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"after {seconds:g} s still not: {what}")


async def test_a_sink_that_cannot_be_stopped_unstarted_is_found(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not open"):
        await CHECKS["a_sink_that_was_never_started_stops"](Harness(StopsBadly, tmp_path), tmp_path)


class Rows(Source):
    """One route, everything right."""

    name = "rows"

    def routes(self) -> Sequence[Route]:
        return [Route(paths=["/rows"], handler=self._receive)]

    async def _receive(self, request: IngestRequest) -> Reply:
        from lens_core import BadRequest

        try:
            values = msgspec.json.decode(request.body, type=dict[str, float])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(str(error)) from None
        await self.gate.submit([StepMetrics(data_source="x", row_step=1, values=values)])
        return Reply(body={"success": True})


class Acknowledges(Rows):
    async def _receive(self, request: IngestRequest) -> Reply:
        from lens_core import Overloaded

        try:
            return await super()._receive(request)
        except Overloaded:
            return Reply(body={"success": True})


class Crashes(Rows):
    async def _receive(self, request: IngestRequest) -> Reply:
        values = msgspec.json.decode(request.body)
        await self.gate.submit([StepMetrics(data_source="x", row_step=1, values=values)])
        return Reply()


class Forgets(Rows):
    async def _receive(self, request: IngestRequest) -> Reply:
        return Reply()


GOOD_REQUEST = IngestRequest(body=b'{"loss": 1.0}', path="/rows", method="POST", headers={}, query={})


async def test_a_good_source_goes_through(tmp_path: Path) -> None:
    await check_source(Rows(NoSettings(), make_context("rows", tmp_path)), [GOOD_REQUEST])


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (Acknowledges, "/rows: answered 200 although nothing was taken"),
        (Crashes, "/rows: .* raised DecodeError"),
        (Forgets, "/rows: a good request gave no record"),
    ],
)
async def test_what_is_wrong_with_a_source_is_found(kind: type[Source], finding: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=finding):
        await check_source(kind(NoSettings(), make_context("rows", tmp_path)), [GOOD_REQUEST])


class Pull(Collector):
    name = "pull"
    is_broken = False

    async def collect(self) -> Sequence[Record]:
        await asyncio.sleep(0)
        if self.is_broken:
            raise ConnectionError("refused")
        return [Measurement(name="x", value=None)]


class Quiet(Pull):
    async def collect(self) -> Sequence[Record]:
        try:
            return await super().collect()
        except ConnectionError:
            return []


async def test_collectors(tmp_path: Path) -> None:
    def make(kind: type[Pull], *, broken: bool) -> Pull:
        made = kind(NoSettings(), make_context("pull", tmp_path))
        made.is_broken = broken
        return made

    await check_collector(make(Pull, broken=False), failing=make(Pull, broken=True))
    with pytest.raises(AssertionError, match=r"the other side is broken, but collect\(\) answered \[\]"):
        await check_collector(make(Quiet, broken=False), failing=make(Quiet, broken=True))


class Lines(Detector):
    name = "lines"
    formats = (
        LogFormat(
            name="a", words=("step",), head=r"step (?P<iteration>\d+) loss (?P<loss>\S+)", example="step 1 loss 2"
        ),
    )


class WrongExample(Detector):
    name = "wrong"
    formats = (LogFormat(name="a", words=("steps",), head=r"step (?P<iteration>\d+)", example="step 1"),)


class Greedy(Detector):
    name = "greedy"
    formats = (LogFormat(name="a", words=("root",), head=r"(?P<x>\d\d):", example="root 22:"),)


class Nothing(Detector):
    name = "nothing"


class WrongLayer(Detector):
    name = "layered"
    layer = "middle"


def test_detectors() -> None:
    check_detector(Lines)
    for kind, finding in (
        (WrongExample, "wrong.a does not read its own example 'step 1'"),
        (Greedy, "greedy takes .* for a step"),
        (Nothing, "nothing declares nothing by which it could recognise anything"),
        (WrongLayer, "layer must be one of"),
    ):
        with pytest.raises(AssertionError, match=finding):
            check_detector(kind)
