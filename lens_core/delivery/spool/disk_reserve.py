"""Space that a full disk leaves to the spool, so that it can delete what was delivered.

Deleting writes too: a page list, and the log has to be copied into the file before its space is free again. So a
file of some megabytes lies beside the spool; it is given up when the disk is full and taken again afterwards, and
nothing new is accepted in between.
"""

from __future__ import annotations

import os
from pathlib import Path


class Reserve:
    """A file of `size` bytes that is only there to be removed."""

    def __init__(self, spool: Path, size: int) -> None:
        self._path = spool.with_name(spool.name + ".reserve")
        self._size = size

    def take(self) -> bool:
        """Allocate it; False when the disk has not that much."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> None:
        """Give the space to whoever needs it now."""
        self._path.unlink(missing_ok=True)
