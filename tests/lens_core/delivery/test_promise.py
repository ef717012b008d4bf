"""The promise, as a property: whatever is submitted and whatever sinks answer, every record is accounted for."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Context,
    Delivered,
    NoSettings,
    Origin,
    Overloaded,
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
from lens_core.model.record_filter import RecordFilter
from lens_core.pipeline.pipeline import Pipeline
from tests.generated import examples

AT_ONCE = DeliverySettings(retry_base_seconds=0.0001, retry_cap_seconds=0.0005, send_timeout_seconds=5.0)
NOT_FOR_B = "not-for-b"

# What is wrong with a record, as its run_id.
GOOD, POISON, BAD, IGNORED = "good", "poison", "bad", "ignored"
# What a sink does before it looks at the records.
CALM, RETRY, RAISE, NONSENSE, OUT_OF_RANGE, STORE_AND_RAISE = range(6)

natures = st.sampled_from([GOOD] * 12 + [POISON, BAD, IGNORED])
submissions = st.tuples(
    st.just("submit"), st.lists(st.tuples(natures, st.sampled_from(["wandb", NOT_FOR_B])), min_size=1, max_size=30)
)
operations = st.lists(
    st.one_of(
        submissions, submissions, submissions, st.tuples(st.sampled_from(["restart", "settle", "wait"]), st.none())
    ),
    min_size=1,
    max_size=12,
)
moods = st.lists(st.integers(CALM, STORE_AND_RAISE), max_size=20)


class Memory:
    """The receiver of a sink, which survives the restarts of Lens."""

    def __init__(self, moods: list[int], keeps_position: bool) -> None:
        self.stored: Counter[int] = Counter()
        self.ignored: Counter[int] = Counter()
        self.position: Position | None = None
        self.keeps_position = keeps_position
        self.moods: Iterator[int] = iter(moods)
        self.stored_without_saying = 0
        self.ends: list[Position] = []
        self.refused: set[int] = set()


class Moody(Sink):
    """A sink with moods first, and then with a strict view of records."""

    name = "moody"
    accepts = (StepMetrics,)

    def __init__(self, memory: Memory) -> None:
        context = Context(name="m", logger=logging.getLogger("m"), data_dir=Path("/nowhere"), metrics=SelfMetrics())
        super().__init__(NoSettings(), context)
        self.memory = memory

    async def position(self, spool_id: str) -> Position | None:
        return self.memory.position if self.memory.keeps_position else None

    async def send(self, batch: Batch) -> Answer:
        mood = next(self.memory.moods, CALM)
        if self.memory.keeps_position and self.memory.position and batch.end <= self.memory.position:
            return Delivered()
        if mood == RETRY:
            return Retry("later", after_seconds=0.0)
        if mood == RAISE:
            raise ConnectionError("gone")
        if mood == NONSENSE:
            return "fine"  # type: ignore[return-value]
        if mood == OUT_OF_RANGE:
            return Rejected({len(batch.records): "no such record"})
        return self._judge(batch, mood)

    def _judge(self, batch: Batch, mood: int) -> Answer:
        rows = [record for record in batch.records if isinstance(record, StepMetrics)]
        if len(rows) == 1 and rows[0].run_id == POISON:
            self.memory.refused.add(rows[0].row_step)
        if any(row.run_id == POISON for row in rows):
            return Poisoned("cannot be stored")
        if mood == STORE_AND_RAISE and any(row.run_id == BAD for row in rows):
            return Retry("later")
        self.memory.ends.append(batch.end)
        self.memory.position = batch.end
        self.memory.stored.update(row.row_step for row in rows if row.run_id == GOOD)
        self.memory.ignored.update(row.row_step for row in rows if row.run_id == IGNORED)
        if mood == STORE_AND_RAISE:
            self.memory.stored_without_saying += 1
            raise TimeoutError("the answer was lost")
        ignored = sum(row.run_id == IGNORED for row in rows)
        bad = {index: "wrong type" for index, row in enumerate(rows) if row.run_id == BAD}
        self.memory.refused.update(rows[index].row_step for index in bad)
        return Rejected(bad, ignored) if bad else Delivered(ignored)


class World:
    """A pipeline that can be restarted. Sink b keeps its own position and has a filter, sink c is optional."""

    def __init__(self, folder: Path, a: Memory, b: Memory, c: Memory, limit: int) -> None:
        self.folder, self.a, self.b, self.c, self.limit = folder, a, b, c, limit
        self.dropped = 0
        self.accepted: dict[int, tuple[str, str]] = {}
        self.next_step = 0
        self.pipeline = self._build()

    def _build(self) -> Pipeline:
        limits = BatchLimits(max_records=self.limit, max_wait_seconds=0.0)

        def slot(name: str, memory: Memory, *, required: bool = True, sources: list[str] | None = None) -> SinkSlot:
            wanted = RecordFilter(data_sources=sources or [])
            sink = Moody(memory)
            return SinkSlot(name=name, sink=sink, required=required, limits=limits, delivery=AT_ONCE, filter=wanted)

        slots = [slot("a", self.a), slot("b", self.b, sources=["wandb"]), slot("c", self.c, required=False)]
        spool = Spool(self.folder / "p.spool", max_bytes=10_000, max_dead_letter_bytes=10_000_000)
        return Pipeline("p", spool, slots, metrics=SelfMetrics())

    async def submit(self, items: list[tuple[str, str]]) -> None:
        records: list[Record] = []
        for nature, source in items:
            origin = Origin(pod_name="p")
            records.append(
                StepMetrics(
                    origin=origin, data_source=source, run_id=nature, row_step=self.next_step, values={"x": 1.0}
                )
            )
            self.next_step += 1
        try:
            await self.pipeline.submit(records)
        except Overloaded:
            return
        for record, item in zip(records, items, strict=True):
            assert isinstance(record, StepMetrics)
            self.accepted[record.row_step] = item

    async def restart(self) -> None:
        await self.stop()
        self.pipeline = self._build()
        await self.pipeline.start()

    async def stop(self) -> None:
        await self.pipeline.stop(0.0)
        self.check_ledgers()
        self.dropped += self.pipeline.senders[2].ledger.dropped.get("spool_full", 0)

    def check_ledgers(self) -> None:
        for sender, status in zip(self.pipeline.senders, self.pipeline.pipeline_status().sinks, strict=True):
            assert sender.ledger.sink_difference(status.pending_records) == 0, status

    async def settle(self) -> None:
        await until(lambda: all(sink.pending_records == 0 for sink in self.pipeline.pipeline_status().sinks))
        self.check_ledgers()


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), 240)


async def run_world(world: World, steps: list[tuple[str, list[tuple[str, str]] | None]]) -> None:
    await world.pipeline.start()
    for name, items in steps:
        if name == "submit" and items is not None:
            await world.submit(items)
        elif name == "restart":
            await world.restart()
        elif name == "settle":
            await world.settle()
        else:
            await asyncio.sleep(0.002)
    await world.settle()
    await check_everything_is_accounted_for(world)
    await world.stop()
    found = world.c
    seen = set(found.stored) | set(found.ignored) | found.refused
    assert seen <= set(world.accepted)
    # A batch whose answer was lost and that was then overtaken counts as dropped although it is there.
    surplus = len(seen) + world.dropped - len(world.accepted)
    assert surplus == 0 or (found.stored_without_saying and surplus > 0)


async def check_everything_is_accounted_for(world: World) -> None:
    for name, memory in (("a", world.a), ("b", world.b)):
        mine = {step: nature for step, (nature, source) in world.accepted.items() if name == "a" or source != NOT_FOR_B}
        letters = await world.pipeline.dead_letters.entries(name, limit=100_000)
        dead = Counter(letter.record["row_step"] for letter in letters)
        again = memory.stored_without_saying and not memory.keeps_position
        expected = {kind: sorted(step for step, nature in mine.items() if nature == kind) for kind in (GOOD, IGNORED)}
        assert sorted(memory.stored) == expected[GOOD]
        assert sorted(memory.ignored) == expected[IGNORED]
        assert again or set(memory.stored.values()) <= {1}
        assert sorted(dead) == sorted(step for step, nature in mine.items() if nature in (POISON, BAD))
        assert again or set(dead.values()) <= {1}
        assert memory.keeps_position is False or memory.ends == sorted(set(memory.ends))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=operations,
    moods_a=moods,
    moods_b=moods,
    down_c=st.integers(0, 150),
    limit=st.sampled_from([1, 3, 10, 1000]),
)
def test_every_record_is_delivered_or_refused_or_filtered_and_the_ledgers_add_up(
    steps: list[tuple[str, list[tuple[str, str]] | None]],
    moods_a: list[int],
    moods_b: list[int],
    down_c: int,
    limit: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        a, b = Memory(moods_a, keeps_position=False), Memory(moods_b, keeps_position=True)
        c = Memory([RETRY] * down_c, keeps_position=False)
        asyncio.run(run_world(World(Path(folder), a, b, c, limit), steps))
