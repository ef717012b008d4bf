"""A clock that stands still until a test moves it."""

from __future__ import annotations

import time
from collections.abc import Callable

_NANOSECONDS = 1_000_000_000


class FakeClock:
    """Wall time under a test's control; `time.time` and `time.time_ns` answer it while the fixture is used.

    Monotonic time goes on by itself, because event loops wait by it.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def time(self) -> float:
        """Seconds since the epoch."""
        return self.now

    def time_ns(self) -> int:
        """The same in nanoseconds."""
        return int(self.now * _NANOSECONDS)

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass; negative ones are a clock that is set back."""
        self.now += seconds

    def install(self, setattr_: Callable[[object, str, object], None]) -> None:
        """Take the place of the clock of the module `time`, by pytest's `monkeypatch.setattr`."""
        setattr_(time, "time", self.time)
        setattr_(time, "time_ns", self.time_ns)


__all__ = ["FakeClock"]
