"""A pipeline as a whole: what enters is delivered, counted, kept over a restart, and in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.detectors.megatron import Megatron

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Context,
    Delivered,
    Event,
    LogLine,
    NoSettings,
    Origin,
    Overloaded,
    Record,
    Retry,
    Sink,
    StepMetrics,
)
from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.model.processing import Processed
from lens_core.model.record_filter import RecordFilter
from lens_core.pipeline.pipeline import Pipeline
from lens_core.plugin_api.instance import ComponentConfig

QUICK = BatchLimits(max_wait_seconds=0.01)
HERE = Origin(workload_uid="w-1", pod_name="p-1")


class Keeping(Sink):
    """Keeps what it gets; answers what it is told to answer."""

    name = "keeping"
    accepts = (StepMetrics, Event)

    def __init__(self, answer: Callable[[Batch], Answer] | None = None) -> None:
        super().__init__(NoSettings(), context())
        self.batches: list[Batch] = []
        self.answer = answer

    async def send(self, batch: Batch) -> Answer:
        answer = self.answer(batch) if self.answer else Delivered()
        if isinstance(answer, Delivered):
            self.batches.append(batch)
        return answer

    @property
    def steps(self) -> list[int]:
        """The steps that came, in their order."""
        return [r.row_step for batch in self.batches for r in batch.records if isinstance(r, StepMetrics)]


def context() -> Context:
    return Context(name="test", logger=logging.getLogger("test"), data_dir=Path("/nonexistent"), metrics=SelfMetrics())


def rows(*steps: int, origin: Origin = HERE, source: str = "wandb") -> list[Record]:
    return [StepMetrics(origin=origin, data_source=source, row_step=step, values={"loss": 1.0}) for step in steps]


def slot(name: str, sink: Sink, *, required: bool = True, wanted: RecordFilter | None = None) -> SinkSlot:
    return SinkSlot(name=name, sink=sink, required=required, limits=QUICK, filter=wanted or RecordFilter())


async def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(wait(), seconds)


async def fill(pipeline: Pipeline) -> int:
    """Submit until the spool is full; how many records it took."""
    taken = 0
    while True:
        try:
            await pipeline.submit(rows(1, 2))
        except Overloaded:
            return taken
        taken += 2


def quiet(pipeline: Pipeline) -> bool:
    return all(sink.pending_records == 0 for sink in pipeline.pipeline_status().sinks)


def assert_adds_up(pipeline: Pipeline) -> None:
    pipeline.pipeline_status()
    for sender in pipeline.senders:
        pending = pipeline.spool.pending(sender.slot.name).records
        assert sender.ledger.sink_difference(pending) == 0, sender.ledger.ledger_status()


@pytest.mark.parametrize("in_memory", [False, True])
async def test_what_is_submitted_arrives_in_order_at_every_sink(tmp_path: Path, in_memory: bool) -> None:
    first, second = Keeping(), Keeping()
    spool = Spool(None if in_memory else tmp_path / "p.spool")
    pipeline = Pipeline("p", spool, [slot("one", first), slot("two", second)], metrics=SelfMetrics())
    await pipeline.start()
    for begin in range(0, 100, 10):
        await pipeline.submit(rows(*range(begin, begin + 10)))
    await until(lambda: quiet(pipeline))
    assert first.steps == second.steps == list(range(100))
    assert_adds_up(pipeline)
    await pipeline.stop()


async def test_what_a_dead_sink_did_not_take_is_there_after_a_restart(tmp_path: Path) -> None:
    dead = Keeping(lambda batch: Retry("not today"))
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", dead)], metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.submit(rows(1, 2, 3))
    await until(lambda: pipeline.pipeline_status().sinks[0].state == "retrying")
    status = pipeline.pipeline_status().sinks[0]
    assert (status.pending_records, status.last_error) == (3, "not today")
    await pipeline.stop(5.0)

    alive = Keeping()
    again = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", alive)], metrics=SelfMetrics())
    await again.start()
    await until(lambda: quiet(again))
    assert alive.steps == [1, 2, 3]
    assert again.pipeline_status().sinks[0].ledger.recovered == 3
    assert_adds_up(again)
    await again.stop()


async def test_stopping_delivers_what_waits_for_a_batch_to_fill(tmp_path: Path) -> None:
    sink = Keeping()
    slow = SinkSlot(name="s", sink=sink, limits=BatchLimits(max_wait_seconds=3600))
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slow], metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.submit(rows(1, 2))
    await pipeline.stop(5.0)
    assert sink.steps == [1, 2]


async def test_after_the_stop_nothing_is_taken(tmp_path: Path) -> None:
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", Keeping())], metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.stop()
    with pytest.raises(Overloaded):
        await pipeline.submit(rows(1))


async def test_filters_of_the_pipeline_and_of_a_sink(tmp_path: Path) -> None:
    everything, team_b = Keeping(), Keeping()
    team = {name: Origin(pod_name="p", labels={"team": name}) for name in ("a", "b", "c")}
    pipeline = Pipeline(
        "p",
        Spool(tmp_path / "p.spool"),
        [slot("all", everything), slot("b", team_b, wanted=RecordFilter(labels={"team": "b"}))],
        metrics=SelfMetrics(),
        record_filter=RecordFilter(labels={"team": "[ab]"}),
    )
    await pipeline.start()
    await pipeline.submit([*rows(1, origin=team["a"]), *rows(2, 3, origin=team["b"]), *rows(4, origin=team["c"])])
    await until(lambda: quiet(pipeline))
    assert (everything.steps, team_b.steps) == ([1, 2, 3], [2, 3])
    assert (pipeline.ledger.received, pipeline.ledger.filtered, pipeline.ledger.accepted) == (4, 1, 3)
    assert pipeline.senders[1].ledger.filtered == 1
    assert_adds_up(pipeline)
    await pipeline.stop()


async def test_records_that_no_sink_accepts_are_counted_and_not_spooled(tmp_path: Path) -> None:
    sink = Keeping()
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.submit([LogLine(text="noise")] * 1000)
    assert pipeline.spool.spool_status().bytes == 0
    assert (pipeline.senders[0].ledger.accepted, pipeline.senders[0].ledger.filtered) == (1000, 1000)
    assert_adds_up(pipeline)
    await pipeline.stop()


async def test_a_large_submission_becomes_several_batches_and_stays_in_order(tmp_path: Path) -> None:
    sink = Keeping()
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.submit(rows(*range(9_001)))
    await until(lambda: quiet(pipeline))
    assert sink.steps == list(range(9_001))
    await pipeline.stop()


class Counter:
    """A processor that numbers what it sees and keeps the number as its state."""

    def __init__(self) -> None:
        self.number = self.before = 0
        self.rolled_back = 0
        self.broken = False

    def load(self, state: Mapping[str, bytes]) -> None:
        self.number = int(state.get("number", b"0"))

    def process(self, records: Sequence[Record]) -> Processed:
        self.before = self.number
        self.number += len(records)
        if self.broken:
            raise ValueError("a detector's own fault")
        seen = Event(type="resumed", origin=HERE, details={"number": self.number})
        state: dict[str, bytes | None] = {"number": str(self.number).encode()}
        return Processed(records=[*records, seen], state_changes=state, derived=1)

    def end_jobs(self, is_over: Callable[[Origin], bool]) -> Mapping[str, bytes | None]:
        return {}

    def rollback(self) -> None:
        self.number = self.before
        self.rolled_back += 1


async def test_a_processors_state_is_stored_with_the_records_it_came_from(tmp_path: Path) -> None:
    sink, counter = Keeping(), Counter()
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=SelfMetrics(), processor=counter)
    await pipeline.start()
    await asyncio.gather(*(pipeline.submit(rows(step, step)) for step in range(20)))
    await until(lambda: quiet(pipeline))
    assert sink.steps == [step for step in range(20) for _ in range(2)]
    numbers = [r.details["number"] for batch in sink.batches for r in batch.records if isinstance(r, Event)]
    assert numbers == list(range(2, 42, 2))
    assert pipeline.ledger.derived == 20
    await pipeline.stop()

    again = Counter()
    later = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=SelfMetrics(), processor=again)
    await later.start()
    assert again.number == 40
    await later.stop()


class Passing(Counter):
    """A processor that changes nothing; it holds what it is told to be state."""

    def __init__(self, state: Mapping[str, bytes | None]) -> None:
        super().__init__()
        self.state = state

    def process(self, records: Sequence[Record]) -> Processed:
        return Processed(records=records, state_changes=self.state)


class Watched(Spool):
    """Knows how many submissions waited for the disk at one time."""

    waiting = most = 0

    async def append_all(self, *args: Any, **named: Any) -> None:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await super().append_all(*args, **named)
        finally:
            self.waiting -= 1


@pytest.mark.parametrize(("state", "share"), [({}, True), ({"number": b"1"}, False)])
async def test_submissions_share_a_sync_unless_the_next_rests_on_their_state(
    tmp_path: Path, state: dict[str, bytes | None], share: bool
) -> None:
    sink, spool = Keeping(), Watched(tmp_path / "p.spool")
    pipeline = Pipeline("p", spool, [slot("s", sink)], metrics=SelfMetrics(), processor=Passing(state))
    await pipeline.start()
    await asyncio.gather(*(pipeline.submit(rows(step)) for step in range(100)))
    await until(lambda: quiet(pipeline))
    assert sink.steps == list(range(100))
    assert (spool.most > 10) is share
    assert_adds_up(pipeline)
    await pipeline.stop()


async def test_what_has_no_state_and_is_not_stored_takes_nothing_back(tmp_path: Path) -> None:
    dead, passing = Keeping(lambda batch: Retry("no")), Passing({})
    spool = Spool(tmp_path / "p.spool", max_bytes=2_000)
    pipeline = Pipeline("p", spool, [slot("s", dead)], metrics=SelfMetrics(), processor=passing)
    await pipeline.start()
    assert await fill(pipeline) > 0
    assert passing.rolled_back == 0
    assert_adds_up(pipeline)
    await pipeline.stop()


async def test_a_processor_is_asked_although_nothing_came(tmp_path: Path) -> None:
    sink, counter = Keeping(), Counter()
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=SelfMetrics(), processor=counter)
    await pipeline.start()
    await pipeline.submit([])
    await until(lambda: pipeline.pipeline_status().sinks[0].ledger.delivered == 1)
    assert [record.type for batch in sink.batches for record in batch.records if isinstance(record, Event)] == [
        "resumed"
    ]
    assert_adds_up(pipeline)
    await pipeline.stop()


async def test_a_processors_state_is_taken_back_when_the_spool_is_full(tmp_path: Path) -> None:
    dead, counter = Keeping(lambda batch: Retry("no")), Counter()
    spool = Spool(tmp_path / "p.spool", max_bytes=2_000)
    pipeline = Pipeline("p", spool, [slot("s", dead)], metrics=SelfMetrics(), processor=counter)
    await pipeline.start()
    taken = await fill(pipeline)
    assert counter.number == taken > 0
    assert (await spool.state())["number"] == str(taken).encode()
    assert_adds_up(pipeline)
    await pipeline.stop()


async def test_a_processor_that_raises_stops_no_record(tmp_path: Path) -> None:
    sink, counter = Keeping(), Counter()
    counter.broken = True
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=SelfMetrics(), processor=counter)
    await pipeline.start()
    await pipeline.submit(rows(1, 2))
    await until(lambda: quiet(pipeline))
    status = pipeline.pipeline_status()
    assert sink.steps == [1, 2]
    assert (status.processor_errors, status.last_processor_error) == (1, "ValueError: a detector's own fault")
    assert counter.rolled_back == 1
    await pipeline.stop()


async def test_a_cancelled_submission_leaves_processor_and_spool_in_agreement(tmp_path: Path) -> None:
    sink, counter = Keeping(), Counter()
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=SelfMetrics(), processor=counter)
    await pipeline.start()
    submission = asyncio.create_task(pipeline.submit(rows(1, 2, 3)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    submission.cancel()
    await asyncio.wait([submission])
    await pipeline.stop(5.0)
    assert len(sink.steps) == counter.number
    assert pipeline.senders[0].ledger.sink_difference(0) == 0


async def test_over_a_reload_the_ledgers_go_on_and_add_up(tmp_path: Path) -> None:
    metrics, sink = SelfMetrics(), Keeping(lambda batch: Retry("down"))
    for _ in range(3):
        pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=metrics)
        await pipeline.start()
        await pipeline.submit(rows(1, 2))
        await pipeline.stop()
    sink.answer = None
    last = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=metrics)
    await last.start()
    await until(lambda: quiet(last))
    ledger = last.senders[0].ledger
    assert (ledger.accepted, ledger.recovered, ledger.delivered) == (6, 0, 6)
    assert_adds_up(last)
    await last.stop()


async def test_the_metrics_say_what_the_ledgers_say(tmp_path: Path) -> None:
    metrics, sink = SelfMetrics(), Keeping()
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot("s", sink)], metrics=metrics)
    await pipeline.start()
    await pipeline.submit(rows(1, 2, 3))
    await until(lambda: quiet(pipeline))
    text = metrics.exposition().decode()
    assert 'lens_records_delivered_total{component="p/s"} 3.0' in text
    assert 'lens_records_accepted_total{component="p/s"} 3.0' in text
    assert 'lens_records_pending{component="p/s"} 0.0' in text
    assert 'lens_spool_bytes{pipeline="p"}' in text
    await pipeline.stop()


async def test_a_filter_of_kinds_lets_detectors_see_the_lines_that_steps_come_from(tmp_path: Path) -> None:
    sink, metrics = Keeping(), SelfMetrics()
    detectors = make_detectors(
        {"megatron": ComponentConfig(name="megatron", plugin=Megatron, type="megatron", settings=NoSettings())}, metrics
    )
    pipeline = Pipeline(
        "p",
        Spool(tmp_path / "p.spool"),
        [slot("s", sink)],
        metrics=metrics,
        processor=DetectorProcessor(detectors, metrics),
        record_filter=RecordFilter(kinds=["step_metrics"]),
    )
    await pipeline.start()
    text = " iteration 7/ 9 | elapsed time per iteration (ms): 1.0 | learning rate: 1.0E-06 | lm loss: 1.5E+00 |"
    await pipeline.submit([LogLine(origin=HERE, text=text, event_time=1.0), Event(origin=HERE, type="resumed")])
    await until(lambda: quiet(pipeline))
    assert sink.steps == [7]
    assert [type(record) for batch in sink.batches for record in batch.records] == [StepMetrics]
    ledger = pipeline.pipeline_status().ledger
    assert ledger.received + ledger.derived == ledger.filtered + ledger.accepted + ledger.merged
    await pipeline.stop()
