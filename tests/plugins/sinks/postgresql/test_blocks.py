"""Blocks are copies: every answer is the same with them and without, whatever is written before, after and between."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lens_plugins.sinks.postgresql import blocks as blocks_module
from lens_plugins.sinks.postgresql.compacting import compact_stream

from lens_core import BadRequest, MetricPoint, PointQuery
from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store, times


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[Any]:
    """A store that makes no blocks by itself."""
    async with running_store(tmp_path, postgres_dsn, blocks=False) as started:
        yield started


async def compact(store: Any, *, partial: bool = True) -> int:
    """Make all blocks that can be made."""
    connection = await store.database.connect()
    try:
        cursor = await connection.execute("select id from lens_stream")
        return sum([await compact_stream(connection, row[0], partial=partial) for row in await cursor.fetchall()])
    finally:
        await connection.close()


def rows_of(steps: range, **changes: Any) -> list[Any]:
    """Rows with a dense metric, one in every third row, and one with special values."""
    special = [math.nan, math.inf, -math.inf]
    found = []
    for step in steps:
        values = {"loss": math.sin(step) * step, "odd": special[step % 3] if step % 50 == 0 else float(step)}
        if step % 3 == 0:
            values["eval/sparse"] = -float(step)
        found.append(row(step, values=values, **changes))
    return found


def text(found: list[MetricPoint]) -> list[str]:
    """Comparable although NaN is not."""
    return [repr(point) for point in found]


async def answers(store: Any) -> list[list[str]]:
    """Many questions at once."""
    queries: list[dict[str, Any]] = [
        {},
        {"metrics": ("eval/sparse",)},
        {"start_ms": 1_700_000_700_000, "end_ms": 1_700_003_000_000},
        {"max_points": 200},
        {"metrics": ("odd",), "max_points": 200, "start_ms": 1_700_000_123_000},
        {"aggregate": "mean", "interval_ms": 60_000},
        *({"aggregate": figure, "interval_ms": 20_000_000} for figure in ("count", "min", "max", "first", "last")),
    ]
    found = [text(await points(store, **query)) for query in queries]
    return [*found, text(await times(store)), text(await times(store, max_points=200))]


async def test_answers_are_the_same_with_blocks_and_without(spool: Spool, store: Any, postgres_dsn: str) -> None:
    await spool.deliver(*rows_of(range(0, 18_000, 2)))
    before = await answers(store)
    assert await compact(store, partial=False) == 2
    assert await answers(store) == before
    assert await compact(store) == 1
    assert await answers(store) == before
    await spool.deliver(*rows_of(range(18_000, 18_300)), *rows_of(range(1, 9, 2)))
    assert ask(postgres_dsn, "select count(*) from lens_block where dirty") == [(1,)]
    changed = await answers(store)
    assert changed != before
    await compact(store)
    assert ask(postgres_dsn, "select count(*) from lens_block where dirty") == [(0,)]
    assert await answers(store) == changed
    assert ask(postgres_dsn, "select rows - blocked_rows from lens_stream") == [(0,)]


async def test_rows_that_come_before_all_others_are_split(spool: Spool, store: Any, postgres_dsn: str) -> None:
    await spool.deliver(*rows_of(range(20_000, 24_096)))
    await compact(store)
    await spool.deliver(*rows_of(range(19_000)))
    before = text(await points(store))
    assert await compact(store) == 5
    assert text(await points(store)) == before
    sizes = ask(postgres_dsn, "select rows, dirty, last_step from lens_block order by last_step")
    assert [rows for rows, _, _ in sizes] == [4096, 4096, 4096, 4096, 6712]
    assert not any(dirty for _, dirty, _ in sizes)
    assert ask(postgres_dsn, "select rows - blocked_rows from lens_stream") == [(0,)]


async def test_iterations_of_their_own_come_in_order(spool: Spool, store: Any) -> None:
    rows = [row(step, iteration=step * 10, values={"loss": float(step)}) for step in range(5000)]
    await spool.deliver(*rows)
    before = await answers(store)
    await compact(store)
    assert await answers(store) == before
    await spool.deliver(row(5000, iteration=7, values={"loss": 1.0}))
    found = [p.iteration for p in await points(store)]
    assert found == sorted(found)
    assert [p.iteration for p in await points(store, max_points=50)] == sorted(
        p.iteration for p in await points(store, max_points=50)
    )


async def test_a_row_that_changes_while_a_block_is_made_is_in_it(
    spool: Spool, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spool.deliver(*rows_of(range(4096)))
    made = blocks_module.build_block
    rewritten: list[bool] = []

    def build_meanwhile(*arguments: Any) -> Any:
        if not rewritten:
            rewritten.append(True)
            with psycopg.connect(store.database.dsn) as other:
                other.execute("update lens_row set metrics = '{\"loss\": 77}' where row_step = 10")
                other.execute("update lens_stream set late_step = 10")
        return made(*arguments)

    monkeypatch.setattr("lens_plugins.sinks.postgresql.compacting.build_block", build_meanwhile)
    assert await compact(store) == 1
    assert [p.value for p in await points(store, metrics=("loss",))][10] == 77


async def test_every_spike_is_among_few_points(spool: Spool, store: Any) -> None:
    chance = random.Random(7)
    spikes = [500 * part + chance.randrange(200, 300) for part in range(40)]
    rows = [row(step, values={"loss": 1000.0 + step if step in spikes else chance.random()}) for step in range(20_000)]
    await spool.deliver(*rows)
    for _ in range(2):
        for size in (150, 1000):
            found = await points(store, max_points=size)
            assert len(found) <= size
            assert {p.iteration for p in found} >= set(spikes)
            assert found[0].iteration == 0
            assert found[-1].iteration == 19_999
        await compact(store)


async def test_rows_have_no_more_weight_than_blocks(spool: Spool, store: Any) -> None:
    await spool.deliver(*(row(step, values={"loss": float(step % 997)}) for step in range(20_000)))
    await compact(store, partial=False)  # the last 3,616 rows are in no block
    found = [p.iteration for p in await points(store, max_points=200)]
    assert 100 <= len(found) <= 200
    assert sum(step >= 16_384 for step in found) < 60


async def test_hundreds_of_metrics_are_each_their_own(spool: Spool, store: Any) -> None:
    names = [f"m{number:03}" for number in range(150)]
    rows = [row(step, values={n: float(step + i) for i, n in enumerate(names) if (step + i) % 3}) for step in range(30)]
    await spool.deliver(*rows)
    found = await points(store)
    assert [(p.metric_name, p.iteration, p.value) for p in found] == [
        (name, step, float(step + i)) for i, name in enumerate(names) for step in range(30) if (step + i) % 3
    ]


async def test_times_of_few_points_are_those_of_the_ends_of_blocks(spool: Spool, store: Any) -> None:
    rows = [row(step, iteration=step * 2, event_time=1_700_000_000.0 + step + step % 2 / 4) for step in range(9_000)]
    await spool.deliver(*rows)
    whole = text(await times(store))
    for expected in (2, 4):
        few = text(await times(store, max_points=expected))
        assert 2 <= len(few) <= expected
        assert (few[0], few[-1]) == (whole[0], whole[-1])
        assert set(few) <= set(whole)
        await compact(store)


async def test_many_attempts_share_the_points(spool: Spool, store: Any) -> None:
    await spool.deliver(*(row(step, session=f"s{n}", run_id=f"r{n}") for n in range(60) for step in range(10 + n)))
    assert 60 <= len(await points(store, max_points=100)) <= 100
    assert {p.run_id for p in await points(store, max_points=200)} == {f"r{n}" for n in range(60)}


@pytest.mark.parametrize("compacted", [False, True])
async def test_both_ends_of_every_attempt_are_among_few_points(spool: Spool, store: Any, compacted: bool) -> None:
    """One long attempt, and many that ended soon; each has a spike."""
    lengths = [9000, *([7, 40, 1, 2, 3, 300] * 5)]
    firsts = [sum(lengths[:number]) for number in range(len(lengths))]
    for number, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
        spike = first + length // 2
        rows = [
            row(step, session=f"s{number}", values={"loss": 9e9 if step == spike else math.sin(step)})
            for step in range(first, first + length)
        ]
        await spool.deliver(*rows)
    if compacted:
        await compact(store)
    ends = {step for first, length in zip(firsts, lengths, strict=True) for step in (first, first + length - 1)}
    spikes = {first + length // 2 for first, length in zip(firsts, lengths, strict=True)}
    for most in (4 * len(lengths), 400):
        found = await points(store, metrics=("loss",), max_points=most)
        assert len(found) <= most
        assert {p.iteration for p in found} >= ends | spikes
    found = await points(store, metrics=("loss",), max_points=2 * len(lengths))
    assert {p.iteration for p in found} >= ends
    few = await points(store, metrics=("loss",), max_points=10)
    assert len(few) <= 10
    assert {p.iteration for p in few} >= {8999, firsts[-1], firsts[-1] + 299}, "the longest, and the newest"


async def test_a_rare_metric_is_drawn_from_all_its_points(spool: Spool, store: Any) -> None:
    rows = [
        row(step, values={"loss": 1.0, **({"eval": float(step)} if step % 20 == 0 else {})}) for step in range(20_000)
    ]
    await spool.deliver(*rows)
    await compact(store)
    assert len(await points(store, metrics=("eval",), max_points=1000)) == 1000


async def test_a_very_rare_metric_is_drawn_out_of_summaries_alone(spool: Spool, store: Any, postgres_dsn: str) -> None:
    rare = {step: {"eval": float(step)} for step in range(0, 12_000, 100)}
    await spool.deliver(*(row(step, values={"loss": 1.0, **rare.get(step, {})}) for step in range(12_000)))
    await compact(store)
    ask(postgres_dsn, "update lens_block set times = '' returning 1")
    for window in ({}, {"start_ms": 1_700_000_000_000, "end_ms": 1_700_099_999_000}):
        found = await points(store, metrics=("eval",), max_points=1000, **window)
        assert [(point.iteration, point.value) for point in found] == [(step, float(step)) for step in rare]


async def test_pages_hold_everything_once(spool: Spool, store: Any) -> None:
    await spool.deliver(*rows_of(range(700)), *rows_of(range(50), run_id="run-2"))
    await spool.deliver(*(r for rank in range(3) for r in rows_of(range(40), run_id="ranks", data_source=f"s{rank}")))
    await compact(store)
    for query in ({}, {"max_points": 60}, {"aggregate": "max", "interval_ms": 30_000}):
        whole = text(await points(store, **query))
        paged: list[str] = []
        cursor = ""
        while True:
            asked = PointQuery(workload_uid="workload-1", limit=97, cursor=cursor, **query)
            pieces = [piece async for piece in store.metric_columns(asked)]
            page = [point for piece in pieces for point in piece.points()]
            assert len(page) <= 97
            paged += text(page)
            cursor = pieces[-1].next_cursor if pieces else ""
            if not cursor:
                break
        assert paged == whole
    with pytest.raises(BadRequest):
        await points(store, cursor="nonsense", limit=5)


async def test_the_background_makes_all_blocks_once_a_load_is_over(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        spool = Spool(store)
        for first in range(0, 15_000, 5000):
            await spool.deliver(*rows_of(range(first, first + 5000)))
        ends = time.monotonic() + 240
        while ask(postgres_dsn, "select count(*) from lens_block where not dirty") != [(15_000 // 4096,)]:
            assert time.monotonic() < ends
            await asyncio.sleep(0.05)
