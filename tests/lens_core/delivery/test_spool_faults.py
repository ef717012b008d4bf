"""Faults that must not lose anything: kill -9, a torn log, a damaged file, a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lens_core import BatchLimits, Overloaded, Position
from lens_core.delivery.spool.spool import Spool
from tests.lens_core.delivery.noise import noise

ALL = BatchLimits(max_records=10_000_000, max_bytes=1 << 40)
BODY = 5_000
# Incompressible, so that a batch takes as many bytes in the file.
FILLING = noise(BODY - 10)

# Appends as fast as it can and says each number only after the spool has it.
APPENDING = """
import asyncio, sys
from pathlib import Path
from lens_core.delivery.spool.spool import Spool

async def one(spool, worker):
    number = 0
    while True:
        name = f"{worker}-{number}"
        await spool.append(name.encode().ljust(int(sys.argv[2]), b"."), 1, state={f"last-{worker}": name.encode()})
        print(name, flush=True)
        number += 1

async def main():
    spool = Spool(Path(sys.argv[1]))
    await spool.open({"a": True})
    await asyncio.gather(*(one(spool, worker) for worker in range(4)))

asyncio.run(main())
"""


def append_and_kill(path: Path, count: int) -> list[str]:
    """Return the records that were acknowledged to a child process before it was killed."""
    with subprocess.Popen([sys.executable, "-c", APPENDING, str(path), str(BODY)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        said = [child.stdout.readline().decode().strip() for _ in range(count)]
        child.send_signal(signal.SIGKILL)
        said += [line.decode().strip() for line in child.stdout if line.endswith(b"\n")]
    return said


async def names(path: Path, sinks: dict[str, bool] | None = None) -> list[str]:
    spool = Spool(path)
    await spool.open(sinks or {"a": True})
    chunk = await spool.read_chunk("a", ALL)
    await spool.close()
    return [segment.body.rstrip(b".").decode() for segment in chunk.segments] if chunk else []


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    said: list[str] = []
    for _ in range(3):
        path.unlink(missing_ok=True)
        path.with_name("x.spool-wal").unlink(missing_ok=True)
        said = append_and_kill(path, 200)
        found = await names(path)
        assert set(said) <= set(found)
        assert len(found) == len(set(found)) <= len(said) + 4
    spool = Spool(path)
    await spool.open({"a": True})
    state = await spool.state()
    last = {name.partition("-")[0]: name for name in await names_in_order(spool)}
    assert {key: value.decode() for key, value in state.items()} == {f"last-{w}": name for w, name in last.items()}
    await spool.close()


async def names_in_order(spool: Spool) -> list[str]:
    chunk = await spool.read_chunk("a", ALL)
    assert chunk is not None
    return [segment.body.rstrip(b".").decode() for segment in chunk.segments]


@pytest.mark.parametrize("harm", ["cut", "garbage", "garbled last frame"])
async def test_a_torn_log_loses_nothing_that_was_complete(tmp_path: Path, harm: str) -> None:
    path, wal = tmp_path / "x.spool", tmp_path / "x.spool-wal"
    said = append_and_kill(path, 100)
    size = wal.stat().st_size
    before = await asyncio.to_thread(copy_and_count, path, tmp_path / "copy")
    with wal.open("r+b") as file:
        # A frame that was being written when the power failed: behind the last commit, or the last commit itself.
        if harm == "cut":
            file.truncate(size - 100)
        elif harm == "garbage":
            file.seek(0, os.SEEK_END)
            file.write(os.urandom(4096 + 24 + 100))
        else:
            file.seek(size - 2000)
            file.write(os.urandom(500))
    found = await names(path)
    assert found == before[: len(found)]
    # One commit holds at most the four appends that were waiting.
    assert len(found) >= len(before) - 4
    assert set(said[:-4]) <= set(found)


def copy_and_count(path: Path, to: Path) -> list[str]:
    to.mkdir()
    for part in path.parent.glob("x.spool*"):
        if part.is_file():
            shutil.copy(part, to / part.name)
    return asyncio.run(names(to / path.name))


async def written(path: Path, count: int, sinks: dict[str, bool]) -> str:
    spool = Spool(path)
    await spool.open(sinks)
    for number in range(count):
        await spool.append((b"%d" % number).ljust(10) + FILLING, 10, state={"last": b"%d" % number})
    await spool.advance("a", Position(2, 10), 20)
    identity = spool.spool_id
    await spool.close()
    return identity


def page_of(path: Path, marker: bytes) -> int:
    return path.read_bytes().find(marker)


async def test_a_damaged_page_costs_only_what_lay_on_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x.spool"
    identity = await written(path, 200, {"a": True, "b": True})
    with path.open("r+b") as file:
        file.seek(len(path.read_bytes()) // 2 // 4096 * 4096)
        file.write(os.urandom(8 * 4096))
    spool = Spool(path)
    await spool.open({"a": True, "b": True})
    assert spool.spool_id == identity
    assert (await spool.state())["last"] == b"199"
    good = await readable(spool, "a")
    assert len(good) >= 180
    assert good == sorted(set(good))
    sink_state = spool.sink_state("a")
    damaged = sink_state.take_snapshot().counts["dropped", "spool_damaged"]
    assert spool.pending("a").records + damaged == sink_state.recovered
    await spool.append(b"after", 1)
    chunk = await spool.read_chunk("a", ALL)
    assert chunk is not None
    assert chunk.end.batch > 200
    await spool.close()
    if damaged:
        assert list(tmp_path.glob("x.spool.damaged-*"))
        assert "was damaged" in caplog.text


async def readable(spool: Spool, sink: str) -> list[int]:
    chunk = await spool.read_chunk(sink, ALL)
    assert chunk is not None
    whole = (segment for segment in chunk.segments if segment.body.endswith(FILLING))
    return [int(segment.body[:10]) for segment in whole]


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("place", ["root of the batches", "header", "everything", "half of it"])
async def test_a_damaged_file_never_keeps_the_spool_from_starting(
    tmp_path: Path, place: str, checked: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not checked:
        monkeypatch.setattr("lens_core.delivery.spool.repair.CHECK_WHOLE_FILE_BYTES", 0)
    path = tmp_path / "x.spool"
    await written(path, 100, {"a": True})
    size = path.stat().st_size
    with path.open("r+b") as file:
        if place == "header":
            file.write(os.urandom(4096))
        elif place == "everything":
            file.write(os.urandom(size))
        elif place == "half of it":
            file.truncate(size // 2)
        else:
            file.seek(4096 * 3)
            file.write(os.urandom(4096 * 4))
    spool = Spool(path)
    await spool.open({"a": True})
    await spool.append(b"after", 1)
    chunk = await spool.read_chunk("a", ALL)
    assert chunk is not None
    assert chunk.segments[-1].body == b"after"
    assert "was damaged" in caplog.text
    await spool.close()
    assert len(list(tmp_path.glob("x.spool.damaged-*"))) >= 1
    assert await names(path)


async def test_damage_that_shows_while_reading_is_mended_at_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.spool"
    await written(path, 200, {"a": True, "b": True})
    spool = Spool(path)
    await spool.open({"a": True, "b": True})
    before = spool.pending("b").records
    garble_interior_pages(path)
    await spool.run_in_writer(lambda connection: connection.execute("PRAGMA shrink_memory").fetchall())

    async def read_in_the_end() -> list[int]:
        while True:
            with contextlib.suppress(Overloaded):
                return await readable(spool, "b")
            await asyncio.sleep(0.01)

    good = await asyncio.wait_for(read_in_the_end(), 240)
    assert "was damaged" in caplog.text
    snapshot = spool.sink_state("b").take_snapshot()
    assert snapshot.counts["dropped", "spool_damaged"] + snapshot.pending.records == before
    assert len(good) > 100
    await spool.append(b"after", 1)
    await spool.close()


def garble_interior_pages(path: Path) -> None:
    """Leaf pages of the table of batches: those with a body's beginning on them."""
    data = path.read_bytes()
    with path.open("r+b") as file:
        for number in (60, 61, 62):
            place = data.find(b"%-10d" % number + FILLING[:100])
            assert place > 0
            file.seek(place // 4096 * 4096)
            file.write(b"\xff" * 4096)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 megabytes, where one may be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("does not apply: no right to mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_refuses_and_recovers(small_disk: Path) -> None:
    spool = Spool(small_disk / "x.spool", max_bytes=1 << 30)
    await spool.open({"a": True})
    taken = await fill_disk(spool)
    assert taken > 5
    assert spool.pending("a").records == taken
    with pytest.raises(Overloaded, match="cannot be written"):
        spool.ensure_room()  # which readiness rests on
    chunk = await spool.read_chunk("a", ALL)
    assert chunk is not None
    assert len(chunk.segments) == taken
    await spool.advance("a", chunk.end, taken, taken * 50_000)
    await asyncio.wait_for(append_in_the_end(spool), 240)
    spool.ensure_room()
    chunk = await spool.read_chunk("a", ALL)
    assert chunk is not None
    assert [segment.body for segment in chunk.segments] == [noise(50_000, "y")]
    assert spool.pending("a").records == 1
    await spool.close()


async def test_a_disk_that_somebody_else_has_filled(small_disk: Path) -> None:
    spool = Spool(small_disk / "x.spool", max_bytes=1 << 30)
    await spool.open({"a": True})
    for _ in range(20):
        await spool.append(noise(50_000), 1)
    with (small_disk / "junk").open("wb", buffering=0) as junk, contextlib.suppress(OSError):
        while True:
            junk.write(b"j" * 4096)
    assert await fill_disk(spool) < 60
    chunk = await spool.read_chunk("a", ALL)
    assert chunk is not None
    with contextlib.suppress(Overloaded):  # the first try gives up the reserve
        await spool.advance("a", chunk.end, chunk.records, 1)
    if spool.pending("a").records:
        await spool.advance("a", chunk.end, chunk.records, 1)
    assert spool.pending("a").records == 0
    (small_disk / "junk").unlink()
    await asyncio.wait_for(append_in_the_end(spool), 240)
    await spool.close()


async def fill_disk(spool: Spool) -> int:
    taken = 0
    while taken < 10_000:
        try:
            await spool.append(noise(50_000), 1)
        except Overloaded:
            break
        taken += 1
    assert "cannot be written" in spool.engine.refusal
    return taken


async def append_in_the_end(spool: Spool) -> None:
    while True:
        with contextlib.suppress(Overloaded):
            return await spool.append(noise(50_000, "y"), 1)
        await asyncio.sleep(0.02)


LIMITED = """
import asyncio, os, resource, sys
from pathlib import Path
from lens_core import BatchLimits, Overloaded
from lens_core.delivery.spool.spool import Spool

async def main():
    spool = Spool(Path(sys.argv[1]))
    await spool.open({"a": True})
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    taken = 0
    try:
        while taken < 1000:
            await spool.append(os.urandom(50_000), 1)
            taken += 1
    except Overloaded as error:
        print("refused", error.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    while True:
        try:
            await spool.append(b"y", 1)
            break
        except Overloaded:
            await asyncio.sleep(0.05)
    chunk = await spool.read_chunk("a", BatchLimits(max_records=10_000, max_bytes=1 << 30))
    print(len(chunk.segments) == taken + 1 and taken < 1000)
    await spool.close()

asyncio.run(main())
"""


def test_a_file_that_may_not_grow_refuses_and_recovers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "x.spool")], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["True"], done.stdout + done.stderr
    assert "refused the spool cannot be written" in done.stdout


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    from lens_core.base.errors import SpoolError

    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SpoolError, match="cannot be opened"):
        await Spool(tmp_path / "file" / "x.spool").open({"a": True})
