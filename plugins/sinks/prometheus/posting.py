"""One connection to one address, one POST at a time: what a shard needs and no more.

A general HTTP client costs several times what the rest of the road costs for a request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

MAX_ANSWER_BYTES = 64 * 1024
READ_BYTES = 16 * 1024


class Answered(NamedTuple):
    """A status, the headers in lower case, and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Address(NamedTuple):
    """Where to connect to, what to ask for; `authority` is the Host header."""

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


class _Reader:
    """Callbacks of the parser of one answer."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self.body += piece[: MAX_ANSWER_BYTES - len(self.body)]

    def on_message_complete(self) -> None:
        self.complete = True


class Poster:
    """Keeps its connection open; opens it anew when the other side has closed it."""

    def __init__(self, address: Address, headers: Mapping[str, str], timeout_seconds: float, ca_file: str = "") -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._tls = ssl.create_default_context(cafile=ca_file or None) if address.tls else None
        fixed = {"Host": address.authority, **headers}
        lines = [f"POST {address.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fixed.items())]
        if any(letter in line for line in lines for letter in "\r\n"):
            raise ValueError("a header holds a line break")
        self._head = "\r\n".join(lines).encode("latin-1")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answered:
        """Send and wait for the answer. Raises OSError (TimeoutError included) when there is none."""
        try:
            return await asyncio.wait_for(self._post(body, headers), self._timeout_seconds)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no answer within {self._timeout_seconds:g} s") from None
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the answer is not HTTP: {error}") from None

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> Answered:
        lines = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
        request = b"%b%b\r\nContent-Length: %d\r\n\r\n" % (self._head, lines.encode("latin-1"), len(body))
        reused = self._streams is not None
        try:
            return await self._exchange(request, body)
        except ConnectionError:
            # A connection that idled may have been closed just now; a fresh one says whether the store is there.
            if not reused:
                raise
            return await self._exchange(request, body)

    async def _exchange(self, head: bytes, body: bytes) -> Answered:
        complete = False
        try:
            reader, writer = await self._connect()
            writer.writelines((head, body))
            await writer.drain()
            found = _Reader()
            parser = httptools.HttpResponseParser(found)
            while not found.complete:
                piece = await reader.read(READ_BYTES)
                if not piece:
                    raise ConnectionResetError("the connection was closed before the answer was complete")
                parser.feed_data(piece)
            complete = parser.should_keep_alive()
            return Answered(parser.get_status_code(), found.headers, found.body)
        finally:
            if not complete:
                self.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            host = self._address.host
            self._streams = await asyncio.open_connection(host, self._address.port, ssl=self._tls)
        return self._streams

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
