"""`lens diagnose` on real processes and on a real daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.running_lens import RunningLens, metrics_body, wait_for
from tests.forked import run_lens

WAITING = """
import sys, threading, time
def barrier(lock):
    lock.acquire()
def read_batch(step):
    time.sleep(1000)
def train(rank):
    for step in range(10**9):
        print("started", flush=True)
        if rank == 2:
            read_batch(step)
        lock = threading.Lock()
        lock.acquire()
        barrier(lock)
train(int(sys.argv[1]))
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[int]]:
    """Four ranks, three of them in a barrier."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(WAITING))
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), "--token=s3cret"],
            env={"RANK": str(rank), "WORLD_SIZE": "4"},
            stdout=subprocess.PIPE,
        )
        for rank in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline()
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.communicate()


def diagnose(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_lens("diagnose", *arguments)


def pid_options(pids: list[int]) -> list[str]:
    return [item for pid in pids for item in ("--pid", str(pid))]


def test_the_guilty_rank_comes_first(ranks: list[int]) -> None:
    done = diagnose(*pid_options(ranks), "--seconds", "1.5")
    assert done.returncode == 0, done.stderr
    assert "stands still: stacks: all ranks 0, 1, 2, 3 stand still" in done.stdout
    assert "the others wait for: rank 2" in done.stdout
    assert done.stdout.index("read_batch") < done.stdout.rindex("barrier")
    assert "s3cret" not in done.stdout


def test_as_json(ranks: list[int]) -> None:
    done = diagnose(*pid_options(ranks), "--seconds", "1", "--json")
    found = json.loads(done.stdout)
    assert found["hang"]["ranks"] == ["2"]
    assert [group["ranks"] for group in found["stacks"]] == [["2"], ["0", "1", "3"]]


def test_wrong_usage_and_nothing_to_look_at() -> None:
    assert diagnose("--pid", "1", "--workload", "x").returncode == 2
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    done = diagnose("--pid", str(gone.pid), "--seconds", "0.5")
    assert done.returncode == 1
    assert "no rank runs" in done.stderr


@pytest.mark.slow("waits for the age at which a job counts as hung")
def test_a_workload_of_a_daemon(tmp_path: Path) -> None:
    lens = RunningLens(tmp_path / "lens").start()
    try:
        for name, ends in (("going", time.time()), ("overdue", time.time() - 400.0)):
            body = metrics_body(name, range(20), names=1)
            for metric in body["metrics"]:
                metric["timestamp"] = ends - 20 + metric["step"]
            assert lens.post("/wandb/metrics", body).status_code == 200
        wait_for(lambda: lens.get("/workloads/overdue/diagnosis")["progress"], 240, "the steps")
        lens.drained()
        going = diagnose("--url", lens.url, "--workload", "going")
        assert going.returncode == 0, going.stderr
        assert going.stdout.startswith("not hung: the last step came"), going.stdout
        found = json.loads(diagnose("--url", lens.url, "--workload", "overdue", "--json").stdout)
        assert found["hang"]["verdict"] == "unknown"
        assert "nothing says whether the job still runs" in found["hang"]["reason"]
        assert (found["progress"]["iteration"], found["progress"]["usual_seconds"]) == (19, 1.0)
        unheard = diagnose("--url", lens.url, "--workload", "unheard-of", "--json")
        assert (unheard.returncode, "no workload is called 'unheard-of'" in unheard.stderr) == (1, True)
    finally:
        lens.end()
