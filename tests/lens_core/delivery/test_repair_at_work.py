"""A file that loses batches while sinks are given them: every record is counted once, and none waits unseen."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import BatchLimits
from lens_core.delivery.spool.batches import Chunk
from lens_core.delivery.spool.spool import Spool
from tests.generated import examples

SMALL = BatchLimits(max_records=20)
PER_BATCH = 10
BODY = b"x" * 100

DEED = st.sampled_from(["append", "append", "append", "peek", "hand out", "settle", "give up", "lose", "mend"])


class World:
    """A spool with one sink, and what the sink's sender holds."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.peeked: Chunk | None = None
        self.held: list[Chunk] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.delivered = 0

    async def do(self, deed: str, number: int) -> None:
        spool = self.spool
        if deed == "append":
            await spool.append(BODY, PER_BATCH)
        elif deed == "peek":
            self.peeked = await spool.peek("a", SMALL)
        elif deed == "hand out":
            peeked, self.peeked = self.peeked, None
            chunk = peeked if peeked is not None and spool.hand_out("a", peeked) else await spool.read_chunk("a", SMALL)
            if chunk is not None:
                self.held.append(chunk)
        elif deed == "settle" and self.held:
            chunk = self.held.pop(0)
            await spool.advance("a", chunk.end, chunk.records, chunk.size)
            self.delivered += chunk.records
        elif deed == "give up":
            await spool.return_batches("a")
            del self.held[:]
        elif deed == "lose":
            await spool.run_in_writer(
                lambda c: c.execute("DELETE FROM batches WHERE id % 3 = ?", (number % 3,)) and None
            )
            await self.mend()
        elif deed == "mend":
            await self.mend()
        self.add_up()

    async def mend(self) -> None:
        self.spool.engine._repair_wanted = True
        await self.spool.run_in_writer(lambda connection: None)

    def add_up(self) -> None:
        snapshot = self.spool.sink_state("a").take_snapshot()
        for key, count in snapshot.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        dropped = sum(count for (name, _), count in self.counts.items() if name == "dropped")
        assert self.counts.get(("delivered", ""), 0) == self.delivered
        assert self.counts.get(("accepted", ""), 0) == self.delivered + dropped + snapshot.pending.records

    async def drain(self) -> None:
        for _ in list(self.held):
            await self.do("settle", 0)
        while self.spool.pending("a").records:
            await self.do("hand out", 0)
            assert self.held, "records are pending that nobody is given"
            await self.do("settle", 0)
        assert await self.spool.peek("a", SMALL) is None, "a batch waits that is not pending"


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(DEED, st.integers(0, 2)), max_size=25))
def test_every_record_is_counted_once(deeds: list[tuple[str, int]]) -> None:
    async def live() -> None:
        with tempfile.TemporaryDirectory() as folder:
            spool = Spool(Path(folder) / "x.spool")
            await spool.open({"a": True})
            world = World(spool)
            for deed, number in deeds:
                await world.do(deed, number)
            await world.drain()
            await spool.close()

    asyncio.run(live())


async def test_what_is_with_the_sink_while_the_file_loses_it_is_delivered_and_not_dropped(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "x.spool")
    await spool.open({"a": True})
    world = World(spool)
    deeds: list[Any] = ["append", "hand out", "append", "lose", "settle"]
    for deed in deeds:
        await world.do(deed, 1)
    assert spool.pending("a").records == PER_BATCH
    await world.drain()
    assert {key: count for key, count in world.counts.items() if count} == {("accepted", ""): 20, ("delivered", ""): 20}
    await spool.close()
