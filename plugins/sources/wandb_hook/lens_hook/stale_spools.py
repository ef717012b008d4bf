"""Sends the spool files that dead processes left behind."""

from __future__ import annotations

import time
from collections.abc import Callable

from . import spool
from .client import REQUEST_SECONDS
from .sender import Sender
from .settings import Settings

_EVERY_SECONDS = 60.0


class StaleSpools:
    """Looks for files of dead processes at the start and once a minute; used by the worker's thread alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._next_visit = 0.0

    def send_waiting(self, sender: Sender, own: str | None, hurried: Callable[[], bool]) -> None:
        """Send what is there, unless it is too early or the receiver is not well; `hurried` ends it early."""
        now = time.monotonic()
        if now < self._next_visit or not sender.healthy:
            return
        self._next_visit = now + _EVERY_SECONDS
        for stale in spool.lock_stale_spools(self._settings.spool_path, own):
            try:
                self._send_spool(stale, sender, hurried)
            finally:
                stale.close(remove=not stale.waiting())

    def _send_spool(self, stale: spool.SpoolFile, sender: Sender, hurried: Callable[[], bool]) -> None:
        while stale.waiting() and not hurried():
            batch = spool.file_batch(stale, self._settings.batch_size, check=True)
            if not sender.send(batch, REQUEST_SECONDS):
                return
            stale.advance(batch.end)
