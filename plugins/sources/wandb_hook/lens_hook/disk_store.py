"""The spool as the place where encoded records wait."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence

from . import say, spool
from .buffer import Counts
from .store import CROWDED_BYTES, Batch, MemoryStore
from .wire import Line


class DiskStore:
    """The spool as a store; rows that the disk refuses wait in memory, bounded and counted."""

    def __init__(
        self, directory: str, origin: bytes, memory: MemoryStore, counts: Counts, sync_seconds: float = 0.0
    ) -> None:
        self._directory = directory
        self._origin = origin
        self._memory = memory
        self._counts = counts
        self._file: spool.SpoolFile | None = None
        self._out: Batch | None = None
        self._sync_seconds = sync_seconds  # 0: never
        self._sync_at = 0.0

    @property
    def path(self) -> str | None:
        """The file of this process, once it has one."""
        return self._file.path if self._file else None

    def append(self, lines: Sequence[Line]) -> None:
        if not lines:
            return
        try:
            if self._file is None:
                self._file = spool.create_spool(self._directory, self._origin)
            if self._file.size > spool.LIMIT_BYTES:
                raise OSError(errno.EFBIG, "the spool file has reached 1 GiB")
            self._file.append_lines(b"".join(line.text + b"\n" for line in lines))
        except OSError as error:
            say.once("spool", f"cannot write the spool, keeping rows in memory: {error.strerror or error}")
            self._memory.append(lines)
        else:
            say.allow_again("spool")

    def peek(self, max_lines: int) -> Batch | None:
        if self._out is not None:
            return self._out
        if self._file is not None and self._file.waiting():
            self._out = spool.file_batch(self._file, max_lines)
            return self._out
        return self._memory.peek(max_lines)

    def done(self, batch: Batch) -> None:
        if batch is self._out and self._file is not None:
            self._out = None
            try:
                self._file.advance(batch.end)
            except OSError as error:  # sent again after a crash; the receiver knows the sequence
                say.debug(f"cannot move the spool's cursor: {error.strerror}")
            return
        self._memory.done(batch)

    def sync(self, *, final: bool = False) -> None:
        """Bring what waits in the file to the medium, if it is time for that.

        Takes as long as the disk does, so the worker calls it without its lock, for which the training loop may wait.
        """
        now = time.monotonic()
        if not self._sync_seconds or self._file is None or (now < self._sync_at and not final):
            return
        self._sync_at = now + self._sync_seconds
        try:
            self._file.sync()
        except OSError as error:
            say.once("sync", f"cannot sync the spool: {error.strerror or error}")

    def waiting(self) -> bool:
        return (self._file is not None and self._file.waiting()) or self._memory.waiting()

    def is_crowded(self) -> bool:
        waiting = self._file.size - self._file.cursor if self._file is not None else 0
        return waiting > CROWDED_BYTES or self._memory.is_crowded()

    def rows_left(self) -> tuple[int, int]:
        """Rows and points in memory that have not been delivered (those on disk are safe)."""
        return self._memory.rows_left()

    def others_left(self) -> int:
        """Events and evidence in memory that have not been delivered."""
        return self._memory.others_left()

    def close(self) -> None:
        if self._file is not None:
            self._file.close(remove=not self._file.waiting())
            self._file = None

    def abandon_in_child(self) -> None:
        """After a fork: the file and its lock are the parent's."""
        if self._file is not None:
            self._file.close(remove=False)
            self._file = None
