"""Another server for queries, a replica: asked while it is there, of this schema, and not far behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import psycopg
from psycopg_pool import PoolTimeout

from .address import READER, Address, NotReady, describe_error
from .identity import Connection
from .migrate import migrations
from .readers import Readers
from .settings import PostgreSQLSettings

_LOOK_SECONDS = 2.0
_LOOK_TIMEOUT_SECONDS = 5.0
_WAIT_SECONDS = 2.0
_MOST_BEHIND_SECONDS = 60.0
# A replica that has replayed all that it was sent, and is still sent something, is not behind, however old that is.
_STATE = b"""
    select (select max(number) from lens_migration),
        case when not pg_is_in_recovery() then 0
            when exists (select from pg_stat_wal_receiver) and pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
                then 0
            else coalesce(extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()), 0)::float8 end
"""


class Replica:
    """Looks at the replica every two seconds; `notice` says in a sentence where queries go now."""

    def __init__(self, dsn: str, settings: PostgreSQLSettings, logger: logging.Logger) -> None:
        self.notice = "the replica (read_dsn) was not looked at yet; queries go to dsn"
        self._address = Address(dsn, settings, "prefer-standby")
        self._settings = settings
        self._logger = logger
        self._readers: Readers | None = None
        self._looking: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ending = False

    def start(self) -> None:
        """Begin to look."""
        self._ending = False
        self._keeper = asyncio.create_task(self._check_repeatedly(), name="lens replica")

    async def stop(self) -> None:
        """Close all connections."""
        self._ending = True
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        await self._stop_using("Lens stops", logging.DEBUG)

    async def check_replica(self) -> None:
        """Look once. Raises psycopg.Error, NotReady."""
        try:
            await self._check_lag()
        finally:
            await self._stop_using("only looked at", logging.DEBUG)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection | None]:
        """A connection to read with; None where the replica cannot be asked now. Raises psycopg.OperationalError."""
        async with contextlib.AsyncExitStack() as stack:
            found = None
            if self._readers is not None:
                with contextlib.suppress(PoolTimeout, psycopg.OperationalError):  # the next look says what it is
                    found = await stack.enter_async_context(self._readers.connection())
            yield found

    async def _check_repeatedly(self) -> None:
        # Before Python 3.12 wait_for swallows a cancellation that comes together with the result.
        while not self._ending:
            try:
                await asyncio.wait_for(self._check_lag(), _LOOK_TIMEOUT_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is said and looked at again
                await self._stop_using(str(error) if isinstance(error, NotReady) else describe_error(error))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _check_lag(self) -> None:
        if self._looking is None or self._looking.closed:
            await self._address.inspect_server()
            self._looking = await self._address.connect(_LOOK_TIMEOUT_SECONDS, READER)
        row = await (await self._looking.execute(_STATE)).fetchone()
        schema, behind_seconds = row or (None, 0.0)
        if schema != migrations()[-1].number:
            raise NotReady(f"it is at migration {schema}, this Lens writes {migrations()[-1].number}")
        if behind_seconds > _MOST_BEHIND_SECONDS:
            raise NotReady(f"it is {behind_seconds:.0f} s behind")
        if self._readers is None:
            self._readers = await Readers(self._address, self._settings, "lens-replica", _WAIT_SECONDS).open()
            self._logger.info("queries go to the replica (read_dsn)")
        self.notice = f"queries go to the replica (read_dsn), which is {behind_seconds:.1f} s behind"

    async def _stop_using(self, why: str, level: int = logging.WARNING) -> None:
        """Ask the replica no more until it has been looked at."""
        notice = f"the replica (read_dsn) is not used: {why}; queries go to dsn"
        if notice != self.notice:
            self._logger.log(level, "%s", notice)
        self.notice = notice
        readers, self._readers = self._readers, None
        looking, self._looking = self._looking, None
        if looking is not None:
            await looking.close()
        if readers is not None:
            await readers.close()
