"""What became of the series of one request."""

from __future__ import annotations

from collections import Counter

import msgspec


class Passed(msgspec.Struct):
    """What became of the series of one request; `pieces` joined are the time series that go on.

    Of the `series` that were passed on, so many were `printed`: in whole runs.
    """

    pieces: list[bytes | memoryview] = []
    series: int = 0
    samples: int = 0
    histograms: int = 0
    exemplars: int = 0
    unattached: int = 0
    printed: int = 0
    dropped: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    messages: list[str] = []

    @property
    def joined(self) -> bytes | memoryview:
        """All that goes on."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def add(self, single: int, unattached: int) -> None:
        """Count series of a single sample, of which so many have no pod."""
        self.series += single
        self.samples += single
        self.unattached += unattached
