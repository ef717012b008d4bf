"""The address of the database, and the meaning of its errors."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from lens_core import Answer, LensError, Poisoned, Retry

from .identity import Connection
from .sessions import SharedConnection, shares_sessions
from .settings import PostgreSQLSettings

# Classes of SQLSTATE that say something about the data, so that the same batch fails again (PostgreSQL's appendix A).
_DATA_CLASSES = frozenset({"22", "23", "54"})
DATA_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)
_NOT_DATA = frozenset({"23503"})  # a stream was removed in the meantime: the next try makes it again


def answer_for(error: BaseException) -> Answer:
    """Poisoned where the data is at fault, Retry for all else: connections, locks, full disks, wrong rights.

    Python's own errors come from encoding a record (too deep, a key that JSON does not have).
    """
    if isinstance(error, (psycopg.DataError, *DATA_ERRORS)):
        return Poisoned(describe_error(error))
    state = getattr(error, "sqlstate", None) or ""
    if state[:2] in _DATA_CLASSES and state not in _NOT_DATA:
        return Poisoned(describe_error(error))
    return Retry(describe_error(error), timed_out=isinstance(error, psycopg.errors.QueryCanceled))


def describe_error(error: BaseException) -> str:
    """One line about an error: the server's own message, without the row that it quotes in its detail."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    lines = [line.strip() for line in (primary or str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def destination_of(dsn: str) -> str:
    """The hosts with their ports and the database of a connection string, as people write it."""
    parts = conninfo_to_dict(dsn)
    hosts = str(parts.get("host") or parts.get("hostaddr") or "localhost").split(",")
    ports = str(parts.get("port") or "5432").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    servers = ",".join(sorted(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False)))
    return f"{servers}/{parts.get('dbname') or parts.get('user') or ''}"


class StreamsGone(Exception):
    """Streams that were cached exist no more: somebody removed them."""


_OLDEST_SERVER = 150_000
WRITER = (
    "select set_config('statement_timeout', '{timeout_ms}', {local}),"
    # Acknowledged means on disk, whatever the server's default is.
    " case current_setting('synchronous_commit') when 'off' then set_config('synchronous_commit', 'on', {local}) end"
)
READER = (
    "select set_config('statement_timeout', '{timeout_ms}', {local}),"
    # A reader who takes no more pieces gives the connection back, and the snapshot that it holds.
    " set_config('idle_in_transaction_session_timeout', '{timeout_ms}', {local})"
)


class NotReady(LensError):
    """PostgreSQL is not there now, or not fit; the text says why."""


class Address:
    """`server` is which of several hosts is wanted, in libpq's words; `is_shared` whether sessions are, after `look`.

    The connection string may hold a password.
    """

    def __init__(self, dsn: str, settings: PostgreSQLSettings, server: str) -> None:
        self.dsn = dsn
        self.is_shared = False
        self._settings = settings
        self._server = server

    async def inspect_server(self) -> None:
        """Learn how sessions are. Raises psycopg.Error, NotReady for a server that is too old."""
        async with await self._open_session() as connection:
            if connection.info.server_version < _OLDEST_SERVER:
                version = connection.info.server_version // 10_000
                raise NotReady(f"PostgreSQL {version} is too old: 15 or newer is needed")
        self.is_shared = await shares_sessions(self._open_session)

    @property
    def kind(self) -> type[Connection]:
        """The class of its connections."""
        return SharedConnection if self.is_shared else psycopg.AsyncConnection

    async def connect(self, timeout_seconds: float, told: str = WRITER) -> Connection:
        """A new connection in autocommit mode (transactions are explicit). Raises psycopg.OperationalError."""
        connection = await self._open_session(self.kind)
        try:
            await self.configure_session(connection, timeout_seconds, told)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _open_session(self, kind: type[Connection] = psycopg.AsyncConnection) -> Connection:
        return await kind.connect(self.dsn, **self.options())

    async def configure_session(self, connection: Connection, timeout_seconds: float, told: str) -> None:
        """Say settings once for the session, or have every transaction say them for itself."""
        is_shared = isinstance(connection, SharedConnection)
        said = told.format(timeout_ms=int(timeout_seconds * 1000), local="true" if is_shared else "false")
        if isinstance(connection, SharedConnection):
            connection.settings, connection.another = said, lambda: self.connect(timeout_seconds, told)
            connection.prepare_threshold = None
        else:
            await connection.execute(said.encode())

    def options(self) -> dict[str, Any]:
        """Return the connection options beside the connection string."""
        options: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": self._settings.connect_timeout_seconds,
            "application_name": "lens",
            "tcp_user_timeout": int(self._settings.write_timeout_seconds * 1000),
        }
        given = psycopg.conninfo.conninfo_to_dict(self.dsn)
        if "," in f"{given.get('host', '')}{given.get('hostaddr', '')}":
            # Several servers are a primary and its standbys: one kind of them is wanted, whichever that is today.
            options["target_session_attrs"] = given.get("target_session_attrs", self._server)
        return options
