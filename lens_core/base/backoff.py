"""Delays between retries, for the delivery, for starts and for plugins."""

from __future__ import annotations

import random
from collections.abc import Callable

_MAX_DOUBLINGS = 30


class Backoff:
    """Exponential backoff with full jitter: a random part of a delay that doubles with each failure, up to a cap.

    `failures` counts those since the last `reset`. `rng` gives numbers from 0 to 1. Since 1.3.
    """

    def __init__(self, base_seconds: float, cap_seconds: float, rng: Callable[[], float] = random.random) -> None:
        self._base = base_seconds
        self._cap = cap_seconds
        self._rng = rng
        self.failures = 0

    def next_delay(self, after_seconds: float | None = None) -> float:
        """Return the seconds until the next try; at least `after_seconds`, which the other side asked for.

        A random part comes on top of it, so that a thousand daemons with the same Retry-After do not return together.
        """
        doubled = self._base * 2.0 ** min(self.failures, _MAX_DOUBLINGS)
        self.failures += 1
        if after_seconds is None:
            return self._rng() * min(self._cap, doubled)
        return after_seconds + self._rng() * min(self._cap, max(self._base, after_seconds))

    def reset(self) -> None:
        """Begin with the shortest delay again, after a success."""
        self.failures = 0
