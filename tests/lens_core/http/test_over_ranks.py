"""Charts of very many ranks over HTTP: summaries in place of points, the answer that says so, and who gets points."""

from __future__ import annotations

import math
from typing import Any

import pytest
from lens_plugins.sinks.postgresql import rank_summaries

from lens_core import Origin
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row

RANKS = 6
STEPS = 40
PATH = "/workloads/workload-1/metrics/data"
CURVE = {"data_source": "wandb", "run_id": "run-1", "attempt": 1}


def value(rank: int, step: int) -> float:
    """The loss of a rank at a step: rank 2 has spikes, of step 7 none is a number."""
    return math.nan if step == 7 else 100.0 * step + rank + (1e6 if (rank, step) == (2, 33) else 0.0)


@pytest.fixture
async def filled(asked: QueryApp, monkeypatch: pytest.MonkeyPatch) -> QueryApp:
    """A job of which four ranks are very many."""
    monkeypatch.setattr(rank_summaries, "MANY_RANKS", 4)
    for step in range(STEPS):
        origins = (Origin(workload_uid="workload-1", rank=rank) for rank in range(RANKS))
        await asked.spool.deliver(
            *(row(step, origin=where, session="s", values={"loss": value(where.rank or 0, step)}) for where in origins)
        )
    return asked


async def test_a_chart_is_the_mean_with_its_band_and_the_lowest_rank(filled: QueryApp) -> None:
    answer = await filled.json(PATH, metrics="loss", max_points=STEPS)
    assert answer["over_ranks"] == [CURVE]
    assert [point["iteration"] for point in answer["data"]] == [*range(STEPS)]
    spiked = answer["data"][33]
    values = [value(rank, 33) for rank in range(RANKS)]
    assert spiked["value"] == pytest.approx(sum(values) / RANKS)
    assert [spiked[name] for name in ("min", "max", "count", "not_finite", "lowest_rank")] == [
        *(min(values), max(values), RANKS, 0, value(0, 33))
    ]
    nothing = answer["data"][7]
    assert [nothing[name] for name in ("value", "special", "min", "max", "not_finite")] == [None, "NaN", None, None, 6]
    few = (await filled.json(PATH, metrics="loss", max_points=5))["data"]
    assert [few[0]["iteration"], few[-1]["iteration"]] == [0, STEPS - 1]
    assert max(point["max"] for point in few) == max(values)
    assert sum(point["count"] for point in few) == RANKS * STEPS


async def test_buckets_are_those_of_all_points(filled: QueryApp) -> None:
    answer = await filled.json(PATH, metrics="loss", buckets=10, smooth=0.5)
    assert answer["over_ranks"] == [CURVE]
    (series,) = answer["series"]
    plain = await filled.json(PATH, metrics="loss", buckets=10, smooth=0.5, group_by="rank")
    assert "over_ranks" not in plain
    finite = [value(rank, step) for rank in range(RANKS) for step in range(STEPS) if step != 7]
    assert [series[name] for name in ("count", "not_finite", "min", "max")] == [
        *(RANKS * STEPS, RANKS, min(finite), max(finite))
    ]
    points = answer["data"]
    assert sum(point["count"] for point in points) == RANKS * STEPS
    assert points[-1]["last"] == value(0, STEPS - 1)
    mean = 0.0
    for step in (step for step in range(STEPS) if step != 7):
        mean = 0.5 * mean + 0.5 * sum(value(rank, step) for rank in range(RANKS)) / RANKS
    assert points[-1]["smoothed"] == pytest.approx(mean / (1 - 0.5 ** (STEPS - 1)))


@pytest.mark.parametrize(
    "options", [{"rank": 3}, {"last": 40}, {"limit": 1000}, {"fields": "rank", "max_points": 1000}, {}]
)
async def test_points_are_answered_where_they_are_asked_for(filled: QueryApp, options: dict[str, Any]) -> None:
    answer = await filled.json(PATH, metrics="loss", **options)
    assert "over_ranks" not in answer
    assert all("lowest_rank" not in point for point in answer["data"])
    assert answer["data"]


async def test_the_metrics_are_counted(filled: QueryApp) -> None:
    (metric,) = (await filled.json("/workloads/workload-1/metrics/available"))["metrics"]
    assert (metric["name"], metric["count"], metric["data_source"]) == ("loss", RANKS * STEPS, ["wandb"])
