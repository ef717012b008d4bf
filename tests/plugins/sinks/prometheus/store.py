"""A receiver of remote write under our control: what it answers is scripted, what it got is kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import cramjam

from tests.plugins.sources.remote_write.wire import WriteRequest

Answer = tuple[int, dict[str, str]]


class Store:
    """An HTTP/1.1 server on a free port. `answer` says what a request gets, by its message and its number."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.taken: list[Any] = []
        self.answer: Callable[[Any, int], Answer] = lambda message, number: (204, {})
        self.delay_seconds = 0.0
        self.connections = 0
        self.at_once = self.most_at_once = 0
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the sender has closed it
            while await self._one(reader, writer):
                continue
        self._writers.discard(writer)
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((headers, body))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await asyncio.sleep(self.delay_seconds)
        self.at_once -= 1
        message = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(body)))
        status, more = self.answer(message, len(self.requests))
        if status == 0:
            return False
        if status < 300:
            self.taken.append(message)
        text = b"" if status < 300 else b"because"
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(text)}", *(f"{n}: {v}" for n, v in more.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + text)
        await writer.drain()
        return more.get("Connection") != "close"

    def drop_connections(self) -> None:
        """Close all connections, as a proxy does with those that idle."""
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def running_store() -> AsyncIterator[Store]:
    """A store that listens."""
    store = Store()
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0)
    store.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/v1/write"
    try:
        yield store
    finally:
        server.close()
        store.drop_connections()
        await server.wait_closed()
