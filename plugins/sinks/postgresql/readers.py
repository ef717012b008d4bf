"""A pool of connections to read with, to one address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg_pool import AsyncConnectionPool

from .address import READER, Address
from .identity import Connection
from .settings import PostgreSQLSettings

_FIRST_TRY_SECONDS = 20.0


class Readers:
    """Up to `query_connections` connections, each waited for as long as is said."""

    def __init__(self, address: Address, settings: PostgreSQLSettings, name: str, wait_seconds: float) -> None:
        self._address = address
        self._timeout_seconds = settings.statement_timeout_seconds
        self._pool = AsyncConnectionPool(
            address.dsn,
            connection_class=address.kind,
            kwargs=address.options(),
            min_size=1,
            max_size=settings.query_connections,
            timeout=wait_seconds,
            reconnect_timeout=3600.0,
            configure=self._configure,
            check=AsyncConnectionPool.check_connection,
            open=False,
            name=name,
        )

    async def open(self) -> Readers:
        """Make the first connection. Raises psycopg_pool.PoolTimeout."""
        try:
            # It is waited for: a pool that is closed while it makes one leaves it open.
            await self._pool.open(wait=True, timeout=_FIRST_TRY_SECONDS)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close all connections; queries that run end."""
        await self._pool.close(timeout=1.0)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One that nobody else has; raises psycopg_pool.PoolTimeout, psycopg.OperationalError."""
        async with self._pool.connection() as connection:
            if self._address.is_shared:  # so that single statements have their time limit, too
                async with connection.transaction():
                    yield connection
            else:
                yield connection

    async def _configure(self, connection: Connection) -> None:
        # Said with the BEGIN of each transaction, so that it costs no statement of its own.
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.set_read_only(True)
        await self._address.configure_session(connection, self._timeout_seconds, READER)
