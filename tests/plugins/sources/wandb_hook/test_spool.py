"""The spool: files, cursors, dead owners, and disks that refuse."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lens_hook import say, spool
from lens_hook.buffer import Counts
from lens_hook.disk_store import DiskStore
from lens_hook.store import MemoryStore
from lens_hook.wire import Line

from tests.generated import examples
from tests.plugins.sources.wandb_hook.environments import Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver

ORIGIN = b'{"pod_name":"p"}'


def row(number: int, size: int = 0) -> Line:
    """An encoded row."""
    record = {"record": "step_metrics", "values": {"loss": number}, "pad": "x" * size}
    return Line(json.dumps(record, separators=(",", ":")).encode(), 1)


def store(directory: Path) -> DiskStore:
    """An empty store."""
    counts = Counts()
    return DiskStore(str(directory), ORIGIN, MemoryStore(ORIGIN, 1 << 20, counts), counts)


def drained(disk: DiskStore, max_lines: int = 7) -> list[int]:
    """Everything in the store, in order."""
    found: list[int] = []
    while (batch := disk.peek(max_lines)) is not None:
        found += [json.loads(line.text)["values"]["loss"] for line in batch.lines]
        disk.done(batch)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40), deadline=None)
@given(st.lists(st.lists(st.integers(0, 200_000), max_size=5) | st.just("read"), max_size=12))
def test_what_goes_in_comes_out_once_and_in_order(tmp_path: Path, script: list[list[int] | str]) -> None:
    disk, written, read = store(tmp_path), 0, []
    for step in script:
        if isinstance(step, str):
            read += drained(disk)
        else:
            disk.append([row(written + index, size) for index, size in enumerate(step)])
            written += len(step)
    read += drained(disk)
    assert read == list(range(written))
    disk.close()
    assert list(tmp_path.iterdir()) == []


def test_a_live_owner_is_left_alone_and_a_dead_one_is_adopted(tmp_path: Path) -> None:
    disk = store(tmp_path)
    disk.append([row(number) for number in range(10)])
    batch = disk.peek(4)
    assert batch is not None
    disk.done(batch)
    assert spool.lock_stale_spools(str(tmp_path), None) == []
    disk.close()
    (stale,) = spool.lock_stale_spools(str(tmp_path), None)
    rest = spool.file_batch(stale, 100, check=True)
    assert [json.loads(line.text)["values"]["loss"] for line in rest.lines] == list(range(4, 10))
    assert rest.origin == ORIGIN
    stale.advance(rest.end)
    assert not stale.waiting()
    stale.close(remove=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", range(1, 40, 6))
def test_a_torn_last_line_is_skipped(tmp_path: Path, cut: int) -> None:
    disk = store(tmp_path)
    disk.append([row(1), row(2)])
    assert disk.path is not None
    path = Path(disk.path)
    disk.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - cut)
    (stale,) = spool.lock_stale_spools(str(tmp_path), None)
    seen = []
    while stale.waiting():
        batch = spool.file_batch(stale, 100, check=True)
        seen += [json.loads(line.text)["values"]["loss"] for line in batch.lines]
        stale.advance(batch.end)
    stale.close(remove=True)
    assert seen == [1]


def test_a_damaged_line_is_left_out_and_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    say.allow_again("damaged")
    disk = store(tmp_path)
    disk.append([row(1), row(2), row(3)])
    path = Path(disk.path or "")
    disk.close()
    lines = path.read_bytes().split(b"\n")
    lines[2] = b"\0" * len(lines[2])  # as a disk leaves a block that was never written
    path.write_bytes(b"\n".join(lines))
    (stale,) = spool.lock_stale_spools(str(tmp_path), None)
    batch = spool.file_batch(stale, 100, check=True)
    stale.close(remove=False)
    assert [json.loads(line.text)["values"]["loss"] for line in batch.lines] == [1, 3]
    assert f"1 damaged lines of {path} are left out" in capfd.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{", b"nonsense\n", b"[]\n", b'{"version":2,"origin":{}}\n', b"\xff\n"])
def test_foreign_files_are_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lens-hook-x-1-1.jsonl").write_bytes(content)
    assert spool.lock_stale_spools(str(tmp_path), None) == []


@pytest.mark.parametrize("cursor", ["", "x", "99999999999999999999", "-5", "3"])
def test_a_damaged_cursor_sends_again_rather_than_losing(tmp_path: Path, cursor: str) -> None:
    disk = store(tmp_path)
    disk.append([row(1)])
    assert disk.path is not None
    path = Path(disk.path)
    disk.close()
    path.with_suffix(".cursor").write_text(cursor)
    (stale,) = spool.lock_stale_spools(str(tmp_path), None)
    assert len(spool.file_batch(stale, 10, check=True).lines) == 1
    stale.close(remove=True)


def test_the_file_shrinks_when_all_is_delivered(tmp_path: Path) -> None:
    disk = store(tmp_path)
    for number in range(3):
        disk.append([row(number, 700_000)])
        drained(disk)
    assert disk.path is not None
    assert os.path.getsize(disk.path) < 1_500_000
    disk.close()


def test_a_directory_that_cannot_be_made_keeps_rows_in_memory(capfd: pytest.CaptureFixture[str]) -> None:
    disk = store(Path("/proc/no/such/place"))
    disk.append([row(1)])
    disk.append([row(2)])
    assert drained(disk) == [1, 2]
    assert capfd.readouterr().err.count("cannot write the spool") == 1


FULL_DISK = """
    import resource, time
    import wandb
    wandb.init(project="p", mode="disabled")
    wandb.log({"loss": 0})
    time.sleep(0.6)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))     # from here on no file grows past 4 kB
    for step in range(1, 500):
        wandb.log({"loss": step})
    time.sleep(0.6)
"""


def test_a_full_disk_loses_nothing_while_the_receiver_lives(
    newest: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "spool")}
    done = newest.run(FULL_DISK, tmp_path, variables)
    assert sorted(value for _, _, value in receiver.points()) == list(range(500))
    assert done.stderr.count("cannot write the spool") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the prefix of a command that sees a file system with these mount options in `small`."""
    folder = tmp_path / "small"
    folder.mkdir()

    def launcher(mount: str) -> list[str]:
        return ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mount} {folder} && exec "$0" "$@"']

    probe = [*launcher("mount -t tmpfs none"), "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("does not apply: this system allows no mounts in a namespace of one's own")
    return launcher


def test_a_disk_that_is_really_full(
    newest: Environment, receiver: Receiver, tmp_path: Path, small_disk: Callable[[str], list[str]]
) -> None:
    script = """
        import time
        import wandb
        wandb.init(project="p", mode="disabled")
        for step in range(2000):
            wandb.log({"loss": step})
            if step % 500 == 0:
                time.sleep(0.3)
    """
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "small")}
    launcher = [*small_disk("mount -t tmpfs -o size=64k none"), newest.python]
    done = newest.run(script, tmp_path, variables, launcher=launcher)
    assert sorted(value for _, _, value in receiver.points()) == list(range(2000))
    assert "No space left on device" in done.stderr


def test_a_read_only_file_system(
    newest: Environment, receiver: Receiver, tmp_path: Path, small_disk: Callable[[str], list[str]]
) -> None:
    small = str(tmp_path / "small")
    variables = {
        "PRIMUS_LENS_API_BASE_URL": receiver.url,
        "PRIMUS_LENS_SPOOL_PATH": f"{small}/spool",
        "PRIMUS_LENS_WANDB_OUTPUT_PATH": f"{small}/local",
        "WANDB_MODE": "disabled",
    }
    launcher = [*small_disk("mount -t tmpfs -o ro none"), newest.python]
    script = """
        import wandb
        wandb.init(project="p")
        for step in range(50):
            wandb.log({"loss": step})
    """
    done = newest.run(script, tmp_path, variables, launcher=launcher)
    assert receiver.points() == [(step, "loss", step) for step in range(50)]
    said = sorted(line.split(":")[1] for line in done.stderr.splitlines() if "lens-hook" in line)
    assert said == [" cannot write " + small + "/local/node_0/rank_0/wandb_metrics.jsonl", SPOOL_REFUSED]
    assert done.stderr.count("Read-only file system") == 2


SPOOL_REFUSED = " cannot write the spool, keeping rows in memory"


def test_a_burst_with_a_spool_loses_nothing(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import time
        import wandb
        from lens_hook import runtime
        wandb.init(project="p", mode="disabled")
        waiting = runtime.get_runtime().buffer.rows
        for step in range(60_000):
            wandb.log({"a": step, "b": 0.5, "c": 1.5, "d": 2.5, "e": 3.5})
            while len(waiting) > 500:    # there is room for a thousand: a busy machine may let the worker wait for long
                time.sleep(0.001)
    """
    variables = {
        "PRIMUS_LENS_API_BASE_URL": receiver.url,
        "PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "spool"),
        "PRIMUS_LENS_QUEUE_BYTES": "1000000",
        "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "3600",
    }
    done = newest.run(script, tmp_path, variables)
    assert done.stderr == ""
    assert [row["values"]["a"] for row in receiver.rows()] == list(range(60_000))


def test_without_a_spool_what_does_not_fit_is_counted_exactly(newest: Environment, tmp_path: Path) -> None:
    script = """
        import wandb
        wandb.init(project="p", mode="disabled")
        for step in range(20_000):
            wandb.log({"a": step, "b": 0.5})
    """
    variables = {
        "PRIMUS_LENS_API_BASE_URL": "http://127.0.0.1:9/api/v1",
        "PRIMUS_LENS_QUEUE_BYTES": "100000",
        "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "1",
    }
    done = newest.run(script, tmp_path, variables)
    assert "20000 of 20000 rows (40000 points)" in done.stderr
    assert done.stderr.count("lens-hook") == 1


SYNCED = """
    import os, threading, time
    import wandb

    calls = []
    real = os.fsync
    os.fsync = lambda descriptor: (calls.append(threading.current_thread().name), real(descriptor))
    run = wandb.init(project="p", mode="disabled")
    for step in range(5):
        run.log({"loss": step})
        time.sleep(0.1)
    run.finish()
    import atexit
    atexit._run_exitfuncs()
    print(len(calls), *set(calls))
"""


@pytest.mark.parametrize("seconds", ["0", "0.01"])
def test_the_worker_syncs_what_the_receiver_does_not_take(newest: Environment, tmp_path: Path, seconds: str) -> None:
    variables = {
        "PRIMUS_LENS_API_BASE_URL": "http://127.0.0.1:1/api/v1",
        "PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "spool"),
        "PRIMUS_LENS_SPOOL_SYNC_SECONDS": seconds,
    }
    count, *threads = newest.run(SYNCED, tmp_path, variables).stdout.split()
    assert int(count) >= 2 if seconds != "0" else count == "0"  # the file and the folder that has its name
    assert set(threads) <= {"lens-hook"}


def test_what_is_delivered_is_not_synced(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    variables = {
        "PRIMUS_LENS_API_BASE_URL": receiver.url,
        "PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "spool"),
        "PRIMUS_LENS_SPOOL_SYNC_SECONDS": "0.3",
    }
    assert newest.run(SYNCED, tmp_path, variables).stdout.split() == ["0"]
    assert [value for _, _, value in receiver.points()] == [0, 1, 2, 3, 4]
