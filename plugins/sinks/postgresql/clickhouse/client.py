"""The connection to ClickHouse: made when it is first needed, its errors as those of the store, never its password."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lens_core import LensError
from lens_core.plugin_api.urls import remember

from .address import PointsAddress
from .client_errors import PointsAway, describe_failure
from .native import Block
from .ownership import Ownership, Run, create_tables, verify_tables
from .schema import create_statements

if TYPE_CHECKING:
    from clickhouse_connect.driver import AsyncClient

_MISSING = "points: clickhouse:// needs a package that is not installed: pip install 'lens-agent[clickhouse]'"
_MOST_QUERY_BYTES = 16 * 1024 * 1024
_OLDEST = (24, 3)
# No such column, unknown name, table, database: what a statement meets at the ClickHouse of somebody else.
_CODES_OF_OTHERS = ("Code: 16.", "Code: 47.", "Code: 60.", "Code: 81.")
_NOBODY = Ownership("unknown", "")


class ClickHouse:
    """One database of a ClickHouse, which is asked over HTTP."""

    def __init__(self, address: PointsAddress, timeout_seconds: float) -> None:
        if importlib.util.find_spec("clickhouse_connect") is None or importlib.util.find_spec("aiohttp") is None:
            raise LensError(_MISSING)
        if address.password.reveal():
            remember(address.password.reveal())
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._client: AsyncClient | None = None
        self._connecting = asyncio.Lock()
        self._owner: Ownership | None = None
        self._is_verified = False
        self._verified = 0

    def expect_store(self, owner: Ownership) -> None:
        """Ask from now on for points of this store only."""
        if owner != self._owner:
            self._owner, self._is_verified = owner, False

    def own_rows(self, table: str) -> str:
        """A table with a condition, to which others may be added; at the ClickHouse of another store it is an error."""
        return f"{table} where {(self._owner or _NOBODY).read_column}"

    @property
    def place(self) -> str:
        """The address, without user and password."""
        return f"{self._address.host}:{self._address.port}/{self._address.database}"

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def ping(self) -> None:
        """Connect, and look at nothing else. Raises PointsAway."""
        await self._connected()

    async def verify(self, *, again: bool = False) -> int:
        """See that the points of the expected store are here; how often that was seen. Raises PointsAway.

        It is looked at after each connection and each failure; `again` also without one.
        """
        if again:
            self._is_verified = False
        await self._connected()
        return self._verified

    async def prepare(self) -> None:
        """Connect, and make the tables of the expected store where they are not there. Raises PointsAway."""
        owner, client = self._owner, await self._connected()
        try:
            if owner is None:
                for statement in create_statements():
                    await client.command(statement)
            else:
                await create_tables(_runner(client), owner, self.place)
        except LensError:
            raise
        except Exception as error:  # noqa: BLE001 - as below
            raise PointsAway(describe_failure(error, self.place)) from None

    async def fetch(self, statement: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Rows of numbers as a structured array. Raises PointsAway."""
        data: bytes = await self._ask_client("raw_query", statement, fmt="RowBinary")
        return np.frombuffer(data, dtype)

    async def fetch_rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """Rows of anything. Raises PointsAway."""
        found: Sequence[Sequence[Any]] = (await self._ask_client("query", statement)).result_rows
        return found

    async def execute(self, statement: str) -> None:
        """Run a statement without an answer. Raises PointsAway."""
        await self._ask_client("command", statement)

    async def insert(self, table: str, names: Sequence[str], block: Block, token: str) -> None:
        """Insert a block of these columns, once however often it is said with this token. Raises PointsAway."""
        # Not collected with others by the server: an answer means that it is stored. Not merged within the block,
        # either: readers merge, and it is a third of what an insert costs.
        settings = {"insert_deduplication_token": token, "async_insert": 0, "optimize_on_insert": 0}
        named = [*names, (self._owner or _NOBODY).write_column]
        # The statement and its data in one piece, or the client would copy the data to put the statement before it.
        statement = f"insert into {table} ({', '.join(named)}) format Native\n".encode()
        data = b"".join([statement, *block])
        await self._ask_client("raw_insert", None, insert_block=data, settings=settings, fmt="Native")

    async def _ask_client(self, method: str, *arguments: Any, **options: Any) -> Any:
        if self._owner is None:
            raise PointsAway("PostgreSQL, which knows the id of this store, was not available since the start")
        client = await self._connected()
        try:
            return await getattr(client, method)(*arguments, **options)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the batch is tried again
            self._is_verified = False
            if any(code in str(error) for code in _CODES_OF_OTHERS):
                await self._name_owner(client, self._owner)
            raise PointsAway(describe_failure(error, self.place)) from None

    async def _name_owner(self, client: AsyncClient, owner: Ownership) -> None:
        """Raise what the tables that are there say of whose they are."""
        try:
            await verify_tables(_runner(client), owner, self.place)
        except LensError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            raise PointsAway(describe_failure(error, self.place)) from None

    async def _connected(self) -> AsyncClient:
        async with self._connecting:
            try:
                if self._client is None:
                    self._client = await self._connect()
                if not self._is_verified and self._owner is not None and self._owner.place:
                    await verify_tables(_runner(self._client), self._owner, self.place)
                    self._is_verified = True
                    self._verified += 1
            except LensError:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                raise PointsAway(describe_failure(error, self.place)) from None
            return self._client

    async def _connect(self) -> AsyncClient:
        import clickhouse_connect

        address = self._address
        client = await clickhouse_connect.get_async_client(
            host=address.host,
            port=address.port,
            username=address.user,
            password=address.password.reveal(),
            database=address.database,
            secure=address.is_encrypted,
            compress=False,
            autogenerate_session_id=False,
            connect_timeout=10,
            send_receive_timeout=self._timeout_seconds,
            query_retries=0,
            settings={"max_query_size": _MOST_QUERY_BYTES},
        )
        try:
            version = (client.server_version or "0.0").split(".")
            if tuple(map(int, version[:2])) < _OLDEST:
                raise PointsAway(
                    f"ClickHouse {'.'.join(version[:2])} at {self.place} is too old: update it to 24.3 or newer"
                )
        except BaseException:
            await client.close()
            raise
        return client


def _runner(client: AsyncClient) -> Run:
    async def run_statement(statement: str) -> Sequence[Sequence[Any]]:
        if statement.startswith("select"):
            rows: Sequence[Sequence[Any]] = (await client.query(statement)).result_rows
            return rows
        await client.command(statement)
        return []

    return run_statement


def text_of(name: str) -> str:
    """A text as an expression of ClickHouse's SQL, whatever is in it."""
    return f"unhex('{name.encode().hex()}')"


def list_of(numbers: Iterable[int]) -> str:
    """Numbers as a list of ClickHouse's SQL, at least one."""
    return ", ".join(map(str, numbers))
