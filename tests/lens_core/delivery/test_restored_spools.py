"""A data directory that is put back from a copy, or used twice: what is accepted afterwards reaches every sink."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Answer, Batch, BatchLimits, Delivered, NoSettings, Position, Record, Retry, Sink, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.pipeline.pipeline import Pipeline
from tests.generated import examples
from tests.lens_core.delivery.test_sender import AT_ONCE, context, rows, until


class Database:
    """A store that outlives all data directories: rows, and the position of each spool, as in PostgreSQL."""

    def __init__(self) -> None:
        self.is_up = True
        self.rows: Counter[int] = Counter()
        self.positions: dict[str, Position] = {}


class ExactlyOnce(Sink):
    """Writes rows and position together, and believes its own position."""

    name = "exactly_once"
    accepts = (StepMetrics,)

    def __init__(self, database: Database) -> None:
        super().__init__(NoSettings(), context())
        self.database = database

    async def position(self, spool_id: str) -> Position | None:
        if not self.database.is_up:
            raise ConnectionError("the database is away")
        return self.database.positions.get(spool_id)

    async def send(self, batch: Batch) -> Answer:
        if not self.database.is_up:
            return Retry("the database is away")
        known = self.database.positions.get(batch.spool_id)
        if known is not None and known >= batch.end:
            return Delivered()
        self.database.rows.update(row.row_step for row in batch.records if isinstance(row, StepMetrics))
        self.database.positions[batch.spool_id] = batch.end
        return Delivered()


class World:
    """Data directories `0`, `1`, …, copies of them, and one database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = Database()
        self.directories: list[set[int]] = [set()]
        self.copies: list[tuple[Path, set[int]]] = []
        self.next_step = 0
        (folder / "0").mkdir()

    async def run(self, index: int, batches: int, *, away: bool) -> None:
        """Start a daemon there, accept batches, and stop it; with the database away nothing is delivered."""
        self.database.is_up = not away
        limits = BatchLimits(max_records=5, max_wait_seconds=0.0)
        slot = SinkSlot(name="db", sink=ExactlyOnce(self.database), limits=limits, delivery=AT_ONCE)
        pipeline = Pipeline("p", Spool(self.folder / str(index) / "p.spool"), [slot], metrics=SelfMetrics())
        await pipeline.start()
        for _ in range(batches):
            accepted: list[Record] = rows(2, first=self.next_step)
            await pipeline.submit(accepted)
            self.directories[index] |= {self.next_step, self.next_step + 1}
            self.next_step += 2
        if not away:
            await until(lambda: pipeline.pipeline_status().sinks[0].pending_records == 0)
        await pipeline.stop(0.0 if away else 5.0)
        if not away:
            assert self.directories[index] <= set(self.database.rows)

    def copy(self, index: int) -> None:
        """Keep a copy of a directory."""
        to = self.folder / f"copy-{len(self.copies)}"
        shutil.copytree(self.folder / str(index), to)
        self.copies.append((to, set(self.directories[index])))

    def restore(self, number: int, *, beside: bool, index: int) -> None:
        """Put a copy in place of a directory, or beside it as another one."""
        copy, accepted = self.copies[number % len(self.copies)]
        if beside:
            index = len(self.directories)
            self.directories.append(set())
        else:
            shutil.rmtree(self.folder / str(index))
        shutil.copytree(copy, self.folder / str(index))
        self.directories[index] = set(accepted)


RUN = st.tuples(st.just("run"), st.integers(0, 3), st.integers(0, 4), st.booleans())
COPY = st.tuples(st.just("copy"), st.integers(0, 3), st.just(0), st.just(False))
RESTORE = st.tuples(st.just("restore"), st.integers(0, 3), st.integers(0, 3), st.booleans())


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.one_of(RUN, RUN, COPY, RESTORE), max_size=10))
def test_whatever_a_directory_accepted_is_stored_once(deeds: list[tuple[str, int, int, bool]]) -> None:
    async def live() -> None:
        with tempfile.TemporaryDirectory() as folder:
            world = World(Path(folder))
            for deed, where, number, flag in deeds:
                index = where % len(world.directories)
                if deed == "run":
                    await world.run(index, number, away=flag)
                elif deed == "copy":
                    world.copy(index)
                elif world.copies:
                    world.restore(number, beside=flag, index=index)
            for index in range(len(world.directories)):
                await world.run(index, 1, away=False)
            is_copied = any(deed == "restore" for deed, *_ in deeds)
            assert is_copied or set(world.database.rows.values()) == {1}

    asyncio.run(live())


async def test_an_older_copy_that_starts_while_the_database_is_away(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.run(0, 2, away=False)
    world.copy(0)
    await world.run(0, 20, away=False)
    world.restore(0, beside=False, index=0)
    await world.run(0, 5, away=True)
    await world.run(0, 5, away=True)
    await world.run(0, 0, away=False)
    assert set(world.database.rows.values()) == {1}
    assert len(world.database.rows) == 2 * (2 + 20 + 10)


async def test_epochs_whose_batches_are_gone_are_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(5):
        await world.run(0, 1, away=True)
    for _ in range(5):
        await world.run(0, 1, away=False)
    spool = Spool(tmp_path / "0" / "p.spool")
    await spool.open({"db": True})
    assert spool.earlier_epochs() == []
    await spool.close()
