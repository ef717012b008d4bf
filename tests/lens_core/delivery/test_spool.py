"""The spool: durable order, limits, cursors, room, state; on disk and in memory."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lens_core import BatchLimits, Overloaded, Position
from lens_core.base.errors import SpoolError
from lens_core.delivery.spool.spool import Chunk, NewBatch, Spool
from tests.lens_core.delivery.noise import noise

WIDE = BatchLimits(max_records=1_000_000, max_bytes=1 << 30)
ONE = {"a": True}
TWO = {"a": True, "b": False}


async def opened(path: Path | None, sinks: dict[str, bool], max_bytes: int = 1 << 20) -> Spool:
    spool = Spool(path, max_bytes=max_bytes)
    await spool.open(sinks)
    return spool


async def bodies(spool: Spool, sink: str, limits: BatchLimits = WIDE) -> list[bytes]:
    chunk = await spool.read_chunk(sink, limits)
    return [segment.body for segment in chunk.segments] if chunk else []


async def done(spool: Spool, sink: str, chunk: Chunk) -> None:
    await spool.advance(sink, chunk.end, chunk.records, sum(segment.size for segment in chunk.segments))


async def drain(spool: Spool, sink: str) -> list[bytes]:
    out = []
    while (chunk := await spool.read_chunk(sink, WIDE)) is not None:
        out += [segment.body for segment in chunk.segments]
        await done(spool, sink, chunk)
    return out


def counted(spool: Spool, sink: str, name: str, reason: str = "") -> int:
    """Return the counts of the spool since the last call."""
    return spool.sink_state(sink).take_snapshot().counts.get((name, reason), 0)


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), 240)


@pytest.fixture(params=["disk", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "x.spool" if request.param == "disk" else None


async def test_each_sink_reads_everything_in_order(path: Path | None) -> None:
    spool = await opened(path, TWO)
    await asyncio.gather(*(spool.append(b"%d" % number, 1) for number in range(50)))
    expected = [b"%d" % number for number in range(50)]
    assert await drain(spool, "a") == expected
    assert spool.pending("b").records == 50
    assert await drain(spool, "b") == expected
    assert spool.pending("b") == (0, 0, None)
    await spool.close()


async def test_whole_batches_up_to_the_limits(path: Path | None) -> None:
    spool = await opened(path, ONE)
    for _ in range(5):
        await spool.append(noise(100), 10)
    chunk = await spool.read_chunk("a", BatchLimits(max_records=35, max_bytes=1 << 20))
    assert chunk is not None
    assert (chunk.records, chunk.start, chunk.end) == (30, Position(0, 0), Position(3, 10))
    chunk = await spool.read_chunk("a", BatchLimits(max_records=1000, max_bytes=250))
    assert chunk is not None
    assert chunk.records == 20
    await spool.close()


async def test_a_batch_that_is_too_large_is_read_in_parts(path: Path | None) -> None:
    spool = await opened(path, ONE)
    await spool.append(b"large", 25)
    await spool.append(b"next", 1)
    ends = []
    while (chunk := await spool.read_chunk("a", BatchLimits(max_records=10))) is not None:
        ends.append(chunk.end)
        await done(spool, "a", chunk)
    assert ends == [(1, 10), (1, 20), (2, 1)]
    assert spool.pending("a") == (0, 0, None)
    await spool.close()


async def test_a_batch_for_one_sink_is_seen_by_that_one_alone_and_holds_nobody(path: Path | None) -> None:
    spool = await opened(path, TWO)
    await spool.append(b"both", 1)
    await spool.append(b"only b", 2, only_sink="b")
    assert spool.pending("a").records == 1
    assert await drain(spool, "a") == [b"both"]
    assert await drain(spool, "b") == [b"both", b"only b"]
    await until(lambda: spool.spool_status().bytes == 0)
    await spool.close()


async def test_only_a_file_holds_bodies_packed(tmp_path: Path) -> None:
    body = b"the same again, " * 1000
    sizes = {}
    for path in (tmp_path / "x.spool", None):
        spool = await opened(path, ONE)
        await spool.append(body, 1)
        assert await drain(spool, "a") == [body]
        await spool.append(body, 1)
        sizes[path is None] = spool.spool_status().bytes
        assert spool.pending("a").bytes == len(body)
        await spool.close()
    assert sizes[False] < len(body) / 10 < len(body) <= sizes[True]


async def test_what_every_cursor_has_passed_is_deleted_and_the_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    spool = await opened(path, TWO, max_bytes=1 << 30)
    body = noise(1_000_000)
    for _ in range(40):
        await spool.append(body, 1)
    await drain(spool, "a")
    assert spool.spool_status().bytes > 40_000_000
    await drain(spool, "b")
    await until(lambda: spool.spool_status().bytes == 0)
    await until(lambda: path.stat().st_size < 5_000_000)
    await spool.close()


async def test_what_a_dead_process_did_not_tidy_is_tidied_after_the_start(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    spool = await opened(path, ONE, max_bytes=1 << 30)
    for _ in range(20):
        await spool.append(noise(1_000_000), 1)
    await spool.close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE cursors SET batch = 20, offset = 1")
    connection.close()
    spool = await opened(path, ONE, max_bytes=1 << 30)
    assert spool.pending("a").records == 0
    await until(lambda: spool.spool_status().bytes == 0)
    await until(lambda: path.stat().st_size < 5_000_000)
    await spool.close()


async def test_positions_and_state_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    spool = await opened(path, ONE)
    identity = spool.spool_id
    await spool.append(b"1", 1, state={"stream": b"7", "gone": b"x"})
    await spool.append(b"2", 4, state={"gone": None})
    chunk = await spool.read_chunk("a", BatchLimits(max_records=1))
    assert chunk is not None
    await done(spool, "a", chunk)
    await spool.advance("a", Position(2, 3), 3)
    await spool.close()

    spool = await opened(path, ONE)
    assert spool.spool_id == identity
    assert await spool.state() == {"stream": b"7"}
    assert spool.sink_state("a").recovered == spool.pending("a").records == 1
    left = await spool.read_chunk("a", WIDE)
    assert left is not None
    assert [(s.first, s.last, s.body) for s in left.segments] == [(3, 4, b"2")]
    await spool.close()


async def test_a_new_sink_begins_at_the_oldest_batch_and_a_removed_one_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    spool = await opened(path, ONE)
    await spool.append(b"1", 1)
    await spool.close()

    spool = await opened(path, {"new": True})
    assert await drain(spool, "new") == [b"1"]
    await until(lambda: spool.spool_status().bytes == 0)
    await spool.close()


async def test_numbers_of_batches_only_grow(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    for expected in (1, 2, 3):
        spool = await opened(path, ONE)
        await spool.append(b"x", 1)
        chunk = await spool.read_chunk("a", WIDE)
        assert chunk is not None
        assert chunk.end == Position(expected, 1)
        await done(spool, "a", chunk)
        await spool.close()


async def test_full_because_of_a_required_sink(path: Path | None) -> None:
    spool = await opened(path, TWO, max_bytes=10_000)
    taken = await fill(spool)
    assert 5 < taken <= 10
    with pytest.raises(Overloaded, match="required sink") as refused:
        await spool.append(noise(1000), 1)
    assert refused.value.retry_after_seconds
    with pytest.raises(Overloaded):
        spool.ensure_room()
    assert len(await drain(spool, "a")) == taken
    await spool.append(noise(1000), 1)
    assert spool.pending("a").records == 1
    await spool.close()


async def fill(spool: Spool) -> int:
    taken = 0
    while True:
        try:
            await spool.append(noise(1000), 1)
        except Overloaded:
            return taken
        taken += 1


async def test_full_because_of_an_optional_sink_skips_its_oldest(path: Path | None) -> None:
    spool = await opened(path, TWO, max_bytes=10_000)
    for number in range(30):
        await spool.append(b"%4d" % number * 250, 1)
        assert len(await drain(spool, "a")) == 1
    assert counted(spool, "b", "dropped", "spool_full") + spool.pending("b").records == 30
    left = [int(body[:4]) for body in await drain(spool, "b")]
    assert left == list(range(30 - len(left), 30))
    assert 5 < len(left) < 10
    await spool.close()


async def test_what_an_optional_sink_has_in_flight_is_not_counted_as_dropped(path: Path | None) -> None:
    spool = await opened(path, {"b": False}, max_bytes=10_000)
    for _ in range(4):
        await spool.append(noise(1000), 10)
    chunk = await spool.read_chunk("b", BatchLimits(max_records=20))
    assert chunk is not None
    assert chunk.records == 20
    for _ in range(20):
        await spool.append(noise(1000), 10)
    assert spool.was_overtaken("b", chunk.end)
    pending = spool.pending("b")
    assert counted(spool, "b", "dropped", "spool_full") == 240 - pending.records
    await done(spool, "b", chunk)
    assert spool.pending("b").records == pending.records - 20
    assert len(await drain(spool, "b")) * 10 == pending.records - 20
    assert spool.pending("b") == (0, 0, None)
    await spool.close()


async def test_an_empty_spool_takes_a_batch_of_any_size(path: Path | None) -> None:
    spool = await opened(path, ONE, max_bytes=1000)
    await spool.append(noise(5000), 1)
    with pytest.raises(Overloaded):
        await spool.append(b"y", 1)
    assert await drain(spool, "a") == [noise(5000)]
    await spool.close()


async def test_several_batches_and_their_state_are_one_transaction(path: Path | None) -> None:
    spool = await opened(path, ONE, max_bytes=5_000)
    await spool.append(noise(3000), 1)
    with pytest.raises(Overloaded):
        await spool.append_all([NewBatch(noise(1000, "y"), 1), NewBatch(noise(3000, "z"), 1)], state={"k": b"v"})
    assert await spool.state() == {}
    assert await drain(spool, "a") == [noise(3000)]
    await spool.append_all([], state={"k": b"v"})
    assert await spool.state() == {"k": b"v"}
    await spool.close()


async def test_a_sink_that_has_stored_more_than_its_cursor_says_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    spool = await opened(path, ONE)
    for number in range(5):
        await spool.append(b"%d" % number, 2)
    await spool.close()
    spool = await opened(path, ONE)
    await spool.append(b"later", 1)
    (epoch,) = spool.earlier_epochs()
    assert await spool.skip_to("a", Position(3, 1), epoch) == 5
    assert await bodies(spool, "a") == [b"2", b"3", b"4"]
    await spool.return_batches("a")
    assert await spool.skip_to("a", Position(1, 1), epoch) == 0
    assert spool.pending("a").records == 6
    assert await spool.skip_to("a", Position(1000, 1), epoch) == 5
    assert await bodies(spool, "a") == [b"later"]
    await spool.close()


async def test_a_cancelled_append_is_kept_or_not_but_never_half(path: Path | None) -> None:
    spool = await opened(path, ONE)
    task = asyncio.create_task(spool.append(b"x", 3))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await spool.append(b"y", 1)
    assert counted(spool, "a", "accepted") == spool.pending("a").records
    await spool.close()


async def test_concurrent_appends_share_their_syncs(tmp_path: Path) -> None:
    spool = await opened(tmp_path / "x.spool", ONE)
    commits = 0

    def count_commits(statement: str) -> None:
        nonlocal commits
        commits += statement == "COMMIT"

    await spool.run_in_writer(lambda connection: connection.set_trace_callback(count_commits))
    await asyncio.gather(*(spool.append(b"x", 1) for _ in range(200)))
    assert commits < 60
    await spool.close()


async def test_a_second_process_is_told_who_has_the_spool(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom lens_core.delivery.spool.spool import Spool\n"
        "async def main():\n    spool = Spool(Path(sys.argv[1]))\n    await spool.open({'a': True})\n"
        "    print('open', flush=True)\n    sys.stdin.read()\nasyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(SpoolError, match=f"pid {owner.pid}"):
            await opened(path, ONE)
        owner.kill()
        owner.wait(240)
    spool = await opened(path, ONE)
    await spool.close()


async def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    spool = await opened(path, ONE)
    await spool.run_in_writer(
        lambda connection: connection.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    )
    await spool.close()
    with pytest.raises(SpoolError, match="newer"):
        await opened(path, ONE)


async def test_lag_is_the_age_of_the_oldest_record_that_waits(path: Path | None) -> None:
    now = 1000.0
    spool = Spool(path, clock=lambda: now)
    await spool.open(ONE)
    await spool.append(b"1", 1)
    now = 1005.0
    await spool.append(b"2", 1)
    assert spool.pending("a").oldest_at == 1000.0
    await spool.advance("a", Position(1, 1), 1, 1)
    assert spool.pending("a").oldest_at == 1005.0
    await spool.close()


async def test_nothing_blocks_the_loop(tmp_path: Path) -> None:
    spool = await opened(tmp_path / "x.spool", ONE, max_bytes=1 << 30)
    bodies = [noise(4_000_000) for _ in range(10)]
    of_loop, of_all = time.thread_time(), time.process_time()
    await asyncio.gather(*(spool.append(body, 1) for body in bodies))
    of_loop, of_all = time.thread_time() - of_loop, time.process_time() - of_all
    assert of_loop < of_all / 3, "forty megabytes are packed and written beside the loop"
    await spool.close()
