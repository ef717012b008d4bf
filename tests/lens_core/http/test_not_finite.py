"""Since when a loss is not finite: the same as all points say, whatever parts a store answers."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from lens_core import Event
from lens_core.http.not_finite import NotFinite
from lens_core.model.records import Origin
from tests.lens_core.http.query_app import QueryApp
from tests.lens_core.http.test_verdict import NOW, event, verdict
from tests.plugins.sinks.postgresql.support import row

BAD = (math.nan, math.inf, -math.inf)
NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
FOUND = NotFinite(
    value="NaN",
    since=NOW,
    since_iteration=1_200,
    ranks=(3,),
    node="gpu-7",
    last_finite=2.314,
    last_finite_iteration=1_199,
)


def ranked(step: int, rank: int, value: float, *, node: str = "") -> Any:
    origin = Origin(workload_uid="workload-1", rank=rank, node=node or f"gpu-{rank}")
    return row(step, origin=origin, session=f"s{rank}", values={"loss": value})


def some_curve(rng: random.Random, steps: int) -> list[float]:
    """A curve that stops being finite anywhere, or never, with a few values before that are not."""
    ends = rng.choice((steps, rng.randrange(steps), rng.randrange(steps), 0))
    values = [rng.choice(BAD) if rng.random() < 0.02 else rng.gauss(2, 1) for _ in range(ends)]
    if values:
        values[-1] = 1.5
    return [*values, *(rng.choice(BAD) for _ in range(steps - ends))]


def expected(curves: dict[int, list[float]]) -> dict[str, Any] | None:
    """Look at every point."""
    since = {}
    for rank, values in curves.items():
        ends = max((place + 1 for place, value in enumerate(values) if math.isfinite(value)), default=0)
        if ends < len(values):
            since[rank] = ends
    if not since:
        return None
    first = min(since.values())
    ranks = sorted(rank for rank, begins in since.items() if begins == first)
    values = curves[ranks[0]]
    return {
        "value": NAMES[str(values[first])],
        "since": 1_700_000_000_000 + first * 1000,
        "since_iteration": first,
        "ranks": ranks,
        "is_everywhere": 1 < len(curves) == len(ranks),
        "node": f"gpu-{ranks[0]}" if len(ranks) == 1 else "",
        "last_finite": values[first - 1] if first else None,
        "last_finite_iteration": first - 1 if first else None,
    }


@pytest.mark.parametrize("seed", range(12))
async def test_it_is_found_where_all_points_say(asked: QueryApp, seed: int) -> None:
    rng = random.Random(seed)
    steps = rng.choice((1, 7, 900, 3_000))
    ranks = rng.sample(range(8), rng.choice((1, 1, 3)))
    curves = {rank: some_curve(rng, steps) for rank in ranks}
    for first in range(0, steps, 500):
        many = [(step, rank) for step in range(first, min(steps, first + 500)) for rank in ranks]
        await asked.spool.deliver(*[ranked(step, rank, curves[rank][step]) for step, rank in many])
    found = (await asked.json("/workloads/workload-1/verdict"))["not_finite"]
    assert found == expected(curves)
    counts = await asked.json("/triage")
    assert counts["counts"]["not_finite"] == (expected(curves) is not None)


async def test_the_newest_attempt_counts(asked: QueryApp) -> None:
    await asked.spool.deliver(*[row(step, session="a", values={"loss": math.nan}) for step in range(20)])
    later = [
        row(step, session="b", values={"loss": 1.0}, event_time=1_700_001_000.0 + step, sequence=10**6 + step)
        for step in range(5)
    ]
    await asked.spool.deliver(*later)
    found = await asked.json("/workloads/workload-1/verdict")
    assert (found["not_finite"], found["cause"], found["loss"]) == (None, None, 1.0)


async def test_an_attempt_that_has_no_loss_yet_is_not_that_of_before(asked: QueryApp) -> None:
    await asked.spool.deliver(*[row(step, session="a", values={"loss": math.nan}) for step in range(20)])
    assert (await asked.json("/workloads/workload-1/verdict"))["not_finite"] is not None
    await asked.spool.deliver(row(5, session="b", values={"lr": 1.0}, event_time=1_700_001_000.0, sequence=10**6))
    found = await asked.json("/workloads/workload-1/verdict")
    assert (found["not_finite"], found["reason"]) == (None, "")
    assert (await asked.json("/triage"))["counts"]["not_finite"] == 0


async def test_an_event_names_the_rank_that_rows_do_not(asked: QueryApp) -> None:
    values = [2.0, 1.5, math.inf, math.nan]
    await asked.spool.deliver(*[row(step, values={"loss": value}) for step, value in enumerate(values)])
    origin = Origin(workload_uid="workload-1", rank=5, node="gpu-9")
    await asked.spool.deliver(
        Event(origin=origin, type="loss_not_finite", data_source="log", iteration=2, event_time=1_700_000_002.0)
    )
    found = await asked.json("/workloads/workload-1/verdict")
    assert found["reason"] == "Loss Infinity since iteration 2 on rank 5, gpu-9"
    assert found["cause"]["at"] == 1_700_000_002_000


async def test_every_route_says_it(asked: QueryApp) -> None:
    await asked.spool.deliver(*[ranked(step, rank, 2.0) for step in range(30) for rank in (0, 3)])
    await asked.spool.deliver(ranked(30, 3, math.nan), ranked(30, 0, 1.75), ranked(31, 3, math.nan))
    origin = Origin(workload_uid="workload-1")
    saved = [
        Event(
            origin=origin, type="checkpoint_saved", data_source="log", iteration=step, event_time=1_700_000_000 + step
        )
        for step in (20, 30)
    ]
    await asked.spool.deliver(*saved)
    found = await asked.json("/workloads/workload-1/verdict")
    assert found["reason"] == "Loss NaN since iteration 30 on rank 3, gpu-3"
    assert found["checkpoint"]["iteration"] == 20
    assert found["loss"] == 1.75  # of the lowest rank, which is finite
    (glance,) = (await asked.json("/glance", uid="workload-1"))["glances"]
    assert {"workload_uid": "workload-1", **glance["verdict"]} == found
    (line,) = (await asked.json("/overview", state="not_finite"))["workloads"]
    assert line["flags"] == ["not_finite"]


@pytest.mark.parametrize(
    ("found", "events", "summary", "advice"),
    [
        (
            FOUND,
            [event("checkpoint_saved", 500, iteration=1_000)],
            "Loss NaN since iteration 1,200 on rank 3, gpu-7; running at iteration 1,839;"
            " last finite loss 2.314 at iteration 1,199; checkpoint 1,000",
            "Stop the job if its loss stays so. Restart from the checkpoint of iteration 1,000, with a lower learning"
            " rate or clipped gradients, or without the data of iteration 1,200 on rank 3.",
        ),
        (
            NotFinite(value="-Infinity", since=1, since_iteration=0),
            [event("checkpoint_saved", 500, iteration=1_000)],
            "Loss -Infinity since iteration 0; running at iteration 1,839",
            "Stop the job if its loss stays so. No checkpoint from before that is known: start anew, with a lower"
            " learning rate or clipped gradients, or without the data of iteration 0.",
        ),
    ],
)
def test_the_words(found: NotFinite, events: list[Any], summary: str, advice: str) -> None:
    judged = verdict(events, ago=1, loss_name="loss", loss="NaN", not_finite=found)
    assert (judged.state, judged.summary, judged.advice) == ("running", summary, advice)
    assert judged.cause is not None
    assert (judged.cause.type, judged.cause.iteration) == ("loss_not_finite", found.since_iteration)


def test_a_failure_stays_the_first_cause() -> None:
    found = verdict([event("out_of_memory", 90, rank=3)], loss_name="loss", loss="NaN", not_finite=FOUND)
    assert found.reason == "Out of device memory on rank 3; loss NaN since iteration 1,200 on rank 3, gpu-7"
    assert found.summary == f"{found.reason}; last finite loss 2.314 at iteration 1,199"


@pytest.mark.parametrize(
    ("ranks", "is_everywhere", "text"),
    [
        ((3,), False, "on rank 3"),
        ((3, 5), False, "on ranks 3 and 5"),
        ((0, 1), True, "on all ranks"),
        (tuple(range(20)), False, "on ranks 0, 1, 2, 3, 4, 5, 6 and 13 others"),
    ],
)
def test_ranks_in_words(ranks: tuple[int, ...], is_everywhere: bool, text: str) -> None:
    found = NotFinite(value="NaN", since=1, since_iteration=9, ranks=ranks, is_everywhere=is_everywhere)
    assert verdict([], ago=1, not_finite=found).reason == f"Loss NaN since iteration 9 {text}"
