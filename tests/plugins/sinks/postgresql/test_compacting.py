"""The background that makes blocks ends when it is told to, whatever its connection says about that."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import Any

import psycopg
from lens_plugins.sinks.postgresql.compacting import Compactor
from lens_plugins.sinks.postgresql.retention import Policy

from tests.plugins.sinks.postgresql.support import Spool, ask, row

_WAITING = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like 'update lens_stream%'"
DEADLINE_SECONDS = 240.0


async def test_it_ends_although_its_connection_breaks_just_then(spool: Spool, store: Any, postgres_dsn: str) -> None:
    """The statement fails while it is being called off: that error comes in place of the cancellation."""
    await spool.deliver(*(row(step, values={"loss": 1.0}) for step in range(5000)))
    compactor = Compactor(store.database, logging.getLogger("blocks"), Policy())
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
