"""Commits that wait for the disk, and those in memory, which wait for nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lens_core.delivery.spool.engine import SpoolEngine
from lens_core.delivery.spool.threads import CommitLoop, CommitThread

SYNCED, NOT_SYNCED = 2, 1  # as `PRAGMA synchronous` tells FULL and NORMAL


def level(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA synchronous").fetchone()[0])


class Bench:
    """A commit thread on a real file, and the time that it sees."""

    def __init__(self, path: Path) -> None:
        self.now = 100.0
        self.engine = SpoolEngine(
            path, {"a": True}, max_bytes=1 << 20, max_dead_letter_bytes=1 << 20, notify=lambda: None
        )
        self.engine.open()
        self.thread = CommitThread("t", asyncio.get_running_loop(), self.engine, clock=lambda: self.now)

    async def level(self, *, repeatable: bool) -> int:
        return await self.thread.submit(level, repeatable=repeatable)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "x.spool")
    yield made
    await made.thread.stop()
    made.engine.close()


async def test_what_may_not_be_lost_is_synced_every_time(bench: Bench) -> None:
    assert [await bench.level(repeatable=False) for _ in range(3)] == [SYNCED] * 3


async def test_what_may_be_done_again_is_synced_once_a_second(bench: Bench) -> None:
    assert [await bench.level(repeatable=True) for _ in range(3)] == [SYNCED, NOT_SYNCED, NOT_SYNCED]
    bench.now += 1.0
    assert [await bench.level(repeatable=True) for _ in range(2)] == [SYNCED, NOT_SYNCED]


async def test_a_synced_commit_brings_those_before_it_to_the_disk(bench: Bench) -> None:
    assert await bench.level(repeatable=True) == SYNCED
    bench.now += 0.9
    assert await bench.level(repeatable=False) == SYNCED
    bench.now += 0.9
    assert await bench.level(repeatable=True) == NOT_SYNCED


async def test_one_that_may_not_be_lost_has_its_whole_group_synced(bench: Bench) -> None:
    assert await bench.level(repeatable=True) == SYNCED
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    blocking = bench.thread.submit(lambda _: asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(20))
    group = [bench.thread.submit(level, repeatable=repeatable) for repeatable in (True, False, True)]
    gate.set()
    await blocking
    assert await asyncio.gather(*group) == [SYNCED] * 3


class Memory:
    """A commit loop on a database in memory."""

    def __init__(self) -> None:
        self.groups = 0
        self.engine = SpoolEngine(
            None, {"a": True}, max_bytes=1 << 20, max_dead_letter_bytes=1 << 20, notify=self.count
        )
        self.engine.open()
        self.committer = CommitLoop(asyncio.get_running_loop(), self.engine)

    def count(self) -> None:
        self.groups += 1

    def keep(self, key: str) -> asyncio.Future[object]:
        return self.committer.submit(
            lambda connection: connection.execute("INSERT INTO state VALUES (?, ?)", (key, b""))
        )

    async def keys(self) -> list[str]:
        rows = await self.committer.submit(lambda connection: connection.execute("SELECT key FROM state").fetchall())
        return [row[0] for row in rows]


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    made = Memory()
    yield made
    await made.committer.stop()
    made.engine.close()


async def test_in_memory_what_is_queued_at_once_is_one_group(memory: Memory) -> None:
    await asyncio.gather(*(memory.keep(key) for key in "abc"))
    assert memory.groups == 1
    assert await memory.keys() == ["a", "b", "c"]
    assert memory.committer.queued_bytes == 0


async def test_in_memory_a_job_that_fails_takes_no_other_with_it(memory: Memory) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO state VALUES ('lost', '')")
        raise ValueError("no")

    outcomes = await asyncio.gather(
        memory.keep("a"), memory.committer.submit(fail), memory.keep("b"), return_exceptions=True
    )
    assert isinstance(outcomes[1], ValueError)
    assert await memory.keys() == ["a", "b"]


async def test_in_memory_what_is_queued_at_the_stop_is_done(memory: Memory) -> None:
    kept = memory.keep("a")
    await memory.committer.stop()
    await kept
