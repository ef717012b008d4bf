"""One connection to one address, one POST at a time: what a shard needs and no more.

A general HTTP client costs several times what the rest of the path costs for a request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from lens_core.plugin_api.tls import client_context

MAX_ANSWER_BYTES = 64 * 1024


class Answered(NamedTuple):
    """A status, the headers in lower case, and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Address(NamedTuple):
    """The address to connect to, and the path to request; `authority` is the Host header."""

    host: str
    port: int
    tls: bool
    target: str
    authority: str


def address_of(url: str) -> Address:
    """The parts of a URL; raises ValueError for one without a host."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("the url has no host")
    tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    authority = parts.netloc.rpartition("@")[2]
    return Address(parts.hostname, parts.port or (443 if tls else 80), tls, target, authority)


class _Connection(asyncio.Protocol):
    """One connection, and the parser of its answers; callbacks instead of streams, which cost more than the rest."""

    def __init__(self) -> None:
        self.is_open = False
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = b""
        self._answer: asyncio.Future[Answered] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_open = True
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionResetError("the connection was closed before the answer was complete"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(OSError(f"the answer is not HTTP: {error}"))

    def on_message_begin(self) -> None:
        self._headers = {}
        self._body = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self._body += piece[: MAX_ANSWER_BYTES - len(self._body)]

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive() or self._answer is None:
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answered(self._parser.get_status_code(), self._headers, self._body))

    def _fail(self, error: Exception) -> None:
        """Close it; nobody has an answer from it any more."""
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def close(self) -> None:
        self.is_open = False
        self._transport.close()

    async def exchange(self, head: bytes, body: bytes, timeout_seconds: float) -> Answered:
        """Send a request and wait for its answer. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        late = TimeoutError(f"no answer within {timeout_seconds:g} s")
        alarm = loop.call_later(timeout_seconds, self._fail, late)
        answered = False
        try:
            self._transport.writelines((head, body))
            answer = await self._answer
            answered = True
            return answer
        finally:
            alarm.cancel()
            self._answer = None
            if not answered:
                self.close()


class Poster:
    """Keeps its connection open; opens it anew when the other side has closed it."""

    def __init__(self, address: Address, headers: Mapping[str, str], timeout_seconds: float, ca_file: str = "") -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._tls = client_context(ca_file) if address.tls else None
        fixed = {"Host": address.authority, **headers}
        lines = [f"POST {address.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fixed.items())]
        if any(letter in line for line in lines for letter in "\r\n"):
            raise ValueError("a header holds a line break")
        self._head = "\r\n".join(lines).encode("latin-1")
        self._connection: _Connection | None = None

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answered:
        """Send and wait for the answer. Raises OSError (TimeoutError included) when there is none."""
        lines = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
        head = b"%b%b\r\nContent-Length: %d\r\n\r\n" % (self._head, lines.encode("latin-1"), len(body))
        if self._connection is not None and self._connection.is_open:
            # One that idled may have been closed just now; a fresh one says whether the store is there.
            with contextlib.suppress(ConnectionError):
                return await self._connection.exchange(head, body, self._timeout_seconds)
        self._connection = await self._connect()
        return await self._connection.exchange(head, body, self._timeout_seconds)

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        address = self._address
        connecting = loop.create_connection(_Connection, address.host, address.port, ssl=self._tls)
        try:
            _, connection = await asyncio.wait_for(connecting, self._timeout_seconds)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no connection within {self._timeout_seconds:g} s") from None
        return connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
