"""Delivery to one sink: every answer, every kind of failure, and nobody else's trouble."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Context,
    Delivered,
    Event,
    NoSettings,
    Origin,
    Poisoned,
    Position,
    Record,
    Rejected,
    Retry,
    Sink,
    StepMetrics,
)
from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.sending.policy import DeliverySettings
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.model.records import Envelope
from lens_core.pipeline.pipeline import Pipeline

AT_ONCE = DeliverySettings(
    retry_base_seconds=0.0001, retry_cap_seconds=0.001, send_timeout_seconds=0.2, failing_after=3
)
Judge = Callable[[Batch], Awaitable[object]]


class Scripted(Sink):
    """Answers what its judge says and remembers what was asked."""

    name = "scripted"
    accepts = (StepMetrics, Event)

    def __init__(self, judge: Judge, position: Callable[[], Position | None] = lambda: None) -> None:
        super().__init__(NoSettings(), context())
        self.judge = judge
        self.asked: list[Batch] = []
        self.where = position

    async def send(self, batch: Batch) -> Answer:
        self.asked.append(batch)
        return await self.judge(batch)  # type: ignore[return-value]

    async def position(self, spool_id: str) -> Position | None:
        return self.where()


def context() -> Context:
    return Context(name="test", logger=logging.getLogger("test"), data_dir=Path("/nowhere"), metrics=SelfMetrics())


def rows(count: int, first: int = 0) -> list[Record]:
    origin = Origin(pod_name="p")
    return [
        StepMetrics(origin=origin, data_source="wandb", row_step=step, values={"x": 1.0})
        for step in range(first, first + count)
    ]


def steps(records: Sequence[Record]) -> list[int]:
    return [record.row_step for record in records if isinstance(record, StepMetrics)]


def answers(*answers: object) -> Judge:
    """These answers in turn, then Delivered."""
    left = list(answers)

    async def judge(batch: Batch) -> object:
        answer = left.pop(0) if left else Delivered()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return judge


def pipeline_of(path: Path, *sinks: Sink, limits: BatchLimits | None = None, required: bool = True) -> Pipeline:
    wide = limits or BatchLimits(max_wait_seconds=0.0)
    slots = [
        SinkSlot(name=f"s{number}", sink=sink, limits=wide, delivery=AT_ONCE, required=required)
        for number, sink in enumerate(sinks)
    ]
    return Pipeline("p", Spool(path / "p.spool"), slots, metrics=SelfMetrics())


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), 240)


async def settle(pipeline: Pipeline) -> None:
    await until(lambda: all(sink.pending_records == 0 for sink in pipeline.pipeline_status().sinks))
    for sender, status in zip(pipeline.senders, pipeline.pipeline_status().sinks, strict=True):
        assert sender.ledger.sink_difference(status.pending_records) == 0


async def run(path: Path, sink: Sink, records: list[Record], limits: BatchLimits | None = None) -> Pipeline:
    """Deliver the records; returns the stopped pipeline."""
    pipeline = pipeline_of(path, sink, limits=limits)
    await pipeline.start()
    await pipeline.submit(records)
    await settle(pipeline)
    await pipeline.stop()
    return pipeline


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Retry("busy"), "busy"),
        (Retry("busy", after_seconds=0.001), "busy"),
        (ConnectionError("refused  by\npeer"), "ConnectionError: refused by peer"),
        (None, "instead of an Answer"),
        (asyncio.CancelledError(), "gave up by itself"),
        ({"ok": True}, "instead of an Answer"),
        (Rejected({17: "nobody"}), "makes no sense"),
        (Delivered(filtered=9), "makes no sense"),
    ],
)
async def test_what_is_no_verdict_brings_the_same_batch_again(tmp_path: Path, answer: object, said: str) -> None:
    sink = Scripted(answers(answer, answer))
    pipeline = await run(tmp_path, sink, rows(3))
    assert [batch.attempt for batch in sink.asked] == [1, 2, 3]
    assert len({(batch.start, batch.end, tuple(steps(batch.records))) for batch in sink.asked}) == 1
    status = pipeline.pipeline_status().sinks[0]
    assert said in status.last_error
    assert (status.retries, status.ledger.delivered) == (2, 3)
    assert (status.state, status.failures_in_a_row) == ("stopped", 0)


async def test_a_sink_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    async def judge(batch: Batch) -> object:
        if batch.attempt == 1:
            await asyncio.sleep(3600)
        return Delivered()

    pipeline = await run(tmp_path, Scripted(judge), rows(3))
    assert pipeline.pipeline_status().sinks[0].last_error == "no answer within 0.2 s"


async def test_after_many_failures_it_is_failing_and_goes_on(tmp_path: Path) -> None:
    broken = True

    async def judge(batch: Batch) -> object:
        if broken:
            raise RuntimeError("boom")
        return Delivered()

    pipeline = pipeline_of(tmp_path, Scripted(judge))
    await pipeline.start()
    await pipeline.submit(rows(2))
    await until(lambda: pipeline.pipeline_status().sinks[0].state == "failing")
    assert pipeline.pipeline_status().sinks[0].pending_records == 2
    broken = False
    await settle(pipeline)
    status = pipeline.pipeline_status().sinks[0]
    assert (status.state, status.last_error) == ("idle", "RuntimeError: boom")
    assert status.last_success_at is not None
    await pipeline.stop()


async def test_rejected_records_become_dead_letters_with_their_reasons(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, Scripted(answers(Rejected({0: "too old", 2: "too new"}, filtered=1))))
    await pipeline.start()
    await pipeline.submit(rows(4))
    await settle(pipeline)
    entries = await pipeline.dead_letters.entries()
    assert [(entry.reason, entry.record["row_step"]) for entry in entries] == [("too old", 0), ("too new", 2)]
    ledger = pipeline.pipeline_status().sinks[0].ledger
    assert (ledger.delivered, ledger.filtered, ledger.rejected) == (1, 1, {"refused": 2})
    await pipeline.stop()


def poisoned_by(*poison: int) -> Judge:
    async def judge(batch: Batch) -> object:
        return Poisoned("cannot be stored") if set(poison) & set(steps(batch.records)) else Delivered()

    return judge


@pytest.mark.parametrize("poison", [(0,), (99,), (37,), (0, 1, 99), tuple(range(100))])
async def test_a_poisoned_record_is_found_by_halves_and_loses_no_other(tmp_path: Path, poison: tuple[int, ...]) -> None:
    sink = Scripted(poisoned_by(*poison))
    pipeline = pipeline_of(tmp_path, sink)
    await pipeline.start()
    await pipeline.submit(rows(100))
    await settle(pipeline)
    stored = [
        step for batch in sink.asked if not set(poison) & set(steps(batch.records)) for step in steps(batch.records)
    ]
    assert stored == [step for step in range(100) if step not in poison]
    entries = await pipeline.dead_letters.entries(limit=1000)
    assert [entry.record["row_step"] for entry in entries] == list(poison)
    ends = [batch.end for batch in sink.asked if not set(poison) & set(steps(batch.records))]
    assert ends == sorted(ends)
    assert len(poison) > 1 or len(sink.asked) < 20
    await pipeline.stop()


async def test_a_record_that_cannot_be_read_blocks_nothing_and_is_kept(tmp_path: Path) -> None:
    sink = Scripted(answers())
    pipeline = pipeline_of(tmp_path, sink)
    await pipeline.start()
    future = msgspec.msgpack.encode({"record": "from_the_future", "x": 1})
    known = msgspec.msgpack.encode(rows(1)[0])
    body = msgspec.msgpack.encode(Envelope(records=[msgspec.Raw(future), msgspec.Raw(known)]))
    await pipeline.spool.append(body, 2)
    await pipeline.spool.append(b"\xc1 nothing at all", 5)
    await settle(pipeline)
    assert [steps(batch.records) for batch in sink.asked] in ([[0]], [[0], []])
    entries = await pipeline.dead_letters.entries()
    assert [entry.record for entry in entries] == [{"record": "from_the_future", "x": 1}, None]
    assert pipeline.pipeline_status().sinks[0].ledger.rejected == {"unreadable": 6}
    await pipeline.stop()


async def test_a_sink_that_knows_its_position_starts_there(tmp_path: Path) -> None:
    first = pipeline_of(tmp_path, Scripted(answers(*[Retry("down")] * 1000)))
    await first.start()
    await first.submit(rows(5))
    await first.submit(rows(5, first=5))
    await first.stop()

    sink = Scripted(answers(), position=lambda: Position(2, 3))
    pipeline = pipeline_of(tmp_path, sink)
    await pipeline.start()
    await settle(pipeline)
    assert [steps(batch.records) for batch in sink.asked] == [[8, 9]]
    assert sink.asked[0].start == Position(2, 3)
    ledger = pipeline.pipeline_status().sinks[0].ledger
    assert (ledger.recovered, ledger.delivered) == (10, 10)
    await pipeline.stop()


async def test_nothing_is_sent_before_a_sink_has_said_where_it_is(tmp_path: Path) -> None:
    asked = 0

    def position() -> Position | None:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise ConnectionError("not yet")
        return None

    first = pipeline_of(tmp_path, Scripted(answers(*[Retry("down")] * 1000)))
    await first.start()
    await first.submit(rows(3))
    await first.stop()

    sink = Scripted(answers(), position=position)
    pipeline = pipeline_of(tmp_path, sink)
    await pipeline.start()
    await settle(pipeline)
    await pipeline.stop()
    assert asked == 4
    assert steps(sink.asked[0].records) == [0, 1, 2]
    assert pipeline.pipeline_status().sinks[0].last_error == "ConnectionError: not yet"


async def test_a_large_batch_comes_in_parts_with_consecutive_places(tmp_path: Path) -> None:
    sink = Scripted(answers())
    await run(tmp_path, sink, rows(25), BatchLimits(max_records=10, max_wait_seconds=0.0))
    assert [steps(batch.records) for batch in sink.asked] == [
        list(range(10)), list(range(10, 20)), list(range(20, 25))
    ]  # fmt: skip
    assert [batch.start for batch in sink.asked[1:]] == [batch.end for batch in sink.asked[:-1]]


async def test_a_dead_sink_slows_no_other(tmp_path: Path) -> None:
    async def hangs(batch: Batch) -> object:
        await asyncio.sleep(3600)
        return Delivered()

    async def raises(batch: Batch) -> object:
        raise RuntimeError("always")

    alive = Scripted(answers())
    pipeline = pipeline_of(tmp_path, Scripted(hangs), Scripted(raises), alive)
    await pipeline.start()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(50):
        await pipeline.submit(rows(1, first=number))
    await until(lambda: pipeline.pipeline_status().sinks[2].pending_records == 0)
    assert loop.time() - began < 5.0
    assert [step for batch in alive.asked for step in steps(batch.records)] == list(range(50))
    assert [sink.pending_records for sink in pipeline.pipeline_status().sinks] == [50, 50, 0]
    await pipeline.stop(1.0)


async def test_an_optional_sink_that_hangs_is_overtaken_and_adds_up(tmp_path: Path) -> None:
    hanging = True

    async def judge(batch: Batch) -> object:
        return Retry("down") if hanging else Delivered()

    sink = Scripted(judge)
    slot = SinkSlot(name="s", sink=sink, required=False, limits=BatchLimits(max_wait_seconds=0.0), delivery=AT_ONCE)
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool", max_bytes=20_000), [slot], metrics=SelfMetrics())
    await pipeline.start()
    for number in range(100):
        await pipeline.submit(rows(10, first=number * 10))
    status = pipeline.pipeline_status().sinks[0]
    assert status.ledger.accepted == 1000
    assert pipeline.senders[0].ledger.sink_difference(status.pending_records) == 0
    hanging = False
    await settle(pipeline)
    ledger = pipeline.pipeline_status().sinks[0].ledger
    assert ledger.dropped["spool_full"] + ledger.delivered == 1000
    assert ledger.delivered > 0
    await pipeline.stop()


async def test_stopping_while_a_sink_is_down_is_quick_and_keeps_everything(tmp_path: Path) -> None:
    slow = DeliverySettings(retry_base_seconds=60.0, retry_cap_seconds=60.0)
    sink = Scripted(answers(*[Retry("down", after_seconds=60.0)] * 1000))
    slot = SinkSlot(name="s0", sink=sink, limits=BatchLimits(max_wait_seconds=0.0), delivery=slow)
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot], metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.submit(rows(7))
    await until(lambda: bool(sink.asked))
    began = asyncio.get_running_loop().time()
    await pipeline.stop(30.0)
    assert asyncio.get_running_loop().time() - began < 5.0

    alive = Scripted(answers())
    again = pipeline_of(tmp_path, alive)
    await again.start()
    await settle(again)
    assert [steps(batch.records) for batch in alive.asked] == [list(range(7))]
    await again.stop()


async def test_a_send_that_is_cancelled_at_the_deadline_loses_nothing(tmp_path: Path) -> None:
    async def hangs(batch: Batch) -> object:
        await asyncio.sleep(3600)
        return Delivered()

    slot = SinkSlot(name="s0", sink=Scripted(hangs), limits=BatchLimits(max_wait_seconds=0.0))
    pipeline = Pipeline("p", Spool(tmp_path / "p.spool"), [slot], metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.submit(rows(3))
    await pipeline.stop(0.05)
    status = pipeline.pipeline_status().sinks[0]
    assert (status.pending_records, status.ledger.delivered) == (3, 0)


async def test_a_memory_spool_tries_until_the_deadline_and_says_what_is_lost(tmp_path: Path) -> None:
    flaky = Scripted(answers(*[Retry("down")] * 5))
    dead = Scripted(answers(*[Retry("down")] * 100_000))
    slots = [SinkSlot(name=name, sink=sink, delivery=AT_ONCE) for name, sink in (("flaky", flaky), ("dead", dead))]
    pipeline = Pipeline("p", Spool(None), slots, metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.submit(rows(3))
    await pipeline.stop(1.0)
    first, second = pipeline.pipeline_status().sinks
    assert first.ledger.delivered == 3
    assert second.ledger.dropped == {"memory_spool_closed": 3}
    assert [sender.ledger.sink_difference(0) for sender in pipeline.senders] == [0, 0]
