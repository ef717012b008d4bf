"""The way to PostgreSQL: brought up in the background, kept up, one connection to write and a pool to read.

A PostgreSQL that is not there stops nobody: writing answers with the reason, reading raises Unavailable, and bringing
it up goes on. An embedded server that ends is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from lens_core import ConfigurationError, Context, LensError, Unavailable

from .embedded import EmbeddedPostgres
from .errors import describe
from .identity import Connection
from .migrate import DatabaseTooNew, migrate
from .sessions import SharedConnection, shares_sessions
from .settings import PostgreSQLSettings

_FIRST_TRY_SECONDS = 20.0
_LONGEST_PAUSE_SECONDS = 5.0
_POOL_WAIT_SECONDS = 5.0
_STABLE_SECONDS = 10.0
_OLDEST_SERVER = 150_000
_WRITER = (
    "select set_config('statement_timeout', '{timeout_ms}', {local}),"
    # Acknowledged means on disk, whatever the server's default is.
    " case current_setting('synchronous_commit') when 'off' then set_config('synchronous_commit', 'on', {local}) end"
)
_READER = (
    "select set_config('statement_timeout', '{timeout_ms}', {local}),"
    # A reader who takes no more pieces gives the connection back, and the snapshot that it holds.
    " set_config('idle_in_transaction_session_timeout', '{timeout_ms}', {local})"
)


class NotReady(LensError):
    """PostgreSQL is not there now; the text says why."""


class Database:
    """Connections to one database."""

    def __init__(self, settings: PostgreSQLSettings, context: Context) -> None:
        self._settings = settings
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
        self._keeper: asyncio.Task[None] | None = None
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._writer: Connection | None = None
        self._shared = False  # whether a pooler gives each transaction another session
        self._writing = asyncio.Lock()

    @property
    def dsn(self) -> str:
        """The connection string; it may hold a password. Raises LensError before the embedded server runs."""
        if self._settings.dsn is not None:
            return self._settings.dsn.reveal()
        assert self._embedded is not None  # one of the two is always there
        return self._embedded.dsn

    @property
    def embedded_pid(self) -> int | None:
        """The process id of the embedded server, while there is one."""
        return None if self._embedded is None else self._embedded.pid

    async def start(self) -> None:
        """Try once, go on trying in the background if that fails.

        Raises ConfigurationError for a dsn that cannot be read, DatabaseTooNew for a database of a newer Lens.
        """
        self._check_dsn()
        first_try: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep_up(first_try))
        try:
            await asyncio.wait_for(asyncio.shield(first_try), _FIRST_TRY_SECONDS)
        except asyncio.TimeoutError:
            self._logger.warning("PostgreSQL takes long to come up; it is waited for in the background")
        except DatabaseTooNew:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close all connections; end the embedded server."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        await self._disconnect()
        if self._embedded is not None:
            await self._embedded.stop()

    async def connect(self, timeout_seconds: float | None = None) -> Connection:
        """A new connection in autocommit mode (transactions are explicit). Raises psycopg.OperationalError."""
        timeout = self._settings.write_timeout_seconds if timeout_seconds is None else timeout_seconds
        connection = await self._connect(SharedConnection if self._shared else psycopg.AsyncConnection)
        try:
            await self._configure(connection, _WRITER, timeout)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _connect(self, kind: type[Connection] = psycopg.AsyncConnection) -> Connection:
        return await kind.connect(self.dsn, autocommit=True, **self._connection_options())

    async def check(self) -> None:
        """Connect once. Raises psycopg.Error, NotReady for a server that will not do."""
        await self._check_server()

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
        pool = self._pool
        if not self._ready.is_set() or pool is None:
            raise Unavailable(f"PostgreSQL is not available: {self._problem}")
        try:
            async with pool.connection() as connection:
                if self._shared:  # so that single statements have their time limit, too
                    async with connection.transaction():
                        yield connection
                else:
                    yield connection
        except (PoolTimeout, psycopg.OperationalError) as error:
            raise Unavailable(f"PostgreSQL is not available: {describe(error)}") from None

    def _check_dsn(self) -> None:
        if self._settings.dsn is None:
            return
        try:
            psycopg.conninfo.conninfo_to_dict(self._settings.dsn.reveal())
        except psycopg.Error:
            # The parser quotes what it could not read, which may be the password.
            raise ConfigurationError("dsn is no connection string that PostgreSQL's client can read") from None

    async def _keep_up(self, first_try: asyncio.Future[None]) -> None:
        pause = 0.1
        while True:
            try:
                await self._bring_up()
            except DatabaseTooNew as error:
                self._problem = str(error)
                self._logger.error("%s", error)
                if not first_try.done():
                    first_try.set_exception(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is said and tried again
                self._problem = describe(error)
                self._logger.warning("PostgreSQL is not available, trying again in %.1f s: %s", pause, self._problem)
                if not first_try.done():
                    first_try.set_result(None)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            self._ready.set()
            if not first_try.done():
                first_try.set_result(None)
            if self._embedded is None:
                return
            came_up = asyncio.get_running_loop().time()
            code = await self._embedded.wait()
            self._ready.clear()
            self._problem = f"the embedded PostgreSQL ended with code {code}"
            self._logger.error("%s; it is started again", self._problem)
            await self._disconnect()
            stable = asyncio.get_running_loop().time() - came_up > _STABLE_SECONDS
            pause = 0.1 if stable else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def _bring_up(self) -> None:
        if self._embedded is not None and self._embedded.pid is None:
            await self._embedded.start()
        await self._check_server()
        connection = await self.connect()
        try:
            steps = await migrate(connection)
        finally:
            await connection.close()
        if steps:
            self._logger.info("the database was brought up to date in %d steps", steps)
        pool = AsyncConnectionPool(
            self.dsn,
            connection_class=SharedConnection if self._shared else psycopg.AsyncConnection,
            kwargs={"autocommit": True, **self._connection_options()},
            min_size=1,
            max_size=self._settings.query_connections,
            timeout=_POOL_WAIT_SECONDS,
            reconnect_timeout=3600.0,
            configure=self._configure_reader,
            check=AsyncConnectionPool.check_connection,
            open=False,
            name="lens-queries",
        )
        try:
            # Its first connection is waited for: a pool that is closed while it makes one leaves it open.
            await pool.open(wait=True, timeout=_FIRST_TRY_SECONDS)
        except BaseException:
            await pool.close(timeout=1.0)
            raise
        self._pool = pool

    async def _check_server(self) -> None:
        """Learn how sessions are; raise NotReady for a server that is too old."""
        async with await self._connect() as connection:
            if connection.info.server_version < _OLDEST_SERVER:
                version = connection.info.server_version // 10_000
                raise NotReady(f"PostgreSQL {version} is too old: 15 or newer is needed")
        self._shared = await shares_sessions(self._connect)

    async def _disconnect(self) -> None:
        if self._pool is not None:
            await self._pool.close(timeout=1.0)
            self._pool = None
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

    async def _configure_reader(self, connection: Connection) -> None:
        # Said with the BEGIN of each transaction, so that it costs no statement of its own.
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.set_read_only(True)
        await self._configure(connection, _READER, self._settings.statement_timeout_seconds)

    async def _configure(self, connection: Connection, settings: str, timeout_seconds: float) -> None:
        """Say settings once for the session, or have every transaction say them for itself."""
        is_shared = isinstance(connection, SharedConnection)
        said = settings.format(timeout_ms=int(timeout_seconds * 1000), local="true" if is_shared else "false")
        if isinstance(connection, SharedConnection):
            connection.settings, connection.another = said, self.connect
            connection.prepare_threshold = None
        else:
            await connection.execute(said.encode())

    def _connection_options(self) -> dict[str, Any]:
        timeout_ms = int(self._settings.write_timeout_seconds * 1000)
        options: dict[str, Any] = {
            "connect_timeout": self._settings.connect_timeout_seconds,
            "application_name": "lens",
            "tcp_user_timeout": timeout_ms,
        }
        given = psycopg.conninfo.conninfo_to_dict(self.dsn)
        if "," in f"{given.get('host', '')}{given.get('hostaddr', '')}":
            # Several servers are a primary and its standbys: the one that writes is wanted, whichever that is today.
            options["target_session_attrs"] = given.get("target_session_attrs", "read-write")
        return options
