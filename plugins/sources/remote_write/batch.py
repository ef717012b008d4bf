"""What is forwarded of one request, and what became of the rest."""

from __future__ import annotations

from collections import Counter

import msgspec


class ForwardedBatch(msgspec.Struct):
    """What is forwarded of one request: `pieces` joined are its series; and what was counted.

    Of the series `received`, so many were `known`: their entry was in the label-set table.
    """

    pieces: list[bytes] = []
    received: int = 0
    known: int = 0
    series: int = 0
    samples: int = 0
    histograms: int = 0
    exemplars: int = 0
    unattached: int = 0
    dropped: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    messages: list[str] = []

    def join(self) -> bytes:
        """All pieces as one, which stays the only piece."""
        if len(self.pieces) != 1:
            self.pieces[:] = [b"".join(self.pieces)]
        return self.pieces[0]
