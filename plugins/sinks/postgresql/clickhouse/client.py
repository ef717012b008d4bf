"""The connection to ClickHouse: made when it is first needed, its errors as those of the store, never its password."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lens_core import LensError
from lens_core.plugin_api.urls import hide, remember

from ..address import NotReady
from .address import PointsAddress
from .schema import COLUMNS, TABLE, create_statements

if TYPE_CHECKING:
    from clickhouse_connect.driver import AsyncClient

_MISSING = "points: clickhouse:// needs a package that is not installed: pip install 'lens-agent[clickhouse]'"
_MOST_QUERY_BYTES = 16 * 1024 * 1024
_OLDEST = (24, 3)
_MESSAGE_CHARACTERS = 300


class PointsAway(NotReady):
    """ClickHouse is not there now, or refused; the text says why."""


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

    @property
    def place(self) -> str:
        """The address, without user and password."""
        return f"{self._address.host}:{self._address.port}/{self._address.database}"

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def prepare(self) -> None:
        """Connect and make the table where it is not there. Raises PointsAway."""
        await self._connected()

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

    async def insert(self, columns: Sequence[Any], token: str) -> None:
        """Insert versions, once however often it is said with this token. Raises PointsAway."""
        await self._ask_client(
            "insert",
            TABLE,
            columns,
            column_names=list(COLUMNS),
            column_type_names=list(COLUMNS.values()),
            column_oriented=True,
            settings={"insert_deduplication_token": token},
        )

    async def _ask_client(self, method: str, *arguments: Any, **options: Any) -> Any:
        client = await self._connected()
        try:
            return await getattr(client, method)(*arguments, **options)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the batch is tried again
            raise PointsAway(f"ClickHouse is not available: {_describe(error)}") from None

    async def _connected(self) -> AsyncClient:
        async with self._connecting:
            if self._client is None:
                try:
                    self._client = await self._connect()
                except LensError:
                    raise
                except Exception as error:  # noqa: BLE001 - as above
                    raise PointsAway(f"ClickHouse is not available: {_describe(error)}") from None
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
                raise PointsAway(f"ClickHouse {'.'.join(version[:2])} is too old: 24.3 or newer is needed")
            for statement in create_statements(address.database):
                await client.command(statement)
        except BaseException:
            await client.close()
            raise
        return client


def _describe(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return hide(f"{type(error).__name__}: {lines[0][:_MESSAGE_CHARACTERS]}" if lines else type(error).__name__)


def text_of(name: str) -> str:
    """A text as an expression of ClickHouse's SQL, whatever is in it."""
    return f"unhex('{name.encode().hex()}')"


def list_of(numbers: Iterable[int]) -> str:
    """Numbers as a list of ClickHouse's SQL, at least one."""
    return ", ".join(map(str, numbers))
