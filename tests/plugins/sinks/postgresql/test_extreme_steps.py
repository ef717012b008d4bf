"""Steps at both ends of 64 bits: written, made into blocks, asked for in every way, exported, and news."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.blocks import HIGHEST_STEP, LOWEST_STEP
from lens_plugins.sinks.postgresql.compacting import compact_stream
from lens_plugins.sinks.postgresql.series import Series

from lens_core import PointQuery, StepMetrics
from tests.plugins.sinks.postgresql.support import Spool, points, row, running_store, times

# Enough for a block, which so ends at the highest step, and is read in several pieces.
STEPS = [LOWEST_STEP, LOWEST_STEP + 1, *range(-1000, 1000), HIGHEST_STEP - 1, HIGHEST_STEP]
STEPS_64 = st.integers(LOWEST_STEP, HIGHEST_STEP)


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[Any]:
    """A store that makes no blocks by itself."""
    async with running_store(tmp_path, postgres_dsn, blocks=False) as started:
        yield started


async def compact(store: Any) -> int:
    """Make all blocks that are due."""
    made = 0
    async with await store.database.connect() as connection:
        cursor = await connection.execute("select id from lens_stream order by id")
        for (stream_id,) in await cursor.fetchall():
            made += await compact_stream(connection, stream_id, partial=True)
    return made


async def ask_every_way(store: Any, steps: list[int]) -> None:
    """Assert that every kind of question finds the rows of these steps."""
    assert [point.iteration for point in await points(store)] == steps
    assert [p.iteration for p in await times(store) if p.metric_name == "iteration"] == steps
    few = [point.iteration for point in await points(store, max_points=10)]
    assert (few[0], few[-1]) == (steps[0], steps[-1])
    counted = await points(store, aggregate="count", interval_ms=2**40)
    assert sum(point.value for point in counted) == len(steps)
    paged: list[int] = []
    cursor = ""
    while True:
        query = PointQuery(workload_uid="workload-1", limit=700, cursor=cursor)
        pieces = [piece async for piece in store.metric_columns(query)]
        paged += [iteration for piece in pieces for iteration in piece.iterations]
        cursor = pieces[-1].next_cursor
        if not cursor:
            break
    assert paged == steps


async def test_both_ends_of_64_bits(store: Any, spool: Spool) -> None:
    await spool.deliver(*(row(step) for step in STEPS))
    await ask_every_way(store, STEPS)
    assert await compact(store) == 1
    await ask_every_way(store, STEPS)
    # The block ends at the highest step: rows that come afterwards are in it, never behind it.
    late = [LOWEST_STEP + 2, 5000, HIGHEST_STEP - 2]
    await spool.deliver(*(row(step) for step in late), row(HIGHEST_STEP, values={"loss": 7.0}, sequence=2**62))
    steps = sorted([*STEPS, *late])
    await ask_every_way(store, steps)
    assert await compact(store) == 1
    await ask_every_way(store, steps)
    assert (await points(store))[-1].value == 7.0
    exported = [record async for piece in store.export_records() for record in piece if isinstance(record, StepMetrics)]
    assert sorted({record.row_step for record in exported}) == steps
    assert (await store.newest_progress(["workload-1"]))["workload-1"].iteration == HIGHEST_STEP


@pytest.mark.parametrize("first", [LOWEST_STEP, HIGHEST_STEP - 1])
async def test_news_at_the_ends(store: Any, spool: Spool, first: int) -> None:
    query = PointQuery(workload_uid="workload-1")
    await spool.deliver(row(0, run_id="another"))
    cursor = (await store.news(query, "")).cursor
    await spool.deliver(row(first), row(first + 1))
    found = await store.news(query, cursor)
    assert [iteration for piece in found.points for iteration in piece.iterations] == [first, first + 1]
    assert not (await store.news(query, found.cursor)).points
    await spool.deliver(row(first + 1, values={"loss": 3.0}, sequence=2**62))
    again = await store.news(query, found.cursor)
    assert again.points[-1].iterations[-1] == first + 1


@given(st.lists(st.tuples(STEPS_64, STEPS_64), max_size=8))
def test_points_are_in_order_however_far_they_are_apart(pairs: list[tuple[int, int]]) -> None:
    steps, iterations = (np.array(column, np.int64) for column in (zip(*pairs, strict=True) if pairs else ([], [])))
    none = np.zeros(len(pairs), np.int64)
    series = Series.from_rows((steps, iterations, none), np.zeros(len(pairs)), 0)
    assert series.by_step().steps.tolist() == sorted(steps.tolist())
    assert series.ordered(none, none).iterations.tolist() == sorted(iterations.tolist())
