"""A daemon that alone does not reach a required sink gives its partitions to those that do, until it reaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from lens_core import Answer, Batch, Delivered, Position, Retry, Sink, StepMetrics
from lens_core.cluster import ability
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_cluster_road import row
from tests.lens_core.cluster.test_isolated_sinks import held_partitions


class Reached(Sink):
    """Stores while no file `cut` is in the folder of its daemon."""

    name = "reached"
    accepts = (StepMetrics,)
    steps: ClassVar[list[int]] = []

    async def send(self, batch: Batch) -> Answer:
        if self._is_cut():
            return Retry("no route to it")
        Reached.steps += [one.row_step for one in batch.records if isinstance(one, StepMetrics)]
        return Delivered()

    async def position(self, spool_id: str) -> Position | None:
        if self._is_cut():
            raise OSError("no route to it")
        return None

    def _is_cut(self) -> bool:
        return (self.context.data_dir / "cut").exists()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds in place of half minutes."""
    Reached.steps = []
    monkeypatch.setattr(ability, "FAILING_SECONDS", 1.0)
    monkeypatch.setattr(ability, "PAUSE_SECONDS", 0.5)
    monkeypatch.setattr("lens_core.cluster.cluster.REFRESH_SECONDS", 0.2)


CONFIG: dict[str, Any] = {
    "sinks": {"r": {"type": "reached"}},
    "delivery": {"retry_base_seconds": 0.05, "retry_cap_seconds": 0.1},
}


async def two_with_reached(daemons: Daemons) -> list[RunningLens]:
    both = [await daemons(CONFIG, Reached), await daemons(CONFIG, Reached)]
    await until(lambda: all(held_partitions(lens) == 2 for lens in both), "each has its share")
    return both


def cut_of(lens: RunningLens) -> Path:
    return lens.component("r").context.data_dir / "cut"


async def test_partitions_go_to_the_daemon_that_reaches_the_sink(daemons: Daemons) -> None:
    both = await two_with_reached(daemons)
    cut_of(both[0]).touch()
    for step in range(24):
        await both[step % 2].send([row(f"job-{step}", step)])
    await until(lambda: held_partitions(both[1]) == 4 and held_partitions(both[0]) == 0, "the other one has them all")
    await until(lambda: sorted(Reached.steps) == list(range(24)), "all rows are stored, each once")
    members = (await both[0].get_json("/status"))["shared"]["members"].values()
    assert sorted(member["unreached"] for member in members) == [[], ["r"]]
    cut_of(both[0]).unlink()
    await until(lambda: all(held_partitions(lens) == 2 for lens in both), "each has its share again")
    for step in range(24, 48):
        await both[step % 2].send([row(f"job-{step}", step)])
    await until(lambda: sorted(Reached.steps) == list(range(48)), "all rows are stored, each once")


async def test_all_keep_what_they_have_while_nobody_reaches_the_sink(daemons: Daemons) -> None:
    both = await two_with_reached(daemons)
    for lens in both:
        cut_of(lens).touch()
    for step in range(24):
        await both[step % 2].send([row(f"job-{step}", step)])

    def unreached(lens: RunningLens) -> bool:
        assert lens.daemon.assembly is not None
        assert lens.daemon.assembly.cluster is not None
        members = lens.daemon.assembly.cluster.membership.members.values()
        return [list(member.unreached) for member in members] == [["r"], ["r"]]

    await until(lambda: all(map(unreached, both)), "both say that they do not reach it")
    await until(lambda: all(held_partitions(lens) == 2 for lens in both), "each has its share")
    for lens in both:
        cut_of(lens).unlink()
    await until(lambda: sorted(Reached.steps) == list(range(24)), "all rows are stored, each once")
