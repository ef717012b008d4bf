"""Blocks beside rows under chance: whatever was written in whatever order, with blocks made at any moment between and
meanwhile, every answer is that of the rows alone."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lens_plugins.sinks.postgresql import compacting

from lens_core import PointQuery
from tests.plugins.sinks.postgresql.support import Spool, points, row, running_store, times
from tests.plugins.sinks.postgresql.test_blocks import compact, text

WINDOW = {"start_ms": 1_700_000_200_000, "end_ms": 1_700_000_700_000}
VALUES = (math.nan, math.inf, -math.inf, 0.0, 1.5, -2.25)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that little makes many."""
    monkeypatch.setattr(compacting, "BLOCK_ROWS", 16)
    monkeypatch.setattr(compacting, "_GROWN_ROWS", 32)
    monkeypatch.setattr(compacting, "PARTIAL_ROWS", 5)


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[Any]:
    """A store that makes no blocks by itself."""
    async with running_store(tmp_path, postgres_dsn, blocks=False) as started:
        yield started


def some_rows(chance: random.Random, beyond: int, sequence: int) -> list[Any]:
    """New rows, old ones again and rows between, of two runs; iterations that mostly go up."""
    found: list[Any] = []
    for _ in range(chance.randrange(1, 40)):
        step = chance.choice([beyond + chance.randrange(30), chance.randrange(beyond + 1), chance.randrange(-5, 5)])
        metrics = chance.sample(["loss", "acc", "eval/x"], chance.randrange(1, 4))
        iteration = chance.choice([None, None, step * 3, chance.randrange(100)]) if chance.random() < 0.1 else None
        found.append(
            row(
                step,
                run_id=chance.choice(["a", "b"]),
                data_source=chance.choice(["wandb", "wandb", "log"]),
                values={name: chance.choice(VALUES) for name in metrics},
                iteration=iteration,
                sequence=sequence * 1000 + len(found),
                event_time=1_700_000_000.0 + chance.randrange(1000),
            )
        )
    return found


async def everything(store: Any) -> list[list[str]]:
    """Answers that must not depend on blocks."""
    found = [text(await points(store)), text(await points(store, **WINDOW)), text(await times(store))]
    found.append(text(await points(store, run_id="a", aggregate="count", interval_ms=10_000)))
    found.append(text(await points(store, aggregate="max", interval_ms=100_000, **WINDOW)))
    return found


async def totals_are_right(store: Any) -> bool:
    """Whether pages say how many points there are on all of them."""
    queries: list[dict[str, Any]] = [
        {},
        WINDOW,
        {"max_points": 20},
        {"aggregate": "max", "interval_ms": 50_000, **WINDOW},
    ]
    for more in queries:
        query = PointQuery(workload_uid="workload-1", limit=7, **more)
        for ask, all_points in ((store.metric_columns, points), (store.iteration_columns, times)):
            page = [piece async for piece in ask(query)]
            if (page[-1].total_count if page else 0) != len(await all_points(store, **more)):
                return False
    return True


async def without_blocks(store: Any, dsn: str) -> list[list[str]]:
    """The same out of rows alone."""
    with psycopg.connect(dsn) as connection:
        connection.execute("alter table lens_block rename to hidden_block")
        connection.execute("create table lens_block (like hidden_block)")
        connection.execute("create table hidden_step as select id, blocked_step, blocked_rows from lens_stream")
        connection.execute("update lens_stream set blocked_step = null, blocked_rows = 0")
    try:
        return await everything(store)
    finally:
        with psycopg.connect(dsn) as connection:
            connection.execute("drop table lens_block")
            connection.execute("alter table hidden_block rename to lens_block")
            connection.execute(
                "update lens_stream s set blocked_step = h.blocked_step, blocked_rows = h.blocked_rows"
                " from hidden_step h where h.id = s.id"
            )
            connection.execute("drop table hidden_step")


@pytest.mark.parametrize("seed", range(4))
async def test_answers_do_not_depend_on_blocks(spool: Spool, store: Any, postgres_dsn: str, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(12):
        await spool.deliver(*some_rows(chance, number * 15, number))
        if chance.random() < 0.7:
            await compact(store, partial=chance.random() < 0.5)
        if number % 3 == 2:
            assert await everything(store) == await without_blocks(store, postgres_dsn)
            assert await totals_are_right(store)
    with psycopg.connect(postgres_dsn) as connection:
        wrong = connection.execute(
            "select s.id from lens_stream s where blocked_rows <> (select count(*) from lens_row r where"
            " r.stream_id = s.id and r.row_step <= s.blocked_step)"
            " and not exists (select from lens_block b where b.stream_id = s.id and b.dirty)"
        ).fetchall()
        assert wrong == []
        connection.execute("update lens_column set \"values\" = decode(repeat('00', octet_length(\"values\")), 'hex')")
        connection.commit()
    assert await everything(store) != await without_blocks(store, postgres_dsn), "blocks are not read at all"


async def test_blocks_that_are_made_while_rows_are_written(spool: Spool, store: Any, postgres_dsn: str) -> None:
    chance = random.Random(99)
    done = asyncio.Event()

    async def make_blocks() -> int:
        made = 0
        while not done.is_set():
            made += await compact(store, partial=True)
            await asyncio.sleep(0)
        return made

    makers = [asyncio.create_task(make_blocks()) for _ in range(2)]
    for number in range(60):
        await spool.deliver(*some_rows(chance, number * 10, number))
    done.set()
    assert sum(await asyncio.gather(*makers)) > 10
    assert await everything(store) == await without_blocks(store, postgres_dsn)
    await compact(store, partial=True)
    assert await everything(store) == await without_blocks(store, postgres_dsn)
