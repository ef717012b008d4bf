"""Bytes of a spool that are reserved for a submission before it is appended; no other submission gets them.

A submission that goes into several spools reserves bytes in all of them first, so none stores what another refuses.
"""

from __future__ import annotations

import threading


class Reservations:
    """Counts the bytes that one spool has reserved. The writer thread reserves them, in the order of its requests."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes = 0


class Reservation:
    """A request for `size` bytes, granted or not yet."""

    def __init__(self, reservations: Reservations, size: int) -> None:
        self.size = size
        self._held = 0
        self._reservations = reservations
        self._is_wanted = True

    def hold(self) -> None:
        """Count the bytes as reserved unless the request was released; a second call changes nothing."""
        with self._reservations.lock:
            if self._is_wanted and not self._held:
                self._held = self.size
                self._reservations.bytes += self.size

    def release(self) -> None:
        """Return the bytes when the submission is appended or given up; a second call changes nothing."""
        with self._reservations.lock:
            self._reservations.bytes -= self._held
            self._held = 0
            self._is_wanted = False
