from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lens_plugins.sinks.postgresql.address import NotReady
from lens_plugins.sinks.postgresql.clickhouse import moving

from lens_core import LensError, Retry, Secret
from tests.plugins.sinks.postgresql.clickhouse.conftest import Engine
from tests.plugins.sinks.postgresql.clickhouse.test_twins import Traffic, answers, deliver
from tests.plugins.sinks.postgresql.support import Spool, ask, row, running_store


@pytest.mark.slow("moves a store three times while it is written to, and asks it everything")
async def test_a_store_in_use_moves_and_answers_as_before(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_ROWS_AT_ONCE", 40)
    monkeypatch.setattr(moving, "_ROWS_OF_THE_END", 5)
    traffic = Traffic(7, extreme=True)
    copied: list[int] = []
    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        for _ in range(12):
            await deliver(store, traffic.batch())
        engine.set_faults("", "", "before")
        with pytest.raises(NotReady, match="Memory limit"):
            await store.move_points(Secret(points_address), copied.append)
        assert copied

        async def write() -> None:
            for _ in range(6):
                await deliver(store, traffic.batch())

        writing = asyncio.create_task(write())
        engine.set_faults("after")
        with pytest.raises(NotReady):
            await store.move_points(Secret(points_address), copied.append)
        moved = await store.move_points(Secret(points_address), copied.append)
        assert moved.streams
        try:
            await writing
        except AssertionError:  # it was refused as the points had moved: it comes again below
            assert ask(postgres_dsn, "select count(*) from lens_place") == [(1,)]
        late = Spool(store, "late").batch(row(10**6))
        answer = await store.send(late)
        assert isinstance(answer, Retry), answer
        assert "moved to ClickHouse" in answer.reason
        with pytest.raises(LensError, match="already"):
            await store.move_points(Secret(points_address), copied.append)
        before = await answers(store, 1)
    with pytest.raises(LensError, match="are in the ClickHouse"):
        async with running_store(tmp_path, postgres_dsn):
            pass
    async with running_store(tmp_path, postgres_dsn, points_address, blocks=False) as store:
        after = await answers(store, 1)
        for question, wanted in before.items():
            assert after[question] == wanted, question
        await store.vacuum()
        assert ask(postgres_dsn, "select count(*) from lens_row") == [(0,)]
        assert await answers(store, 1) == after
        await deliver(store, late)
        for batch in traffic.batches:
            await deliver(store, batch)


async def test_points_in_postgresql_are_not_left_behind(tmp_path: Path, postgres_dsn: str, points_address: str) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(row(1))
    with pytest.raises(LensError, match="lens db move-points"):
        async with running_store(tmp_path, postgres_dsn, points_address):
            pass


async def test_a_row_that_is_removed_meanwhile_is_not_there_afterwards(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: moving.PointMove) -> int:
        raise moving.MoveFailed("interrupted")

    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        await Spool(store).deliver(*[row(step) for step in range(-5, 5)])
        with monkeypatch.context() as patch:
            patch.setattr(moving.PointMove, "_copy_noted", fail)
            with pytest.raises(moving.MoveFailed, match="interrupted"):
                await store.move_points(Secret(points_address), lambda _: None)
        assert ask(postgres_dsn, "delete from lens_row where row_step in (-3, 2) returning 1") == [(1,), (1,)]
        await store.move_points(Secret(points_address), lambda _: None)
    left = engine.run(f"select step from {points_address.rsplit('/', 1)[1]}.lens_point order by step")
    assert left.split() == ["-5", "-4", "-2", "-1", "0", "1", "3", "4"]


async def test_what_is_copied_is_compared(
    tmp_path: Path, postgres_dsn: str, points_address: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(*[row(step) for step in range(20)])
        original = moving.bits_of
        with monkeypatch.context() as patch:
            patch.setattr(moving, "bits_of", lambda values: original(values) + 1)
            with pytest.raises(moving.MoveFailed, match="not what was copied"):
                await store.move_points(Secret(points_address), lambda _: None)
        assert ask(postgres_dsn, "select count(*) from lens_place") == [(0,)]
        moved = await store.move_points(Secret(points_address), lambda _: None)
    assert moved == (1, 20, 20)
    assert engine.run(f"select count() from {points_address.rsplit('/', 1)[1]}.lens_point").strip() == "20"
