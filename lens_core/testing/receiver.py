"""A real HTTP server on loopback that keeps what it gets and can be made to misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal, NamedTuple

Trouble = Literal["absent", "busy", "error", "too_large", "garbage", "hang"]

_STATUS: Mapping[str, tuple[int, str]] = {
    "busy": (429, "Too Many Requests"),
    "error": (500, "Internal Server Error"),
    "too_large": (413, "Content Too Large"),
}


class Received(NamedTuple):
    """One request that was answered with success."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class HttpReceiver:
    """`async with HttpReceiver() as receiver`: `receiver.url`, `receiver.received`, `await receiver.trouble("busy")`.

    Troubles: `absent` refuses connections, `busy` answers 429 with Retry-After 0, `error` 500, `too_large` 413 to
    bodies above `max_body_bytes`, `garbage` what is no HTTP, `hang` nothing at all. `answer` makes the body of a
    success of the request's; `status` is its status; `answers(body, path)` gives a path a body of its own. `will(503,
    429)` scripts the next answers, one each.
    """

    def __init__(
        self,
        *,
        status: int = 200,
        answer: Callable[[Received], bytes] = lambda received: b"{}",
        max_body_bytes: int = 4096,
    ) -> None:
        self.received: list[Received] = []
        self.requests = 0
        self._status = status
        self._answer = answer
        self._max_body_bytes = max_body_bytes
        self._paths: dict[str, tuple[bytes, int | None]] = {}
        self._trouble: Trouble | None = None
        self._script: deque[int] = deque()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Future[None]] = set()

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> HttpReceiver:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close_server()

    async def trouble(self, kind: Trouble | None) -> None:
        """Misbehave like this from now on; None ends it."""
        self._trouble = kind
        if kind == "absent":
            await self._close_server()
            return
        self._drop_connections()
        if self._server is None:
            await self._listen()

    def will(self, *statuses: int) -> None:
        """Answer the next requests with these statuses, in this order, and what comes after them as ever."""
        self._script.extend(statuses)

    def answers(self, body: bytes, path: str | None = None, *, status: int | None = None) -> None:
        """Answer with this body from now on: every success, or those of one path (without its query).

        A path may have a status of its own; one of another's than a success is an answer all the same.
        """
        if path is None:
            self._answer = lambda received: body
            self._status = self._status if status is None else status
        else:
            self._paths[path] = (body, status)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close_server(self) -> None:
        if self._server is not None:
            # A connection that is being accepted needs some turns of the loop, and a server that is closed meanwhile
            # forgets it with its socket open (asyncio up to 3.12): first no more is accepted, then it is closed.
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            for _ in range(5):
                await asyncio.sleep(0)
            self._server.close()
            self._server = None
        self._drop_connections()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def _drop_connections(self) -> None:
        for writer in self._connections:
            writer.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection; it is closed even if its task is cancelled before it begins."""
        task = asyncio.ensure_future(self._serve_all(reader, writer))
        self._tasks.add(task)
        self._connections.add(writer)

        def forget(task: asyncio.Future[None]) -> None:
            self._tasks.discard(task)
            self._connections.discard(writer)
            writer.close()

        task.add_done_callback(forget)

    async def _serve_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._serve_request(reader, writer):
                pass

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        request = Received(method, target, headers, await _receive_body(reader, headers))
        self.requests += 1
        if self._trouble == "hang":
            await asyncio.Event().wait()
        if self._trouble == "garbage":
            writer.write(b"\x00\xffnothing that anybody understands\r\n\r\n")
            await writer.drain()
            return False
        status, reason, body, extra = self._respond(request)
        writer.write(f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body)
        await writer.drain()
        return True

    def _respond(self, request: Received) -> tuple[int, str, bytes, str]:
        kind = self._trouble
        scripted = self._script.popleft() if kind is None and self._script else None
        if scripted is not None and not 200 <= scripted < 300:
            return (scripted, "Scripted", b"", "Retry-After: 0\r\n" if scripted in (429, 503) else "")
        if kind is not None and kind in _STATUS and (kind != "too_large" or len(request.body) > self._max_body_bytes):
            return (*_STATUS[kind], b"", "Retry-After: 0\r\n" if kind == "busy" else "")
        self.received.append(request)
        body, own = self._paths.get(request.target.partition("?")[0], (None, None))
        status = scripted or own or self._status
        return (status, "OK", b"" if status == 204 else self._answer(request) if body is None else body, "")


async def _receive_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(pieces)
