"""PostgreSQL that dies, is absent, refuses: every row is there exactly once afterwards, and no text says a password."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.address import answer_for
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres

from lens_core import Delivered, Evidence, Poisoned, Position, Retry, Secret, Unavailable
from tests.plugins.sinks.postgresql.support import ORIGIN, Spool, ask, points, row, running_store

DEADLINE_SECONDS = 240.0
WRITING_BACKEND = (
    "select max(pid) from pg_stat_activity where application_name = 'lens' and query not like '%set_config%'"
)


async def delivered(store: Any, batch: Any) -> int:
    """Send a batch until it is taken, as the delivery does; how often that was too early."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
    retries = 0
    while asyncio.get_running_loop().time() < deadline:
        answer = await store.send(batch)
        if isinstance(answer, Delivered):
            return retries
        assert isinstance(answer, Retry), answer
        retries += 1
        await asyncio.sleep(0.02)
    raise AssertionError("the store did not come back")


@pytest.mark.parametrize("victim", ["postmaster", "backend"])
async def test_kill_9_of_postgresql_in_the_middle_of_writing(tmp_path: Path, victim: str) -> None:
    async with running_store(tmp_path, None) as store:
        spool = Spool(store)
        retries = 0
        for number in range(30):
            batch = spool.batch(*(row(number * 100 + step, session="s") for step in range(100)))
            writing = asyncio.create_task(delivered(store, batch))
            if number in (10, 20):
                await asyncio.sleep(0)
                pid = store.database.embedded_pid
                if victim == "backend":
                    ((pid,),) = ask(store.database.dsn, WRITING_BACKEND)
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
            retries += await writing
        assert [p.iteration for p in await points(store)] == list(range(3000))
        assert [s.count for s in await store.metric_sources("workload-1")] == [3000]
        assert victim == "backend" or retries > 0
    assert not list(tmp_path.glob("postgresql.run"))


async def test_an_answer_that_was_lost_is_found_in_the_position(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        batch = Spool(store).batch(*(row(step) for step in range(500)))
        sending = asyncio.create_task(store.send(batch))
        while not ask(postgres_dsn, "select 1 from lens_stream"):
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await delivered(store, batch)
        assert await store.position("spool-1") == Position(1, 500)
        assert len(await points(store)) == 500


async def test_absent_postgresql_stops_nobody_and_is_found_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dsn = f"postgresql://lens:very-secret@127.0.0.1:{taken.getsockname()[1]}/lens"
        async with running_store(tmp_path, dsn) as store:
            answer = await Spool(store).send(row(0))
            assert isinstance(answer, Retry)
            with pytest.raises(Unavailable) as unavailable:
                await store.metric_sources("workload-1")
            with pytest.raises(Unavailable):
                await points(store)
            with pytest.raises(psycopg.OperationalError) as refused:
                await store.check()
    said = f"{answer.reason} {unavailable.value} {refused.value} {caplog.text} {store.settings!r}"
    assert "refused" in said
    assert "very-secret" not in said


async def test_postgresql_that_comes_late_gets_everything(tmp_path: Path) -> None:
    server = EmbeddedPostgres(
        tmp_path / "late", logging.getLogger("tests.late"), shared_buffers=16 << 20, max_wal=64 << 20
    )
    dsn = f"host={tmp_path / 'late.run'} port=5432 user=lens dbname=postgres"
    async with running_store(tmp_path, dsn) as store:
        batch = Spool(store).batch(row(0), row(1))
        assert isinstance(await store.send(batch), Retry)
        await server.start()
        try:
            await delivered(store, batch)
            assert len(await points(store)) == 2
            await server.stop()
            assert isinstance(await store.send(Spool(store, "other").batch(row(2))), Retry)
            with pytest.raises(Unavailable):
                await asyncio.wait_for(store.metric_sources("workload-1"), 240)
            await server.start()
            await delivered(store, Spool(store, "third").batch(row(3)))
        finally:
            await server.stop()


def test_a_dsn_that_cannot_be_read_is_not_quoted() -> None:
    with pytest.raises(ValueError, match="is no connection string") as error:
        PostgreSQL.Settings(dsn=Secret("host=db password='very-secret"))
    assert "very-secret" not in str(error.value)


async def test_a_stream_that_somebody_removed_is_made_again(spool: Spool, store: Any, postgres_dsn: str) -> None:
    await spool.deliver(row(0))
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("delete from lens_subject")
    await delivered(store, spool.batch(row(1)))
    assert [p.iteration for p in await points(store)] == [1]


async def test_what_is_too_deep_for_json_is_poison_and_not_a_reason_to_wait(spool: Spool, store: Any) -> None:
    for depth in (500, 5_000, 50_000):
        facts: dict[str, Any] = {}
        for _ in range(depth):
            facts = {"deeper": facts}
        answer = await spool.send(Evidence(origin=ORIGIN, source="wandb", facts=facts))
        assert isinstance(answer, Delivered | Poisoned), answer
    assert isinstance(answer, Poisoned)


async def test_a_read_only_database_is_no_fault_of_the_data(spool: Spool, store: Any, postgres_dsn: str) -> None:
    """As after a failover that leaves connections to the former primary open: the next try goes to the new one."""
    await spool.deliver(row(0))
    async with store.database.writing() as connection:
        await connection.execute("set default_transaction_read_only = on")
    answer = await spool.send(row(1))
    assert isinstance(answer, Retry)
    assert "read-only" in answer.reason
    await spool.deliver(row(1))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DiskFull("full"), Retry),
        (psycopg.errors.AdminShutdown("bye"), Retry),
        (psycopg.errors.SerializationFailure("again"), Retry),
        (psycopg.errors.DeadlockDetected("again"), Retry),
        (psycopg.errors.QueryCanceled("slow"), Retry),
        (psycopg.errors.InsufficientPrivilege("no"), Retry),
        (psycopg.errors.UndefinedTable("no"), Retry),
        (psycopg.OperationalError("connection lost"), Retry),
        (psycopg.errors.ForeignKeyViolation("gone"), Retry),
        (psycopg.errors.UntranslatableCharacter("\\u0000"), Poisoned),
        (psycopg.errors.NumericValueOutOfRange("big"), Poisoned),
        (psycopg.errors.ProgramLimitExceeded("index row"), Poisoned),
        (psycopg.errors.StatementTooComplex("deep"), Poisoned),
    ],
)
def test_what_an_error_means(error: psycopg.Error, kind: type) -> None:
    assert isinstance(answer_for(error), kind)
