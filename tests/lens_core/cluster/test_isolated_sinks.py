"""Sinks with `isolate: true` in a cluster: one process at each daemon, which delivers all partitions that it owns."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.isolated_plugins import ApartSink
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_cluster_road import row

# A daemon that takes a lease over sends again.
LEASE_SECONDS = 6.0


def stored_batches(folder: Path) -> list[dict[str, Any]]:
    file = folder / "stored"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def stored_steps(folder: Path) -> Counter[int]:
    return Counter(step for batch in stored_batches(folder) for step in batch["steps"])


async def two_with_apart(daemons: Daemons, folder: Path, send_timeout_seconds: float = 60.0) -> list[RunningLens]:
    """Two daemons that have shared out the partitions, each with a process for its sink.

    A batch that was stored and takes longer than `send_timeout_seconds` is sent again.
    """
    config = {
        "sinks": {"apart": {"type": "apart_sink", "isolate": True, "folder": str(folder)}},
        "delivery": {
            "retry_base_seconds": 0.01,
            "retry_cap_seconds": 0.05,
            "send_timeout_seconds": send_timeout_seconds,
        },
    }
    both = [await daemons(config, ApartSink), await daemons(config, ApartSink)]
    await until(lambda: all(held_partitions(lens) == 2 for lens in both), "each has its share")
    return both


def held_partitions(lens: RunningLens) -> int:
    shared = lens.daemon.assembly.cluster if lens.daemon.assembly is not None else None
    assert shared is not None
    return sum(name.startswith("partition.") for name in shared.membership.held)


async def pids(lens: RunningLens) -> dict[str, int]:
    return {one["component"]: one["pid"] for one in (await lens.get_json("/status"))["processes"]}


async def test_each_daemon_delivers_by_a_process_of_its_own(daemons: Daemons, tmp_path: Path) -> None:
    both = await two_with_apart(daemons, tmp_path)
    for step in range(40):
        await both[step % 2].send([row(f"job-{step}", step)])
    await until(lambda: len(stored_steps(tmp_path)) == 40, "all rows are stored")
    assert set(stored_steps(tmp_path).values()) == {1}
    found = await pids(both[0])
    assert len(found) == 2
    assert {batch["pid"] for batch in stored_batches(tmp_path)} == set(found.values())
    assert all(name.startswith("apart at ") for name in found), "the daemon of each process is named"


@pytest.mark.parametrize("trouble", ["die", "sleep", "raise"])
async def test_trouble_of_one_process_loses_nothing(daemons: Daemons, tmp_path: Path, trouble: str) -> None:
    both = await two_with_apart(daemons, tmp_path, 2.0 if trouble == "sleep" else 60.0)
    for step in range(40):
        if step == 10:
            (tmp_path / trouble).touch()
        await both[step % 2].send([row(f"job-{step}", step)])
    await until(lambda: len(stored_steps(tmp_path)) == 40, "all rows are stored")


async def test_what_an_ended_process_had_goes_on_at_another_daemon(daemons: Daemons, tmp_path: Path) -> None:
    both = await two_with_apart(daemons, tmp_path)
    for step in range(20):
        await both[step % 2].send([row(f"job-{step}", step)])
    await until(lambda: len(stored_steps(tmp_path)) == 20, "the first rows are stored")
    ended = set((await pids(both[0])).values())
    await both[1].stop()
    await until(lambda: held_partitions(both[0]) == 4, "the other one has all partitions")
    for step in range(20, 40):
        await both[0].send([row(f"job-{step}", step)])
    await until(lambda: len(stored_steps(tmp_path)) == 40, "all rows are stored")
    left = set((await pids(both[0])).values())
    assert len(left) == 1
    await until(lambda: not any(map(psutil.pid_exists, ended - left)), "the other's process has ended")
    assert set(stored_steps(tmp_path).values()) == {1}
