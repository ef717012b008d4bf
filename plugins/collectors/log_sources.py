"""Lines of log files and of commands that print logs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

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

    async def read_lines(self, limit_bytes: int) -> list[tuple[float, str]]:
        """The lines that wait, with the time of their arrival; they come again until `commit`.

        Raises OSError when the command cannot be started.
        """
        if (self._reader is None or self._reader.done()) and time.monotonic() >= self._start_at:
            await self._start_command()
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
        """Mark the last result of `read_lines` as safe."""
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

    async def _start_command(self) -> None:
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
            self._append_lines(whole)
            if len(rest) > _MAX_LINE_BYTES:
                self._append_lines([rest])
                rest = b""
            while self._bytes >= MAX_WAITING_BYTES:
                self._room.clear()
                await self._room.wait()
        self._append_lines([rest])
        await process.wait()

    def _append_lines(self, lines: Sequence[bytes]) -> None:
        now = time.time()
        for line in lines:
            if line:
                text = line.decode("utf-8", "replace")
                self._lines.append((now, text))
                self._bytes += len(text)


FINGERPRINT_BYTES = 256
MAX_LINE_BYTES = 1 << 20
# A last line without an end is taken for whole when nothing has come after it for so long.
IDLE_SECONDS = 5.0


class Position(msgspec.Struct):
    """The position in a file. `generation` grows with each truncation, so that positions never repeat."""

    device: int
    inode: int
    offset: int = 0
    generation: int = 0
    fingerprint: int = 0
    fingerprint_bytes: int = 0

    @property
    def name(self) -> str:
        """One name for these contents of this file."""
        return f"{self.device}:{self.inode}:{self.generation}"


class Piece(NamedTuple):
    """A line, and where in the file it ends."""

    text: str
    end: int


class FileTail:
    """One path that is followed. `read` gives lines after the position; `commit` moves the position there."""

    def __init__(self, path: Path, position: Position | None = None) -> None:
        self.path = path
        self.position = position
        self._reached: Position | None = None
        self._size = -1
        self._grown_at = 0.0

    @property
    def furthest(self) -> Position | None:
        """Return the furthest position read, safe or not."""
        return self._reached or self.position

    def read_lines(self, limit_bytes: int, now: float) -> tuple[Position, list[Piece]] | None:
        """Lines after the position, at most so many bytes; None when there are none. Raises OSError."""
        self._reached = None
        for source in self._open_files():
            with source:
                found = self._read_pieces(source, limit_bytes, now)
            if found is not None:
                return found
        return None

    def commit(self) -> None:
        """Mark the last result of `read_lines` as safe."""
        if self._reached is not None:
            self.position, self._reached = self._reached, None

    def _open_files(self) -> Iterator[BinaryIO]:
        """The file that was being read, wherever rotation has put it, then the one that has its name now."""
        known = self.position
        if known is not None and not self._is_at_path(known):
            rotated = self._rotated(known)
            if rotated is not None:
                yield rotated
        current = _open_regular(self.path)
        if current is not None:
            yield current

    def _is_at_path(self, known: Position) -> bool:
        try:
            status = self.path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (known.device, known.inode)

    def _rotated(self, known: Position) -> BinaryIO | None:
        """The old file under its new name beside the path; compressed ones are another file and are gone."""
        try:
            entries = list(os.scandir(self.path.parent))
        except OSError:
            return None
        for entry in entries:
            if entry.name.startswith(self.path.name) and entry.inode() == known.inode:
                return _open_regular(Path(entry.path))
        return None

    def _read_pieces(self, source: BinaryIO, limit_bytes: int, now: float) -> tuple[Position, list[Piece]] | None:
        status = os.fstat(source.fileno())
        position = self._continued(source, status)
        if status.st_size != self._size:
            self._size, self._grown_at = status.st_size, now
        source.seek(position.offset)
        data = source.read(limit_bytes)
        is_idle = now - self._grown_at >= IDLE_SECONDS
        pieces = list(_split_pieces(data, position.offset, is_whole=is_idle and len(data) < limit_bytes))
        if not pieces and len(data) >= min(limit_bytes, MAX_LINE_BYTES):
            pieces = [Piece(data[:MAX_LINE_BYTES].decode("utf-8", "replace"), position.offset + len(data))]
        if not pieces:
            if self.position is None or position.offset != self.position.offset:
                self.position = position
            return None
        reached = msgspec.structs.replace(position, offset=pieces[-1].end)
        self._reached = reached
        return reached, [piece for piece in pieces if piece.text]

    def _continued(self, source: BinaryIO, status: os.stat_result) -> Position:
        """Return where to continue in a file: at its beginning if it is another one than before, or was truncated."""
        known = self.position
        if known is None or (known.device, known.inode) != (status.st_dev, status.st_ino):
            return self._with_fingerprint(source, Position(status.st_dev, status.st_ino))
        beginning = _fingerprint(source, known.fingerprint_bytes)
        if status.st_size < known.offset or beginning != known.fingerprint:
            return self._with_fingerprint(source, Position(known.device, known.inode, generation=known.generation + 1))
        if known.fingerprint_bytes < FINGERPRINT_BYTES:
            return self._with_fingerprint(source, msgspec.structs.replace(known))
        return msgspec.structs.replace(known)

    def _with_fingerprint(self, source: BinaryIO, position: Position) -> Position:
        source.seek(0)
        beginning = source.read(FINGERPRINT_BYTES)
        position.fingerprint, position.fingerprint_bytes = zlib.crc32(beginning), len(beginning)
        return position


def _open_regular(path: Path) -> BinaryIO | None:
    """The file, if it is one that can be read: never a pipe, which would block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb", buffering=0)


def _fingerprint(source: BinaryIO, length: int) -> int:
    source.seek(0)
    return zlib.crc32(source.read(length))


def _split_pieces(data: bytes, start: int, *, is_whole: bool) -> Iterator[Piece]:
    """Lines and updates of progress bars: what ends with a line feed or a carriage return."""
    begin = 0
    for match in _ENDS.finditer(data):
        text = data[begin : match.start()]
        if match.end() < len(data) or data[-1:] == b"\n" or is_whole:
            yield Piece(text[:MAX_LINE_BYTES].decode("utf-8", "replace"), start + match.end())
            begin = match.end()
    if is_whole and begin < len(data):
        yield Piece(data[begin:].decode("utf-8", "replace"), start + len(data))
