"""What pods give to series, by the labels that tell the pod."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from .attaching import Attached
from .enriching import Enricher
from .laid import Bytes, Laid, Numbers

_REMEMBERED = 1 << 14


class Given:
    """Numbers what is `attached`, and remembers it by what told it; `groups` has the same number for the same sizes."""

    def __init__(self, enricher: Enricher) -> None:
        self._enricher = enricher
        self.groups: Numbers = np.zeros(_REMEMBERED, np.int64)
        self._forget()

    def _forget(self) -> None:
        self._epoch = self._enricher.epoch
        self._numbers: dict[bytes, int] = {}
        self._sizes: dict[tuple[int, int], int] = {}
        self.attached: list[Attached] = []
        self._both: list[bytes] = []

    def find(self, series: Sequence[bytes], laid: Laid, places: Numbers, told: Numbers) -> Numbers:
        """The numbers of what the series at some places get; `told` has start and size of the labels that tell it."""
        if not len(places):
            return places
        if self._epoch != self._enricher.epoch or len(self.attached) + len(series) > _REMEMBERED:
            self._forget()
        # Labels say how long they are; so what is behind them makes no difference.
        labels = laid.parts(places, told[:, 0], told[:, 1])
        numbers = self._look_up(labels)
        unknown = np.flatnonzero(numbers < 0).tolist()
        for number in unknown:
            if labels[number] not in self._numbers:
                start, size = told[number].tolist()
                self._add(labels[number], series[places[number]][start : start + size])
        return self._look_up(labels) if unknown else numbers

    def both(self, numbers: Numbers) -> tuple[Bytes, Attached]:
        """What is attached by these numbers, which all have the same sizes, and the first of them."""
        attached = self.attached[numbers[0]]
        both = b"".join(map(self._both.__getitem__, numbers.tolist()))
        return np.frombuffer(both, np.uint8).reshape(len(numbers), len(attached.both)), attached

    def _look_up(self, labels: Sequence[bytes]) -> Numbers:
        return np.fromiter(map(self._numbers.get, labels, repeat(-1)), np.int64, len(labels))

    def _add(self, labels: bytes, told: bytes) -> None:
        attached = self._enricher.attached.get(told) or self._enricher.attach(told)
        number = self._numbers[labels] = len(self.attached)
        self.attached.append(attached)
        self._both.append(attached.both)
        self.groups[number] = self._sizes.setdefault(attached.sizes, number)
