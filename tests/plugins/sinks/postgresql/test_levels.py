"""Spans are copies of blocks: a chart of a long run shows the same extremes with them, however they came about."""

from __future__ import annotations

import math
import random
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql import blocks, charts, coarsening, compacting, levels, upkeep
from lens_plugins.sinks.postgresql.blocks import Series, coarser, points_of_part
from lens_plugins.sinks.postgresql.coarsening import _groups
from lens_plugins.sinks.postgresql.levels import coarsest_level
from lens_plugins.sinks.postgresql.retention import Policy, retain

from lens_core import MetricPoint
from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store, times
from tests.plugins.sinks.postgresql.test_blocks import compact

ROWS = 2048
SPIKE = 1e9
ALL = {2: 32, 3: 8, 4: 2}  # spans of each level of so many rows


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 rows with parts of 4, spans of 4: a few thousand rows make four levels."""
    for module in (blocks, charts, compacting, levels):
        monkeypatch.setattr(module, "BLOCK_ROWS", 16)
    for module in (blocks, coarsening, levels):
        monkeypatch.setattr(module, "SPAN_PARTS", 4)
    monkeypatch.setattr(blocks, "SUMMARY_POINTS", 4)
    monkeypatch.setattr(blocks, "_SPAN_POINTS", 8)
    monkeypatch.setattr(compacting, "_GROWN_ROWS", 32)
    for module in (compacting, coarsening):
        monkeypatch.setattr(module, "PARTIAL_ROWS", 5)


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[Any]:
    """A store that makes no blocks by itself."""
    async with running_store(tmp_path, postgres_dsn, blocks=False) as started:
        yield started


def rows_of(steps: Sequence[int], spikes: Sequence[int] = ()) -> list[Any]:
    """Rows of a wave with spikes up and down, every 50th no number."""
    return [
        row(
            step,
            values={
                "loss": SPIKE * (-1) ** step if step in spikes else math.sin(step / 100),
                "odd": math.nan if step % 50 == 0 else 1.0,
                **({"rare": float(step)} if step % 64 == 0 else {}),
            },
            sequence=step + (10**6 if step in spikes else 0),
        )
        for step in steps
    ]


def iterations(found: Sequence[MetricPoint]) -> set[int | None]:
    return {point.iteration for point in found}


async def chart(store: Any, metric: str = "loss", **more: Any) -> list[MetricPoint]:
    """Few points of one metric; they are in order, and no more than asked for."""
    most = more.setdefault("max_points", 60)
    found: list[MetricPoint] = await points(store, metrics=(metric,), **more)
    assert len(found) <= most
    assert [p.iteration for p in found] == sorted(iterations(found), key=lambda i: i or 0)
    return found


def levels_of(dsn: str) -> dict[int, int]:
    return dict(ask(dsn, "select level, count(*) from lens_span where not dirty group by 1"))


async def test_every_spike_is_seen_through_all_levels(spool: Spool, store: Any, postgres_dsn: str) -> None:
    spikes = [7, 1000, 1001, 1777, ROWS - 1]
    await spool.deliver(*rows_of(range(ROWS), spikes))
    await compact(store)
    assert levels_of(postgres_dsn) == ALL
    found = await chart(store)
    assert set(spikes) <= iterations(found)
    assert {0, ROWS - 1} <= iterations(found)
    assert any(math.isnan(point.value) for point in await chart(store, "odd"))
    assert len(await chart(store, "rare")) == 32
    steps = sorted(step or 0 for step in iterations(found))
    assert max(after - before for before, after in pairwise(steps)) < 4 * ROWS / 29, "parts have their shares of points"


async def test_iterations_are_drawn_without_reading_all_times(spool: Spool, store: Any, postgres_dsn: str) -> None:
    await spool.deliver(*rows_of(range(ROWS + 10)))
    await compact(store, partial=False)
    ask(postgres_dsn, "update lens_block set times = '' returning 1")
    found = await times(store, max_points=60)
    assert 30 <= len(found) <= 60
    assert [p.value for p in found] == [p.iteration for p in found] == sorted(iterations(found), key=lambda i: i or 0)
    assert {0, ROWS + 9} <= iterations(found)
    assert all(point.timestamp == 1_700_000_000_000 + point.iteration * 1000 for point in found)


async def test_a_window_is_cut_exactly(spool: Spool, store: Any) -> None:
    """Spans that are partly in it are not read: a spike beside the window is not seen, one at its edge is."""
    await spool.deliver(*rows_of(range(ROWS), [499, 500, 1499, 1500]))
    await compact(store)
    found = await chart(store, start_ms=1_700_000_500_000, end_ms=1_700_001_499_000)
    assert {500, 1499} <= iterations(found)
    assert not {499, 1500} & iterations(found)
    assert min(p.iteration or 0 for p in found) == 500


async def test_rows_of_the_past_are_seen_at_once_and_in_spans_made_anew(
    spool: Spool, store: Any, postgres_dsn: str
) -> None:
    await spool.deliver(*rows_of(range(ROWS)))
    await compact(store)
    before = levels_of(postgres_dsn)
    await spool.deliver(*rows_of([1234], [1234]))
    assert 1234 in iterations(await chart(store))
    await compact(store)
    assert levels_of(postgres_dsn) == before
    assert 1234 in iterations(await chart(store))


async def test_many_rows_between_split_spans(spool: Spool, store: Any, postgres_dsn: str) -> None:
    await spool.deliver(*rows_of(range(0, 8 * ROWS, 8)))
    await compact(store)
    await spool.deliver(*rows_of(range(801, 3001, 2), [901, 2999]))
    await compact(store)
    assert {901, 2999} <= iterations(await chart(store))
    assert ask(postgres_dsn, "select count(*) from lens_span where dirty") == [(0,)]
    in_spans = ROWS + 1100 - outside_of_spans(postgres_dsn)
    assert ask(postgres_dsn, "select sum(rows) from lens_span where level = 2") == [(in_spans,)]
    parts = ask(
        postgres_dsn,
        "select (select count(*) from lens_block b where b.last_step between s.first_step and s.last_step)"
        " from lens_span s where level = 2",
    )
    assert all(4 <= number < 8 for (number,) in parts)


def outside_of_spans(dsn: str) -> int:
    """Rows of blocks that wait for more, to become a span."""
    statement = "select coalesce(sum(rows), 0)::bigint from lens_block where last_step > "
    return int(ask(dsn, statement + "(select max(last_step) from lens_span)")[0][0])


async def test_a_store_of_before_gets_its_spans(spool: Spool, store: Any, postgres_dsn: str) -> None:
    await spool.deliver(*rows_of(range(ROWS), [77]))
    await compact(store)
    ask(postgres_dsn, "delete from lens_span returning 1")
    connection = await store.database.connect()
    try:
        assert await compacting._unfinished(connection) == {1: True}
        assert (await upkeep.tidy(connection, Policy()))["blocks_made"] == 0
        assert await compacting._unfinished(connection) == {}
    finally:
        await connection.close()
    assert levels_of(postgres_dsn) == ALL
    assert 77 in iterations(await chart(store))


async def test_spans_go_with_their_run(spool: Spool, store: Any, postgres_dsn: str) -> None:
    """What comes to the run afterwards is all that is in its charts."""
    await spool.deliver(*rows_of(range(ROWS), [77]))
    await compact(store)
    connection = await store.database.connect()
    async with connection:
        await retain(connection, Policy(days=1), time.time_ns() // 1000 + 2 * 86_400_000_000)
    for table in ("lens_span", "lens_span_column"):
        assert ask(postgres_dsn, f"select count(*) from {table}") == [(0,)]
    await spool.send(*rows_of(range(ROWS)))  # finds out that the run is gone
    await spool.deliver(*rows_of(range(ROWS, ROWS + 10)))
    assert max(point.value for point in await chart(store)) < SPIKE


@pytest.mark.parametrize("seed", range(2))
async def test_spans_at_random(spool: Spool, store: Any, postgres_dsn: str, seed: int) -> None:
    """Rows in any order, blocks made at any moment: the highest and the lowest are always among the points."""
    chance = random.Random(seed)
    there: set[int] = set()
    for number in range(20):
        first = chance.choice([number * 120, chance.randrange(number * 120 + 1)])
        steps = range(first, first + chance.randrange(1, 300), chance.choice([1, 1, 3]))
        there.update(steps)
        rows = [row(step, values={"loss": float(step)}, sequence=number * 10_000 + step) for step in steps]
        await spool.deliver(*rows)
        spike = chance.choice(sorted(there))
        await spool.deliver(row(spike, values={"loss": SPIKE + number}, sequence=10**7 + number))
        if chance.random() < 0.7:
            await compact(store, partial=chance.random() < 0.5)
        found = await chart(store)
        assert max(point.value for point in found) == SPIKE + number
        assert {min(there), max(there)} <= iterations(found)
    assert levels_of(postgres_dsn)[2] > 5


@given(st.lists(st.integers(), max_size=90), st.booleans())
def test_groups_lose_nothing(steps: list[int], with_rest: bool) -> None:
    groups = _groups(steps, with_rest=with_rest)
    joined = [step for group in groups for step in group]
    assert joined == steps[: len(joined)]
    if with_rest:
        assert joined == steps
        assert len(groups) == max(1 if steps else 0, len(steps) // coarsening.SPAN_PARTS)
    else:
        assert all(len(group) == coarsening.SPAN_PARTS for group in groups)
        assert len(steps) - len(joined) < coarsening.SPAN_PARTS


@given(st.lists(st.floats(allow_nan=True), min_size=1, max_size=2000), st.integers(min_value=1, max_value=4))
def test_coarser_points_keep_what_is_extreme(values: list[float], level: int) -> None:
    count = len(values)
    whole = Series(array("q", range(count)), array("q", range(count)), array("d", values), array("q", range(count)))
    found = coarser(whole, 0, level)
    numbers = [value for value in values if value == value]
    if numbers:
        kept = [value for value in found.values if value == value]
        assert (min(kept), max(kept)) == (min(numbers), max(numbers))
    assert any(map(math.isnan, found.values)) == any(map(math.isnan, values))
    assert found.iterations[0] == 0
    assert found.iterations[-1] == count - 1


@given(st.integers(min_value=1, max_value=10**10), st.integers(min_value=2, max_value=10**5))
def test_the_level_is_as_fine_as_the_answer(count: int, max_points: int) -> None:
    level = coarsest_level(count, max_points)
    assert level == 1 or 2 * count >= points_of_part(level) * max_points
    assert 2 * count < points_of_part(level + 1) * max_points
