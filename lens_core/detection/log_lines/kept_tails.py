"""The log tails of all processors of a daemon, also of partitions that have moved to another daemon lately."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from weakref import WeakSet

from .log_tails import LogTails

# A job that has been silent since its partition moved has its last lines only here.
MOVED_SECONDS = 600.0


class KeptTails:
    """Knows the tails of processors, and holds those that were released; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: WeakSet[LogTails] = WeakSet()  # a processor that was never begun ends without a word
        self._moved: dict[LogTails, float] = {}

    def __iter__(self) -> Iterator[LogTails]:
        return iter([*self._open, *self._moved])

    def add_tails(self, tails: LogTails) -> None:
        """Know the tails of a processor that begins."""
        self._open.add(tails)

    def release_tails(self, tails: LogTails, *, is_moved: bool) -> None:
        """Drop the tails of a processor that has ended; of one whose partition moved in order, after MOVED_SECONDS."""
        self._open.discard(tails)
        if is_moved:
            self._moved[tails] = self._clock() + MOVED_SECONDS

    def drop_released(self, *, at_once: bool = False) -> None:
        """Drop what was released and has been held for long enough, or all that was released."""
        now = self._clock()
        self._moved = {tails: until for tails, until in self._moved.items() if now < until and not at_once}
