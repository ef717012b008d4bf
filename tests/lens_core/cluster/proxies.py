"""TCP proxies that can stop to forward without closing anything, as a network does whose cable is cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlsplit


class Wire:
    """Forwards connections to one address while it is not cut."""

    def __init__(self, target: str) -> None:
        self.url = ""
        self._target = urlsplit(target)
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def lay(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Forward nothing, in both directions, until mended."""
        self._whole.clear()

    def mend(self) -> None:
        """Forward again, what had waited, too."""
        self._whole.set()

    async def remove(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._whole.wait()
            there = await asyncio.open_connection(self._target.hostname, self._target.port)
            copies = [
                asyncio.create_task(self._copy(reader, there[1])),
                asyncio.create_task(self._copy(there[0], writer)),
            ]
            try:
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for copy in copies:
                    copy.cancel()
                await asyncio.gather(*copies, return_exceptions=True)
                await _close(there[1])
        finally:
            await _close(writer)
            self._tasks.discard(task)

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._whole.wait()
                target.write(data)
                await target.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def wires_to(targets: Sequence[str]) -> AsyncIterator[list[Wire]]:
    """A wire to each address."""
    wires = [Wire(target) for target in targets]
    try:
        for wire in wires:
            await wire.lay()
        yield wires
    finally:
        for wire in wires:
            wire.mend()
            await wire.remove()
