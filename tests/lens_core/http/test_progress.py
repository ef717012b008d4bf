"""The progress of a workload, and its cost if every rank has its own run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lens_core import MetricPoint, Origin, PointQuery
from lens_core.http.progress import progress_of
from tests.plugins.sinks.postgresql.support import Spool, row, running_store

RANKS = 60
NOW = 1_700_000_100.0


async def test_of_thousands_of_runs_those_written_last_are_asked(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        rows = [
            row(
                step,
                origin=Origin(workload_uid="job", rank=rank),
                run_id=f"run-{rank}",
                event_time=NOW - 2.0 * (12 - step) - 0.01 * (RANKS - rank),
            )
            for rank in range(RANKS)
            for step in range(12)
        ]
        await Spool(store).deliver(*rows)
        asked: list[PointQuery] = []
        read = store.iteration_times

        async def watched(query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
            asked.append(query)
            async for piece in read(query):
                yield piece

        store.iteration_times = watched
        found = await progress_of(store, "job", NOW)
    assert found is not None
    assert (found.iteration, found.usual_seconds, found.data_source) == (11, 2.0, "wandb")
    assert abs(found.last_step_at - (NOW - 2.01)) < 0.002
    assert {query.run_id for query in asked} == {f"run-{rank}" for rank in range(RANKS - 16, RANKS)}


@pytest.mark.parametrize(("times", "usual"), [([0] * 9, None), ([0, 0, 0, 60, 60, 60, 120, 120, 120], 60.0)])
async def test_steps_that_share_a_time_take_no_time_of_their_own(
    tmp_path: Path, postgres_dsn: str, times: list[int], usual: float | None
) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        rows = [row(step, origin=Origin(workload_uid="job"), event_time=NOW + at) for step, at in enumerate(times)]
        await Spool(store).deliver(*rows)
        found = await progress_of(store, "job", NOW + 120)
    assert found is not None
    assert found.usual_seconds == usual
