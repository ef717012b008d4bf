"""Two daemons over one log answer as one."""

from __future__ import annotations

from typing import Any

from lens_core import Event, LogLine, Origin, Record, StepMetrics
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.lens_core.cluster.conftest import Daemons


def row(job: str, step: int) -> StepMetrics:
    return StepMetrics(
        origin=Origin(workload_uid=job),
        data_source="wandb",
        run_id="r",
        row_step=step,
        sequence=step + 1,
        values={"loss": 1.0 / (step + 1)},
    )


def stored(daemons: list[RunningLens], kind: type[Record] = StepMetrics) -> list[Any]:
    return [record for lens in daemons for record in lens.records if isinstance(record, kind)]


async def test_rows_sent_to_any_daemon_arrive_once_each(daemons: Daemons) -> None:
    both = [await daemons(), await daemons()]
    for step in range(20):
        await both[step % 2].send([row(f"job-{step % 7}", step)])
    await until(lambda: len(stored(both)) >= 20, "all rows arrive")
    assert sorted(one.row_step for one in stored(both)) == list(range(20))


async def test_a_body_that_is_repeated_at_another_daemon_is_known(daemons: Daemons) -> None:
    both = [await daemons(), await daemons()]
    for lens in both:
        await lens.send([row("job", step) for step in range(5)])
    await both[0].send([row("job", 5)])
    await until(lambda: any(one.row_step == 5 for one in stored(both)), "the last row arrives")
    assert sorted(one.row_step for one in stored(both)) == list(range(6))


async def test_lines_of_two_ranks_at_two_daemons_report_an_event_once(daemons: Daemons) -> None:
    both = [await daemons(), await daemons()]
    for rank, lens in enumerate(both):
        origin = Origin(workload_uid="job", rank=rank, world_size=2)
        text = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
        await lens.send([LogLine(origin=origin, text=text, event_time=1_700_000_000.0 + rank)])
    await until(lambda: len(stored(both, LogLine)) == 2, "both lines arrive")
    await until(lambda: bool(stored(both, Event)), "an event arrives")
    types = [one.type for one in stored(both, Event)]
    assert len(types) == len(set(types)), types
