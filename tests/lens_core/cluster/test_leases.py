"""Partitions are shared out evenly, taken over in time, and what runs once runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from lens_core import Collector, Record
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.durations import Stopwatch
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_cluster_road import row, stored


def owned(daemons: Sequence[RunningLens]) -> list[int]:
    """Count the partitions of each owner."""
    found = []
    for lens in daemons:
        assert lens.daemon.assembly is not None
        assert lens.daemon.assembly.cluster is not None
        held = lens.daemon.assembly.cluster.membership.held
        found.append(sum(name.startswith("partition.") for name in held))
    return found


async def test_three_daemons_two_and_three_again_share_everything(daemons: Daemons) -> None:
    three = [await daemons() for _ in range(3)]
    await until(lambda: sorted(owned(three)) in ([0, 2, 2], [1, 1, 2]), "all partitions are owned")
    watch = Stopwatch()
    await three[0].stop()
    await until(lambda: owned(three[1:]) == [2, 2], "two own all")
    assert watch.seconds() < 5
    await three[1].send([row(f"job-{step}", step) for step in range(30)])
    await until(lambda: len(stored(three)) == 30, "everything is delivered")
    fresh = await daemons()
    await until(lambda: sum(owned([*three[1:], fresh])) == 4 and max(owned([*three[1:], fresh])) <= 2, "shared anew")


class Alone(Collector):
    """Counts how many of its kind run at one time."""

    name = "alone"
    interval_seconds = 0.05
    running: ClassVar[int] = 0
    most: ClassVar[int] = 0
    runs: ClassVar[list[int]] = []

    async def collect(self) -> Sequence[Record]:
        Alone.running += 1
        Alone.most = max(Alone.most, Alone.running)
        try:
            await asyncio.sleep(0.01)
        finally:
            Alone.running -= 1
        Alone.runs.append(id(self))
        return []


async def test_a_collector_runs_on_one_daemon_at_a_time_and_goes_on_at_another(daemons: Daemons) -> None:
    Alone.running = Alone.most = 0
    Alone.runs.clear()
    config: dict[str, Any] = {"collectors": {"alone": {}}}
    three = [await daemons(config, Alone) for _ in range(3)]
    await until(lambda: len(Alone.runs) > 5, "it runs")
    # Not those before: a lease ends early where the machine gives its holder no processor.
    holder = Alone.runs[-1]
    for lens in three:
        assert lens.daemon.assembly is not None
        if any(id(runner.collector) == holder for runner in lens.daemon.assembly.collectors):
            await lens.stop()
    before = len(Alone.runs)
    await until(lambda: len(Alone.runs) > before + 5, "it goes on elsewhere")
    assert holder not in Alone.runs[before:]
    assert Alone.most == 1
