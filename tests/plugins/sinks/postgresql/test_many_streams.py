"""Many streams of one workload: ranks merged out of blocks, short attempts read together."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.sinks.postgresql import compacting
from lens_plugins.sinks.postgresql import points as reading
from lens_plugins.sinks.postgresql import reading as reader

from lens_core import MetricPoint, Origin, PointQuery
from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store, times
from tests.plugins.sinks.postgresql.test_blocks import compact, text

WINDOW = {"start_ms": 1_700_000_020_000, "end_ms": 1_700_000_130_000}
SORTED = """
    select r.iteration, r.event_time_us / 1000, s.data_source, r.metrics ->> 'loss'
    from lens_stream s join lens_row r on r.stream_id = s.id where r.metrics ? 'loss'
    order by r.iteration, r.event_time_us, s.data_source collate "C", s.rank, r.row_step
"""


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """A store that makes no blocks by itself, and small ones when it is told to."""
    monkeypatch.setattr(compacting, "BLOCK_ROWS", 16)
    monkeypatch.setattr(compacting, "PARTIAL_ROWS", 5)
    async with running_store(tmp_path, postgres_dsn, blocks=False) as started:
        yield started


def of_ranks(chance: random.Random) -> list[Any]:
    """Rows of six ranks and two sources; some have iterations of their own, of which several steps have one."""
    found = []
    for rank in range(6):
        origin = Origin(workload_uid="workload-1", pod_uid="pod-uid-1", pod_name="trainer-0", rank=rank)
        for step in sorted(chance.sample(range(150), 70)):
            values = {"loss": chance.choice([float("nan"), float(step)]), "other": 1.0}
            if chance.random() < 0.2:
                del values["loss"]
            found.append(
                row(
                    step,
                    origin=origin,
                    data_source=("wandb", "tensorflow")[rank % 2],
                    iteration=step // 7 if rank % 3 == 0 else None,
                    values=values,
                    event_time=1_700_000_000.0 + chance.randrange(1, 150),
                )
            )
    return found


def short_attempts() -> list[Any]:
    """Rows of twelve restarts, of which every third point of one metric is there."""
    return [
        row(step, session=f"s{number}", values={"loss": float(step), **({"eval": -1.0} if step % 3 == 0 else {})})
        for number in range(12)
        for step in range(number * 20, number * 20 + 10 + 2 * number)
    ]


async def pages(store: Any, limit: int, **query: Any) -> list[MetricPoint]:
    """All points, asked page by page."""
    found: list[MetricPoint] = []
    cursor = ""
    while True:
        asked = PointQuery(workload_uid="workload-1", limit=limit, cursor=cursor, **query)
        pieces = [piece async for piece in store.metric_columns(asked)]
        found += [point for piece in pieces for point in piece.points()]
        cursor = pieces[-1].next_cursor if pieces else ""
        if not cursor:
            return found


@pytest.mark.parametrize("seed", range(3))
async def test_ranks_are_merged_in_the_order_of_the_database(
    spool: Spool, store: Any, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    await spool.deliver(*of_ranks(random.Random(seed)))
    wanted = [(i, t, s, str(float(v))) for i, t, s, v in ask(postgres_dsn, SORTED)]
    in_window = [found for found in wanted if WINDOW["start_ms"] <= found[1] <= WINDOW["end_ms"]]
    for _ in range(2):
        for points_at_once in (reading._BATCH_POINTS, 40):
            monkeypatch.setattr(reading, "_BATCH_POINTS", points_at_once)
            monkeypatch.setattr(reading, "_MARK_POINTS", 10)
            found = await points(store, metrics=("loss",))
            assert [(p.iteration, p.timestamp, p.data_source, str(p.value)) for p in found] == wanted
            assert text(await pages(store, 7, metrics=("loss",))) == text(found)
            found = await points(store, metrics=("loss",), **WINDOW)
            assert [(p.iteration, p.timestamp, p.data_source, str(p.value)) for p in found] == in_window
        await compact(store)


async def test_short_attempts_are_read_together(spool: Spool, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many attempts are read at one time, and however their rows are read: the answers are the same."""
    await spool.deliver(*short_attempts()[:150])
    await compact(store)
    await spool.deliver(*short_attempts()[150:])
    queries: list[dict[str, Any]] = [{}, WINDOW, {"metrics": ("eval",)}, {"max_points": 60}, {"max_points": 8}]
    queries.append({"aggregate": "sum", "interval_ms": 7000})

    async def answers() -> list[list[str]]:
        found = [text(await points(store, **query)) for query in queries]
        return [*found, text(await times(store)), text(await pages(store, 13))]

    together = await answers()
    assert len(together[0]) > 300
    monkeypatch.setattr(reader, "_MANY_METRICS", 1)
    assert await answers() == together
    monkeypatch.setattr(reader, "_MANY_METRICS", 99)
    monkeypatch.setattr(reader, "_ROWS_AT_ONCE", 3)
    monkeypatch.setattr(reading, "_BATCH_POINTS", 1)
    assert await answers() == together


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_chart_of_many_ranks_goes_from_end_to_end_and_keeps_the_spike_of_one(
    spool: Spool, store: Any, compacted: bool
) -> None:
    for rank in range(120):
        origin = Origin(workload_uid="workload-1", rank=rank)
        spikes = {(71, 13): 99.0, (5, 22): -99.0}
        rows = [
            row(step, origin=origin, values={"loss": spikes.get((rank, step), 1.0 / (step + 1)), "rank": float(rank)})
            for step in range(30)
        ]
        await spool.deliver(*rows)
    if compacted:
        await compact(store)
    found = await points(store, metrics=("loss",), max_points=40)
    iterations = [point.iteration for point in found]
    assert 20 < len(found) <= 40
    assert (iterations[0], iterations[-1], iterations) == (0, 29, sorted(iterations))
    assert {(13, 99.0), (22, -99.0)} <= {(point.iteration, point.value) for point in found}
    bands = await points(store, metrics=("rank",), max_points=40)
    assert {0.0, 119.0} <= {point.value for point in bands if point.iteration > 20}
