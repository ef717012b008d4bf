"""The way to PostgreSQL: brought up in the background, kept up, one connection to write and a pool to read.

A PostgreSQL that is not there stops nobody: writing answers with the reason, reading raises Unavailable, and bringing
it up goes on. An embedded server that ends is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import psycopg
from psycopg_pool import PoolTimeout

from lens_core import Backoff, Context, Unavailable

from .address import Address, NotReady, describe_error
from .clickhouse.client_errors import PointsAway
from .embedded import EmbeddedPostgres
from .identity import Connection
from .migrate import DatabaseTooNew, migrate
from .place import PointsElsewhere
from .point_store import PointStore
from .readers import Readers
from .replica import Replica
from .settings import PostgreSQLSettings

_FIRST_TRY_SECONDS = 20.0
_LONGEST_PAUSE_SECONDS = 5.0
_POOL_WAIT_SECONDS = 5.0
_STABLE_SECONDS = 10.0
_SAY_AGAIN_SECONDS = 300.0


class Database:
    """Connections to one database."""

    def __init__(self, settings: PostgreSQLSettings, context: Context, points: PointStore) -> None:
        self._settings = settings
        self._points = points
        self._logger = context.logger
        self._embedded: EmbeddedPostgres | None = None
        if settings.dsn is None:
            self._embedded = EmbeddedPostgres(
                context.data_dir / "postgresql",
                context.logger,
                shared_buffers=settings.embedded_shared_buffers_bytes,
                max_wal=settings.embedded_max_wal_bytes,
            )
        self._ready = asyncio.Event()
        self._problem = "not started"
        self._missing = "PostgreSQL is"
        self._said_at = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self._address: Address | None = None
        self._readers: Readers | None = None
        self._replica: Replica | None = None
        self._writer: Connection | None = None
        self._writing = asyncio.Lock()

    @property
    def dsn(self) -> str:
        """The connection string; it may hold a password. Raises LensError before the embedded server runs."""
        address = self._settings.address()
        if address is not None:
            return address
        assert self._embedded is not None  # one of the two is always there
        return self._embedded.dsn

    @property
    def embedded_pid(self) -> int | None:
        """The process id of the embedded server, while there is one."""
        return None if self._embedded is None else self._embedded.pid

    @property
    def describe_outage(self) -> str:
        """Why it is not there, where queries go if there is a replica for them; else nothing."""
        away = (
            ""
            if self._ready.is_set()
            else f"what comes waits in the spool, as {self._missing} not available: {self._problem}"
        )
        return "; ".join(filter(None, [away, self._replica.notice if self._replica is not None else ""]))

    async def start(self) -> None:
        """Try once, go on trying in the background if that fails.

        Raises DatabaseTooNew for a database of a newer Lens, PointsElsewhere for one whose points are elsewhere.
        """
        replica = self._settings.read_address()
        if replica is not None:
            self._replica = Replica(replica, self._settings, self._logger)
            self._replica.start()
        first_try: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._connect_repeatedly(first_try))
        try:
            await asyncio.wait_for(asyncio.shield(first_try), _FIRST_TRY_SECONDS)
        except asyncio.TimeoutError:
            self._logger.warning("PostgreSQL is slow to start; waiting in the background")
        except (DatabaseTooNew, PointsElsewhere):
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close all connections; end the embedded server."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self._replica is not None:
            await self._replica.stop()
        await self._disconnect()
        if self._embedded is not None:
            await self._embedded.stop()

    async def connect(self, timeout_seconds: float | None = None) -> Connection:
        """A new connection in autocommit mode (transactions are explicit). Raises psycopg.OperationalError."""
        timeout = self._settings.write_timeout_seconds if timeout_seconds is None else timeout_seconds
        return await (self._address or await self._inspect_server()).connect(timeout)

    async def check_connections(self) -> None:
        """Connect once, to the replica, too. Raises psycopg.Error, LensError for what will not do."""
        await self._inspect_server()
        replica = self._settings.read_address()
        if replica is not None:
            await Replica(replica, self._settings, self._logger).check_replica()

    async def connect_when_ready(self, timeout_seconds: float | None = None) -> Connection:
        """A new connection to a database that is up to date; a timeout of 0 is none. Raises NotReady, psycopg.Error."""
        if not self._ready.is_set():
            raise NotReady(self._problem)
        return await self.connect(timeout_seconds)

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[Connection]:
        """The connection to write with, for one at a time; a broken one is replaced by the next. Raises NotReady.

        So is one to a server that has become a standby: it may stay open for ever, and never write again.
        """
        async with self._writing:
            if not self._ready.is_set():
                raise NotReady(self._problem)
            if self._writer is None or self._writer.closed:
                self._writer = await self.connect()
            try:
                yield self._writer
            except psycopg.errors.ReadOnlySqlTransaction:
                await self._drop_writer()
                raise
            except BaseException:
                await self._drop_unless_idle()
                raise

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """A connection to read with; a transaction on it sees one snapshot. Raises Unavailable."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                connection = None
                if self._replica is not None:
                    connection = await stack.enter_async_context(self._replica.connection())
                if connection is None:
                    connection = await stack.enter_async_context(self._here().connection())
                yield connection
        except psycopg.errors.IdleInTransactionSessionTimeout:
            raise Unavailable("the answer took longer than `statement_timeout_seconds`") from None
        except (PoolTimeout, psycopg.OperationalError) as error:
            raise Unavailable(f"PostgreSQL is not available: {describe_error(error)}") from None

    def _here(self) -> Readers:
        if not self._ready.is_set() or self._readers is None:
            raise Unavailable(f"{self._missing} not available: {self._problem}")
        return self._readers

    async def _connect_repeatedly(self, first_try: asyncio.Future[None]) -> None:
        backoff = Backoff(0.1, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                await self._bring_up()
            except (DatabaseTooNew, PointsElsewhere) as error:
                self._problem = str(error)
                self._logger.error("%s", error)
                if not first_try.done():
                    first_try.set_exception(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is said and tried again
                self._log_outage(error)
                if not first_try.done():
                    first_try.set_result(None)
                await asyncio.sleep(backoff.next_delay())
                continue
            if self._said_at:
                self._logger.info("%s available again", self._missing)
            self._said_at = 0.0
            self._ready.set()
            if not first_try.done():
                first_try.set_result(None)
            if self._embedded is None:
                return
            came_up = asyncio.get_running_loop().time()
            code = await self._embedded.wait()
            self._ready.clear()
            self._missing, self._problem = "PostgreSQL is", f"the embedded PostgreSQL ended with code {code}"
            self._logger.error("%s; restarting it", self._problem)
            await self._disconnect()
            if asyncio.get_running_loop().time() - came_up > _STABLE_SECONDS:
                backoff.reset()
            await asyncio.sleep(backoff.next_delay())

    def _log_outage(self, error: Exception) -> None:
        """Say what is wrong: at once where it is something else, and every few minutes where it stays the same."""
        now = time.monotonic()
        is_points = isinstance(error, PointsAway)
        problem = str(error) if is_points else describe_error(error)
        self._missing = "the points are" if is_points else "PostgreSQL is"
        if problem != self._problem or now - self._said_at > _SAY_AGAIN_SECONDS:
            self._said_at = now
            is_own = self._embedded is not None or is_points
            hint = "" if is_own else "; `lens validate --connect FILE` tries the dsn alone"
            self._logger.warning("%s unavailable; retrying: %s%s", self._missing, problem, hint)
        self._problem = problem

    async def _bring_up(self) -> None:
        if self._embedded is not None and self._embedded.pid is None:
            await self._embedded.start()
        self._address = await self._inspect_server()
        connection = await self.connect()
        try:
            steps = await migrate(connection)
            await self._points.prepare(connection)
        finally:
            await connection.close()
        if steps:
            self._logger.info("migrated the database in %d steps", steps)
        self._readers = await Readers(self._address, self._settings, "lens-queries", _POOL_WAIT_SECONDS).open()

    async def _inspect_server(self) -> Address:
        address = Address(self.dsn, self._settings, "read-write")
        await address.inspect_server()
        return address

    async def _disconnect(self) -> None:
        if self._readers is not None:
            await self._readers.close()
        self._readers = self._address = None  # an embedded server may listen elsewhere when it is started again
        await self._drop_writer()

    async def _drop_unless_idle(self) -> None:
        """A connection that was left in the middle of something (cancelled, broken) is not used again."""
        writer = self._writer
        if writer is not None and writer.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            await self._drop_writer()

    async def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()
