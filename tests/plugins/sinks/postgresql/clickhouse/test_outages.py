"""A ClickHouse that refuses, has no such database, is too old or comes late: said in words, and nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.clickhouse import client
from lens_plugins.sinks.postgresql.clickhouse.client_errors import describe_failure

from lens_core import LensError, Retry, Secret, Unavailable
from lens_core.plugin_api.urls import remember
from lens_core.testing import until
from tests.plugins.sinks.postgresql.clickhouse.conftest import Engine
from tests.plugins.sinks.postgresql.clickhouse.test_ownership import database_of
from tests.plugins.sinks.postgresql.clickhouse.test_twins import deliver
from tests.plugins.sinks.postgresql.support import Spool, points, row, running_store

REFUSALS = {
    "Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)": "disk is full",
    "Code: 164. DB::Exception: lens: Cannot execute query in readonly mode. (READONLY)": "create tables",
    "Code: 242. DB::Exception: Table is in readonly mode (path: /x). (TABLE_IS_READ_ONLY)": "read-only",
    "Code: 252. DB::Exception: Too many parts (3000 in all). (TOO_MANY_PARTS)": "merges do not keep up",
    "Code: 497. DB::Exception: lens: Not enough privileges. (ACCESS_DENIED)": "create tables",
    "Code: 9999. DB::Exception: Something new. (SOMETHING_NEW)": "Something new. (SOMETHING_NEW)",
}


async def test_what_clickhouse_refuses_is_said_and_comes_again(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine
) -> None:
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        spool = Spool(store)
        for step, (refusal, wanted) in enumerate(REFUSALS.items()):
            batch = spool.batch(row(step))
            for faults in ([refusal], ["", refusal]):  # of the ranges, and of the points
                engine.set_faults(*faults)
                answer = await store.send(batch)
                assert isinstance(answer, Retry), answer
                assert f"/{database_of(points_address)} refused: Code " in answer.reason
                assert wanted in answer.reason
                assert "url" not in answer.reason
            engine.set_faults()
            await deliver(store, batch)
        assert [point.iteration for point in await points(store)] == [*range(len(REFUSALS))]


async def test_a_database_that_is_gone_is_an_outage_until_it_is_back(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine
) -> None:
    name = database_of(points_address)
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        spool = Spool(store)
        await spool.deliver(row(0))
        engine.run(f"rename database {name} to {name}_away")
        late = spool.batch(row(1), row(0, values={"lr": 1.0}))
        for _ in range(2):
            answer = await store.send(late)
            assert isinstance(answer, Retry), answer
            assert "create the database" in answer.reason
            with pytest.raises(Unavailable, match="create the database"):
                await points(store)
        with pytest.raises(LensError, match="create the database"):
            await store.check()
        engine.run(f"rename database {name}_away to {name}")
        await deliver(store, late)
        assert len(await points(store)) == 3


async def test_a_store_that_begins_without_its_clickhouse_begins_when_it_is_there(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine
) -> None:
    late = f"{database_of(points_address)}_late"
    async with running_store(tmp_path, postgres_dsn, engine.address(late)) as store:
        batch = Spool(store).batch(row(0))
        answer = await store.send(batch)
        assert isinstance(answer, Retry), answer
        assert answer.reason.startswith("ClickHouse at ")
        assert "create the database" in answer.reason
        with pytest.raises(Unavailable, match="the points are not available: ClickHouse at"):
            await points(store)
        assert "as the points are not available" in store.notice()
        engine.run(f"create database {late}")
        await until(lambda: not store.notice(), "the store goes on by itself")
        await deliver(store, batch)
        assert len(await points(store)) == 1
    engine.run(f"drop database {late}")


async def test_one_that_is_too_old_is_told_to_be_updated(
    tmp_path: Path, postgres_dsn: str, points_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_OLDEST", (99, 1))
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        answer = await Spool(store).send(row(0))
        assert isinstance(answer, Retry), answer
        assert "is too old: update it to 24.3 or newer" in answer.reason
    async with running_store(tmp_path / "moving", postgres_dsn) as store:
        with pytest.raises(LensError, match="too old"):
            await store.move_points(Secret(points_address), lambda _: None)


@given(st.text(max_size=400), st.sampled_from(["", "Code: 241. DB::Exception: ", "Code: 516. DB::Exception: "]))
def test_a_failure_is_one_line_without_the_password(text: str, start: str) -> None:
    remember("hunter2-hunter2")
    said = describe_failure(RuntimeError(f"{start}{text} hunter2-hunter2 {text}"), "ch:8123/lens")
    assert "hunter2-hunter2" not in said
    assert len(said.splitlines()) == 1
    assert len(said) < 1000
