"""Following the output of a command (`kubectl logs -f`, `journalctl -f`), started again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import Sequence

RESTART_SECONDS = 5.0
MAX_WAITING_BYTES = 32 << 20
_PIECE_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1 << 20
_END_SECONDS = 3.0
_ENDS = re.compile(rb"[\r\n]+")


class CommandTail:
    """Runs a command and keeps its lines until they are taken; reads no further while too much waits."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._lines: deque[tuple[float, str]] = deque()
        self._bytes = 0
        self._given = 0
        self._room = asyncio.Event()
        self._start_at = 0.0

    async def read(self, limit_bytes: int) -> list[tuple[float, str]]:
        """The lines that wait, with the time of their arrival; they come again until `commit`.

        Raises OSError when the command cannot be started.
        """
        if (self._reader is None or self._reader.done()) and time.monotonic() >= self._start_at:
            await self._start()
        lines: list[tuple[float, str]] = []
        size = 0
        for line in self._lines:
            size += len(line[1])
            if lines and size > limit_bytes:
                break
            lines.append(line)
        self._given = len(lines)
        return lines

    def commit(self) -> None:
        """What `read` gave last is safe."""
        for _ in range(self._given):
            self._bytes -= len(self._lines.popleft()[1])
        self._given = 0
        if self._bytes < MAX_WAITING_BYTES:
            self._room.set()

    async def stop(self) -> None:
        """End the command."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), _END_SECONDS)
            except asyncio.TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # we cancelled it
                await self._reader

    async def _start(self) -> None:
        self._start_at = time.monotonic() + RESTART_SECONDS
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reader = asyncio.create_task(self._follow(self._process))

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        rest = b""
        while piece := await process.stdout.read(_PIECE_BYTES):
            *whole, rest = _ENDS.split(rest + piece)
            self._take(whole)
            if len(rest) > _MAX_LINE_BYTES:
                self._take([rest])
                rest = b""
            while self._bytes >= MAX_WAITING_BYTES:
                self._room.clear()
                await self._room.wait()
        self._take([rest])
        await process.wait()

    def _take(self, lines: Sequence[bytes]) -> None:
        now = time.time()
        for line in lines:
            if line:
                text = line.decode("utf-8", "replace")
                self._lines.append((now, text))
                self._bytes += len(text)
