"""The cursor of each spool, sessions and attempts.

Sessions behind a pooler: with PgBouncer's `pool_mode=transaction` every transaction has another one.

What is set, locked or prepared for a session is somebody else's then. Each transaction says its settings itself there,
nothing is prepared, and a lock that outlasts a transaction is held by one of its own. Where sessions are one's own,
nothing of this is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from lens_core import Batch, Position

from .identity import Connection


async def read_position(connection: Connection, spool_id: str, sink: str) -> Position | None:
    """Return how far a sink has written a spool; None for an unknown one."""
    cursor = await connection.execute(
        'select batch, "offset" from lens_cursor where spool_id = %s and sink = %s', [spool_id, sink]
    )
    row = await cursor.fetchone()
    return None if row is None else Position(int(row[0]), int(row[1]))


def already_written(stored: Position | None, batch: Batch) -> int:
    """Count the batch's first records that are written already; 0 where that is unknown (writing again is harmless)."""
    if stored is None or stored <= batch.start or not stored.batch == batch.start.batch == batch.end.batch:
        return 0
    whole = len(batch.records) == batch.end.offset - batch.start.offset
    return stored.offset - batch.start.offset if whole else 0


class Superseded(Exception):
    """A daemon with a later lease delivers this spool by now."""


async def move_cursor(connection: Connection, batch: Batch) -> bool:
    """Move the cursor, which also makes a second writer of the same spool wait; False if it was as far already.

    Raises Superseded for a batch of an older lease than the last one.
    """
    cursor = await connection.execute(
        'insert into lens_cursor as known (spool_id, sink, batch, "offset", epoch) values (%s, %s, %s, %s, %s)'
        ' on conflict (spool_id, sink) do update set batch = excluded.batch, "offset" = excluded."offset",'
        " epoch = excluded.epoch, moved_at = now()"
        ' where (known.batch, known."offset") < (excluded.batch, excluded."offset") and known.epoch <= excluded.epoch'
        " returning 1",
        [batch.spool_id, batch.sink, batch.end.batch, batch.end.offset, batch.epoch],
    )
    if await cursor.fetchone() is not None:
        return True
    cursor = await connection.execute(
        "select epoch from lens_cursor where spool_id = %s and sink = %s", [batch.spool_id, batch.sink]
    )
    row = await cursor.fetchone()
    if row is not None and int(row[0]) > batch.epoch:
        raise Superseded
    return False


async def begin_cursor(connection: Connection, batch: Batch) -> Position:
    """Make a spool's cursor where there is none, so that what is written ahead of it is known not to be counted."""
    await connection.execute(
        'insert into lens_cursor (spool_id, sink, batch, "offset") values (%s, %s, %s, %s) on conflict do nothing',
        [batch.spool_id, batch.sink, batch.start.batch, batch.start.offset],
    )
    return batch.start


async def lock_cursor(connection: Connection, batch: Batch) -> Position:
    """Lock a spool's cursor, which is there; how far it is."""
    cursor = await connection.execute(
        'select batch, "offset" from lens_cursor where spool_id = %s and sink = %s for update',
        [batch.spool_id, batch.sink],
    )
    row = await cursor.fetchone()
    return batch.start if row is None else Position(int(row[0]), int(row[1]))


Connect = Callable[[], Awaitable[Connection]]
_ROUNDS = 3


async def shares_sessions(connect: Connect) -> bool:
    """Whether transactions of one connection are in several sessions, or those of two in one. Raises psycopg.Error.

    It shows where another transaction goes on meanwhile; not every time, where the pool has more sessions to give.
    """
    async with await connect() as one, await connect() as other:
        for _ in range(_ROUNDS):
            before = await _session(one)
            async with other.transaction():
                if await _session(other) == before or await _session(one) != before:
                    return True
    return False


async def _session(connection: Connection) -> Any:
    return await (await connection.execute("select pg_backend_pid()")).fetchone()


class SharedConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection whose transactions are in sessions of others: each begins with `settings`, as SQL.

    `another` makes one more of the same kind.
    """

    settings: str = ""
    another: Connect

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        """As psycopg's; one inside of another needs no settings of its own."""
        is_first = self.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            if is_first and self.settings:
                await self.execute(self.settings.encode())
            yield transaction


@asynccontextmanager
async def only_here(connection: Connection, number: int) -> AsyncIterator[bool]:
    """Whether nobody else has the advisory lock of this number, which is held meanwhile.

    Where what is done with it is interrupted, the connection is to be closed, which gives the lock back.
    """
    if isinstance(connection, SharedConnection):
        # A transaction that only waits with a lock keeps its session, and nothing from being vacuumed.
        async with await connection.another() as holder, holder.transaction():
            yield await _is_true(holder, "select pg_try_advisory_xact_lock(%s)", number)
        return
    is_ours = await _is_true(connection, "select pg_try_advisory_lock(%s)", number)
    try:
        yield is_ours
    finally:
        if is_ours and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            await connection.execute("select pg_advisory_unlock(%s)", [number])


async def _is_true(connection: Connection, statement: str, number: int) -> bool:
    row = await (await connection.execute(statement.encode(), [number])).fetchone()
    return row == (True,)
