"""Migrations run once, whoever starts when; a database of a newer Lens is left alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lens_plugins.sinks.postgresql.compacting import compact_stream
from lens_plugins.sinks.postgresql.migrate import DatabaseTooNew, migrate, migrations

from lens_core import LensError, Origin
from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store


async def connect(dsn: str) -> psycopg.AsyncConnection[tuple[Any, ...]]:
    return await psycopg.AsyncConnection.connect(dsn, autocommit=True)


async def test_a_second_time_changes_nothing(empty_database: str) -> None:
    async with await connect(empty_database) as connection:
        assert await migrate(connection) == len(migrations())
        assert await migrate(connection) == 0


async def test_several_at_one_time_do_it_once(empty_database: str) -> None:
    connections = [await connect(empty_database) for _ in range(4)]
    steps = await asyncio.gather(*(migrate(connection) for connection in connections))
    for connection in connections:
        await connection.close()
    assert sorted(steps) == [0, 0, 0, len(migrations())]


async def test_a_database_of_a_newer_lens_is_refused(tmp_path: Path, empty_database: str) -> None:
    async with running_store(tmp_path, empty_database) as store:
        await Spool(store).deliver(row(0))
    with psycopg.connect(empty_database) as connection:
        connection.execute("insert into lens_migration (number, name) values (9999, 'future')")
    with pytest.raises(DatabaseTooNew, match=r"migration 9999.*newer Lens"):
        async with running_store(tmp_path, empty_database):
            pass
    assert ask(empty_database, "select count(*) from lens_row") == [(1,)]


async def test_the_database_of_a_primus_lens_is_refused_with_the_way_out(empty_database: str) -> None:
    async with await connect(empty_database) as connection:
        await connection.execute("create table training_performance (id bigint)")
        with pytest.raises(LensError, match=r"training_performance.*a database of its own.*lens db import"):
            await migrate(connection)
        await connection.execute("drop table training_performance")
        assert await migrate(connection) == len(migrations())


async def test_rows_go_with_their_stream_and_its_subject(tmp_path: Path, empty_database: str) -> None:
    async with running_store(tmp_path, empty_database) as store:
        other = Origin(workload_uid="other")
        await Spool(store).deliver(row(0), row(0, run_id="b"), row(0, run_id="c"), row(0, origin=other))
    with psycopg.connect(empty_database) as connection:
        connection.execute("delete from lens_stream where run_id in ('b', 'c')")
        assert connection.execute("select count(*) from lens_row").fetchall() == [(2,)]
        connection.execute("set search_path to pg_catalog")
        connection.execute("delete from public.lens_subject where workload_uid = 'other'")
        left = connection.execute("select distinct workload_uid from public.lens_row").fetchall()
        assert left == [("workload-1",)]


async def test_what_was_stored_beside_spans_is_kept(tmp_path: Path, empty_database: str) -> None:
    """A database of the time of spans, with blocks, rows beyond them and a span of the first two blocks.

    What writes here is of today and needs the tables of today, so the spans are put beside these.
    """
    text = {step.number: step.sql for step in migrations()}
    async with running_store(tmp_path, empty_database, blocks=False) as store:
        async with await store.database.connect() as connection:
            await connection.execute(text[6].encode())
        await Spool(store).deliver(*(row(step, values={"loss": float(step % 997)}) for step in range(9000)))
        async with await store.database.connect() as connection:
            assert await compact_stream(connection, 1, partial=False) == 2
            await connection.execute(
                "insert into lens_span (stream_id, level, last_step, first_step, rows, first_us, last_us)"
                " select 1, 2, max(last_step), min(first_step), sum(rows), min(first_us), max(last_us)"
                " from lens_block"
            )
            await connection.execute(
                "insert into lens_span_column select 1, 2, metric, 8191, min(summary) from lens_column group by metric"
            )
        whole, few = await points(store), await points(store, max_points=50)
        async with await store.database.connect() as connection:
            await connection.execute(text[12].encode())
    async with running_store(tmp_path, empty_database, blocks=False) as store:
        assert await points(store) == whole
        assert await points(store, max_points=50) == few
    assert len(whole) == 9000
    left = ask(empty_database, "select relname from pg_class where relname ~ '^lens_(span|level)'")
    assert left == []


def test_numbers_are_without_gaps() -> None:
    assert [step.number for step in migrations()] == list(range(1, len(migrations()) + 1))
