"""The usual ends of a series: what follows the labels is a single sample with a timestamp of six bytes."""

from __future__ import annotations

from .samples import VALUE_SIZE, VALUE_TAGS, ZERO_SIZE, ZERO_TAGS

STAMP_SIZE = 7
_REMEMBERED_STAMPS = 1000


class Tails:
    """Tells tails; remembers timestamps, because requests have few different ones.

    `stamps` are timestamps with their tag, `zeros` whole tails without a value.
    """

    def __init__(self) -> None:
        self.stamps: set[bytes] = set()
        self.zeros: set[bytes] = set()

    def of(self, series: bytes) -> bytes:
        """The end of a series, if it has one of the two shapes; else nothing."""
        tail = series[-VALUE_SIZE:]
        if tail[11:] not in self.stamps and not self.learn(tail[11:]):
            return b""
        if tail[:3] == VALUE_TAGS:
            return tail
        tail = tail[ZERO_SIZE:]
        return tail if tail[:2] == ZERO_TAGS else b""

    def learn(self, stamp: bytes) -> bool:
        """Remember an end that is a field 2 with a number of six bytes."""
        if len(stamp) != STAMP_SIZE or stamp[0] != 0x10 or stamp[6] > 0x7F or min(stamp[1:6]) < 0x80:
            return False
        if len(self.stamps) >= _REMEMBERED_STAMPS:
            self.stamps.clear()
            self.zeros.clear()
        self.stamps.add(stamp)
        self.zeros.add(ZERO_TAGS + stamp)
        return True
