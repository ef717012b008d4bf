"""Room in a spool that is promised to a submission before it comes: until it has come, nobody else gets these bytes.

Where a submission goes into several spools, it asks all of them first: so none takes what another refuses.
"""

from __future__ import annotations

import threading


class Promises:
    """What one spool has promised. The writer's thread promises, in the order of all that is asked of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes = 0


class Room:
    """`size` bytes that somebody asked for, promised or not yet."""

    def __init__(self, promises: Promises, size: int) -> None:
        self.size = size
        self._kept = 0
        self._promises = promises
        self._is_wanted = True

    def keep(self) -> None:
        """Promise it, unless it is not wanted any more; a second time changes nothing."""
        with self._promises.lock:
            if self._is_wanted and not self._kept:
                self._kept = self.size
                self._promises.bytes += self.size

    def release(self) -> None:
        """The submission has its turn, or is given up; a second time changes nothing."""
        with self._promises.lock:
            self._promises.bytes -= self._kept
            self._kept = 0
            self._is_wanted = False
