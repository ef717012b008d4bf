"""Which keys came before, in a few bytes for each: what comes once is not worth remembering whole."""

from __future__ import annotations

from collections.abc import Hashable

_MARKS_PER_KEY = 16
# A hash has so many more bits than a place needs.
_OTHER_BITS = 32


class Seen:
    """Marks keys, each twice; may say yes for a new one (less than one in sixty). Forgets all when there are many."""

    def __init__(self, keys: int) -> None:
        self._mask = (1 << (keys * _MARKS_PER_KEY - 1).bit_length()) - 1
        self._keys = keys
        self._forget()

    def again(self, key: Hashable) -> bool:
        """Whether the key came before; from now on it did."""
        number = hash(key)
        place, other = number & self._mask, number >> _OTHER_BITS & self._mask
        if self._marks[place] and self._marks[other]:
            return True
        if not self._room:
            self._forget()
        self._marks[place] = self._marks[other] = 1
        self._room -= 1
        return False

    def _forget(self) -> None:
        self._marks = bytearray(self._mask + 1)
        self._room = self._keys
