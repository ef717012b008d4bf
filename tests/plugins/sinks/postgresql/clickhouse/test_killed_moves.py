"""`lens db move-points` is killed in every phase while the store is written to: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from lens_plugins.sinks.postgresql.plugin import PostgreSQL

from lens_core import Retry
from tests.plugins.sinks.postgresql.clickhouse.conftest import Engine
from tests.plugins.sinks.postgresql.clickhouse.test_ownership import database_of
from tests.plugins.sinks.postgresql.clickhouse.test_twins import Clock, Traffic, answers, deliver, other_dsn
from tests.plugins.sinks.postgresql.support import ask, running_store

__all__ = ["other_dsn"]
ROOT = Path(__file__).parents[5]
# Statements of all phases, in their order.
COPYING = (
    "create trigger lens_row_moving_insert",
    "select id, data_source from lens_stream",
    "select distinct stream from lens_point",
    "order by row_step limit",
    "lens_range",
    "lens_point ['stream'",
    "sum(bits)",
    "insert into lens_moved_stream",
)
NOTED = ("from lens_moving_row", "join lens_row r using", "(stream, step) in", "delete from lens_moving_row")
SWITCHING = (
    "lock table lens_stream",
    "update lens_stream s set overwritten",
    "drop trigger if exists lens_row_moving_update",
    "truncate lens_moving_row",
    "insert into lens_place",
    "create trigger lens_row_elsewhere",
)


@pytest.mark.slow("moves a store many times, each time until it is killed")
@pytest.mark.parametrize("phase", [COPYING, NOTED, SWITCHING], ids=["copying", "noted", "switching"])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
async def test_a_move_that_is_killed_in_every_phase_loses_and_doubles_nothing(
    tmp_path: Path,
    postgres_dsn: str,
    other_dsn: str,
    points_address: str,
    engine: Engine,
    moment: str,
    phase: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(sys.modules[PostgreSQL.__module__], "time", clock)
    traffic = Traffic({"before": 11, "during": 12, "after": 13}[moment], extreme=True)
    refused = []
    mover = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.plugins.sinks.postgresql.clickhouse.killed_move"),
        *(str(tmp_path / "mover"), postgres_dsn, points_address),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert mover.stdin is not None
    assert mover.stdout is not None
    async with (
        running_store(tmp_path / "one", postgres_dsn, blocks=False, history_limit=4) as store,
        running_store(tmp_path / "other", other_dsn, blocks=False, history_limit=4) as twin,
    ):

        async def write() -> None:
            """The next batch, into both; the store refuses it once its points have moved."""
            clock.now_ns += 10**9
            batch = traffic.batch()
            await deliver(twin, batch)
            answer = await store.send(batch)
            if isinstance(answer, Retry):
                assert "moved to ClickHouse" in answer.reason, answer
                refused.append((clock.now_ns, batch))

        for _ in range(6):
            await write()
        for part in (*phase, ""):
            mover.stdin.write(f"{moment if part else 'never'}\t{part}\n".encode())
            answer = asyncio.ensure_future(mover.stdout.readline())
            for _ in range(3):
                if not answer.done():
                    await write()
                    await asyncio.wait([answer], timeout=0.5)
            said = (await answer).decode()
            assert said == "killed\n" if part else said.startswith("moved "), f"{part}: {said}"
            assert ask(postgres_dsn, "select count(*) from lens_place") == [(0 if part else 1,)]
        mover.stdin.close()
        await mover.wait()
        wanted = ask(
            postgres_dsn,
            "select count(*), sum((select count(*) from jsonb_object_keys(metrics))) from lens_row",
        )
        found = engine.run(
            "select uniqExact((stream, step)), uniqExactIf((stream, step, metric), metric != '\\0') from"
            f" {database_of(points_address)}.lens_point"
        )
        assert [tuple(map(int, found.split()))] == wanted
        every = await answers(twin, 1)
    async with running_store(tmp_path / "one", postgres_dsn, points_address, blocks=False, history_limit=4) as store:
        for clock.now_ns, batch in refused:
            await deliver(store, batch)
        moved = await answers(store, 1)
        for question, answered in every.items():
            assert moved[question] == answered, question
