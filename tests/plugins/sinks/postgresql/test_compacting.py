"""The background that makes blocks: it ends when it is told to, and one stream that fails stops no other."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lens_plugins.sinks.postgresql import upkeep, waiting
from lens_plugins.sinks.postgresql.compacting import Compactor
from lens_plugins.sinks.postgresql.retention import Policy

from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store

_WAITING = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like 'update lens_stream%'"
_BLOCKED = "select id, blocked_rows from lens_stream where blocked_rows > 0 order by id"
DEADLINE_SECONDS = 240.0


async def test_it_ends_although_its_connection_breaks_just_then(spool: Spool, store: Any, postgres_dsn: str) -> None:
    """The statement fails while it is being called off: that error comes in place of the cancellation."""
    await spool.deliver(*(row(step, values={"loss": 1.0}) for step in range(5000)))
    compactor = Compactor(store.database, store._points, logging.getLogger("blocks"), Policy())
    with psycopg.connect(postgres_dsn) as other:
        other.execute("select from lens_stream for update")
        compactor.start()
        pid = await backend_that_waits(postgres_dsn)
        os.kill(pid, signal.SIGSTOP)
        stopping = asyncio.create_task(compactor.stop())
        for _ in range(3):  # the cancellation is on its way into the statement
            await asyncio.sleep(0)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        await asyncio.wait_for(stopping, DEADLINE_SECONDS)


async def backend_that_waits(dsn: str) -> int:
    """The server's process that makes blocks, once it stands before somebody else's lock."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
    while not (found := ask(dsn, _WAITING)):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    return int(found[0][0])


async def test_a_stream_that_fails_stops_no_other(
    tmp_path: Path, postgres_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody put something into a row that is no number: the blocks of all other streams are made all the same."""
    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        rows = (row(step, run_id=f"run-{run}") for run in range(3) for step in range(5000))
        await Spool(store).deliver(*rows)
        spoil = "update lens_row set metrics = '{\"loss\": null}' where row_step = 7 and stream_id < 3 returning 1"
        assert len(ask(postgres_dsn, spoil)) == 2
    async with running_store(tmp_path, postgres_dsn) as store:
        await until(lambda: ask(postgres_dsn, _BLOCKED) == [(3, 5000)])
        connection = await store.database.connect()
        async with connection:
            found = await upkeep.clean_database(connection, store._points, Policy())
        assert set(found["streams_failed"]) == {"1", "2"}
    assert ask(postgres_dsn, _BLOCKED) == [(3, 5000)]
    assert "could not make blocks of stream 1: ValidationError" in caplog.text


async def test_streams_stay_pending_while_the_database_is_away(spool: Spool, store: Any, postgres_dsn: str) -> None:
    """The connection breaks at the first of two streams: both get their blocks once there is another."""
    await spool.deliver(*(row(step, run_id=f"run-{run}") for run in range(2) for step in range(5000)))
    compactor = Compactor(store.database, store._points, logging.getLogger("blocks"), Policy())
    with psycopg.connect(postgres_dsn) as other:
        other.execute("select from lens_stream for update")
        compactor.start()
        pid = await backend_that_waits(postgres_dsn)
        other.execute("select pg_terminate_backend(%s)", [pid])
    try:
        await until(lambda: len(ask(postgres_dsn, _BLOCKED)) == 2)
    finally:
        await compactor.stop()


async def test_blocks_of_a_run_that_is_looked_at_are_made_while_it_is_written(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "BUSY_ROWS", 0.0)  # more is always written than blocks would wait for
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 1e9)
    async with running_store(tmp_path, postgres_dsn) as store:
        spool = Spool(store)
        await spool.deliver(*(row(step) for step in range(waiting.WATCHED_ROWS)))
        assert 50 < len(await points(store, max_points=100)) <= 100
        await until(lambda: ask(postgres_dsn, _BLOCKED) == [(1, waiting.WATCHED_ROWS)])


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
    while not holds():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
