"""A ClickHouse that is not the one of the store: refused in words, nothing written to it, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lens_core import LensError, Retry, Secret, Unavailable
from tests.plugins.sinks.postgresql.clickhouse.conftest import Engine
from tests.plugins.sinks.postgresql.clickhouse.test_twins import deliver, other_dsn
from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store

__all__ = ["other_dsn"]


def database_of(address: str) -> str:
    """The database of an address."""
    return address.rsplit("/", 1)[-1]


@pytest.fixture
def other_address(engine: Engine, points_address: str) -> Iterator[str]:
    """A second fresh database."""
    name = f"{database_of(points_address)}_other"
    engine.run(f"create database {name}")
    yield engine.address(name)
    engine.run(f"drop database if exists {name}")


def swap(engine: Engine, one: str, other: str) -> None:
    """Have either address lead to the database of the other."""
    for old, new in ((one, "between"), (other, one), ("between", other)):
        engine.run(f"rename database {database_of(old)} to {database_of(new)}")


def contents(engine: Engine, address: str) -> list[str]:
    """All rows of all tables of a database."""
    name = database_of(address)
    tables = engine.run(f"select name from system.tables where database = '{name}' order by name").split()
    return [f"{table} {engine.run(f'select * from {name}.{table} order by all')}" for table in tables]


async def test_an_empty_one_behind_the_same_address_gets_nothing_until_that_is_fixed(
    tmp_path: Path, postgres_dsn: str, points_address: str, other_address: str, engine: Engine
) -> None:
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        spool = Spool(store)
        await spool.deliver(row(0))
        swap(engine, points_address, other_address)
        late = spool.batch(row(1), row(0, values={"lr": 1.0}))
        for _ in range(2):
            answer = await store.send(late)
            assert isinstance(answer, Retry), answer
            assert "has no points of this store: it is empty" in answer.reason
            assert "waits in the spool. Give `points` the address" in answer.reason
        with pytest.raises(Unavailable, match="no points of this store"):
            await points(store)
        with pytest.raises(LensError, match="no points of this store"):
            await store.vacuum()
        with pytest.raises(LensError, match="no points of this store"):
            await store.check()
        assert contents(engine, points_address) == []
        swap(engine, points_address, other_address)
        await deliver(store, late)
        assert len(await points(store)) == 3


async def test_stores_whose_addresses_are_mixed_up_leave_each_other_alone(
    tmp_path: Path, postgres_dsn: str, other_dsn: str, points_address: str, other_address: str, engine: Engine
) -> None:
    async with AsyncExitStack() as stack:
        stores: list[Any] = []
        for dsn, address in ((postgres_dsn, points_address), (other_dsn, other_address)):
            store = await stack.enter_async_context(running_store(tmp_path / database_of(address), dsn, address))
            await Spool(store).deliver(row(0), row(5))
            stores.append(store)
        before = [contents(engine, points_address), contents(engine, other_address)]
        swap(engine, points_address, other_address)
        late = [Spool(store, "late").batch(row(step)) for store, step in zip(stores, (3, 7), strict=True)]
        for store, batch in zip(stores, late, strict=True):
            answer = await store.send(batch)
            assert isinstance(answer, Retry), answer
            assert "has points of another store: of the store" in answer.reason
            await store.delete_workload("workload-1") if store is stores[1] else None
            with pytest.raises(LensError, match="another store"):
                await store.vacuum()
        assert [contents(engine, other_address), contents(engine, points_address)] == before
        swap(engine, points_address, other_address)
        for store, batch in zip(stores, late, strict=True):
            await deliver(store, batch)
        assert [sorted(point.iteration for point in await points(store)) for store in stores] == [[0, 3, 5], [7]]


async def test_a_daemon_that_starts_at_the_wrong_one_waits_for_the_right_one(
    tmp_path: Path, postgres_dsn: str, points_address: str, other_address: str, engine: Engine
) -> None:
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        await Spool(store).deliver(row(0))
    swap(engine, points_address, other_address)
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        late = Spool(store, "late").batch(row(1))
        answer = await store.send(late)
        assert isinstance(answer, Retry), answer
        assert "another" not in answer.reason
        assert "not the one that had them" in answer.reason
        assert ask(postgres_dsn, "select count(*) from lens_cursor where spool_id = 'late'") == [(0,)]
        swap(engine, points_address, other_address)
        await deliver(store, late)
        assert len(await points(store)) == 2


async def test_the_right_one_is_taken_under_another_address(
    tmp_path: Path, postgres_dsn: str, points_address: str
) -> None:
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        await Spool(store).deliver(row(0))
    moved = points_address.replace("127.0.0.1", "localhost")
    async with running_store(tmp_path, postgres_dsn, moved) as store:
        await Spool(store, "late").deliver(row(1))
        assert len(await points(store)) == 2
    (place,) = ask(postgres_dsn, "select place from lens_place")[0]
    assert place.startswith("localhost:")


async def test_tables_without_an_id_are_taken_where_they_were_written(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine
) -> None:
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        await Spool(store).deliver(row(0))
    (store_id,) = ask(postgres_dsn, "select id from lens_store")[0]
    for table in ("lens_point", "lens_range"):
        engine.run(
            f"alter table {database_of(points_address)}.{table}"
            f" drop column of_store_{store_id}, drop column for_store_{store_id}"
        )
    async with running_store(tmp_path, postgres_dsn, points_address.replace("127.0.0.1", "localhost")) as store:
        answer = await Spool(store, "late").send(row(1))
        assert isinstance(answer, Retry), answer
        assert "Start once with the address 127.0.0.1" in answer.reason
    for address in (points_address, points_address.replace("127.0.0.1", "localhost")):
        async with running_store(tmp_path, postgres_dsn, address) as store:
            await Spool(store, address).deliver(row(1))
            assert len(await points(store)) == 2


async def test_of_two_stores_that_begin_in_one_database_one_is_refused(
    tmp_path: Path, postgres_dsn: str, other_dsn: str, points_address: str, engine: Engine
) -> None:
    async with AsyncExitStack() as stack:
        started = await asyncio.gather(
            *(
                stack.enter_async_context(running_store(tmp_path / str(number), dsn, points_address))
                for number, dsn in enumerate((postgres_dsn, other_dsn))
            ),
            return_exceptions=True,
        )
        refused = [error for error in started if isinstance(error, BaseException)]
        assert len(refused) == 1
        assert isinstance(refused[0], LensError)
        assert "points of another store" in str(refused[0])
        (store,) = [store for store in started if store not in refused]
        await Spool(store).deliver(row(1))


async def test_a_check_makes_no_tables(
    tmp_path: Path, postgres_dsn: str, points_address: str, other_address: str, engine: Engine
) -> None:
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        await store.check()
        store._options = msgspec.structs.replace(store._options, points=Secret(other_address))
        with pytest.raises(LensError, match="no points of this store"):
            await store.check()
    assert contents(engine, other_address) == []


async def test_streams_of_a_database_out_of_an_old_backup_get_no_points_of_newer_ones(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine
) -> None:
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        await Spool(store).deliver(*(row(0, run_id=f"run-{number}") for number in range(5)))
    ask(postgres_dsn, "delete from lens_stream where id > 2 returning 1")
    ask(postgres_dsn, "select setval(pg_get_serial_sequence('lens_stream', 'id'), 2)")
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        await Spool(store, "late").deliver(row(7, run_id="new", values={"loss": 3.0}))
        found = [(point.iteration, point.value) for point in await points(store) if point.run_id == "new"]
        assert found == [(7, 3.0)]
        assert ask(postgres_dsn, "select max(id) from lens_stream") == [(6,)]
        await store.vacuum()
    kept = engine.run(f"select distinct stream from {database_of(points_address)}.lens_point order by 1")
    assert kept.split() == ["1", "2", "6"]
