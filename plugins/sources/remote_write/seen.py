"""Which keys came before, in a few bytes for each: what comes once is not worth remembering whole."""

from __future__ import annotations

_MARKS_PER_KEY = 16


class Seen:
    """Marks keys; may say yes for a new one (for less than one in sixteen). Forgets all when there are too many."""

    def __init__(self, keys: int) -> None:
        self._mask = (1 << (keys * _MARKS_PER_KEY - 1).bit_length()) - 1
        self._keys = keys
        self._forget()

    def again(self, key: bytes) -> bool:
        """Whether the key came before; from now on it did."""
        place = hash(key) & self._mask
        if self._marks[place]:
            return True
        if not self._room:
            self._forget()
        self._marks[place] = 1
        self._room -= 1
        return False

    def _forget(self) -> None:
        self._marks = bytearray(self._mask + 1)
        self._room = self._keys
