"""One process per spool: a lock file that names its owner."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from ...base.errors import SpoolError


class SpoolLock:
    """Holds `<spool>.lock` until released; the kernel releases it when the process dies, however it dies."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".lock")
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock; raises SpoolError that names the process which has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise SpoolError(f"the spool {self._path.stem} is in use by another process (pid {owner})") from error
        # A full disk may refuse the pid; the lock itself needs no space.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, because removing it would race with the next owner."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
