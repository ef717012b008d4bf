from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.address import NotReady
from lens_plugins.sinks.postgresql.clickhouse.address import parse_points_address
from lens_plugins.sinks.postgresql.clickhouse.client import ClickHouse

from lens_core import LensError, Retry, Secret, Unavailable
from tests.plugins.sinks.postgresql.clickhouse.conftest import Engine
from tests.plugins.sinks.postgresql.support import Spool, points, row, running_store


def test_the_parts_of_an_address() -> None:
    found = parse_points_address(Secret("clickhouses://us%40er:p%2Fw@ch.example/lens"))
    assert found[:3] == ("ch.example", 8443, "us@er")
    assert found.password.reveal() == "p/w"
    assert (found.database, found.is_encrypted) == ("lens", True)
    assert parse_points_address(Secret("clickhouse://ch/lens"))[1:3] == (8123, "default")
    assert "p/w" not in repr(found)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "postgresql://u:hunter22@h/db",
        "clickhouse://u:hunter22@h",
        "clickhouse://u:hunter22@/db",
        "clickhouse://u:hunter22@h:port/db",
        "clickhouse://u:hunter22@h/db/more",
        "clickhouse://u:hunter22@h/db?secure=1",
        "clickhouse://u:hunt@er22@[h/db",
    ],
)
def test_what_is_no_address_is_refused_in_words(address: str) -> None:
    with pytest.raises(ValueError, match=r"points: .*clickhouse://USER") as refused:
        PostgreSQL.Settings(points=Secret(address))
    assert "hunt" not in str(refused.value)


@given(st.text(), st.text(min_size=9, alphabet="XYZ/@:#?%"))
def test_no_error_repeats_the_address(start: str, password: str) -> None:
    said = ""
    try:
        parse_points_address(Secret(f"clickhouse://{start}:{password}@h{start}/x"))
    except ValueError as error:
        said = str(error)
    assert password not in said


async def test_a_wrong_password_is_an_outage_without_the_password(engine: Engine, points_address: str) -> None:
    clickhouse = ClickHouse(parse_points_address(Secret(points_address.replace("pa%25ss", "hunter2%25"))), 5.0)
    with pytest.raises(
        NotReady, match=r"ClickHouse at .* refused: .*Authentication failed.*right user and password"
    ) as refused:
        await clickhouse.prepare()
    assert "hunter2" not in str(refused.value)
    await clickhouse.close()


async def test_a_database_of_another_store_is_refused(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine
) -> None:
    table = f"{points_address.rsplit('/', 1)[1]}.lens_point"
    clickhouse = ClickHouse(parse_points_address(Secret(points_address)), 5.0)
    await clickhouse.prepare()
    await clickhouse.close()
    engine.run(f"insert into {table} (stream) values (1)")
    with pytest.raises(LensError, match="points of another store"):
        async with running_store(tmp_path, postgres_dsn, points_address):
            pass
    async with running_store(tmp_path, postgres_dsn) as store:
        with pytest.raises(LensError, match="points of another store"):
            await store.move_points(Secret(points_address), lambda _: None)


async def test_while_it_is_away_records_wait_and_events_are_answered(
    tmp_path: Path, postgres_dsn: str, points_address: str
) -> None:
    async with running_store(tmp_path, postgres_dsn, points_address) as store:
        await Spool(store).deliver(row(0))
    address = "clickhouse://lens:pass-word@127.0.0.1:1/lens"
    async with running_store(tmp_path, postgres_dsn, address) as store:
        answer = await asyncio.wait_for(Spool(store, "spool-2").send(row(1)), 30)
        assert isinstance(answer, Retry), answer
        assert "ClickHouse is not available" in answer.reason
        assert "pass-word" not in answer.reason
        with pytest.raises(NotReady, match="ClickHouse is not available"):
            await store.check()
        assert await store.events("workload-1") == []
        with pytest.raises(Unavailable, match="ClickHouse is not available"):
            await points(store)
