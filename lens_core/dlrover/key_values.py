"""The keys and values that the nodes of a job share: addresses, counters, barriers. In memory, within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .rendezvous import NoRoom

MAX_BYTES = 16 * 1024 * 1024
_ENTRY_BYTES = 100

Value = str | bytes | int


class KeyValues:
    """The store of one job. A value is given back as it came; one that nobody has set is empty."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: dict[str, Value] = {}

    def set(self, key: str, value: Value) -> None:
        """Put a value in place of what was there. Raises NoRoom."""
        size = _size_of(key, value)
        before = _size_of(key, self._values[key]) if key in self._values else 0
        if self._bytes - before + size > self._max_bytes:
            raise NoRoom(f"the job keeps {self._bytes} bytes under its keys; at most {self._max_bytes}")
        self._bytes += size - before
        self._values[key] = value

    def get(self, key: str) -> Value:
        """A value; empty if there is none."""
        return self._values.get(key, b"")

    def get_all(self, keys: Iterable[str]) -> Mapping[str, Value]:
        """The values of all these keys; none at all while one is missing."""
        found = {key: self.get(key) for key in keys}
        return {} if b"" in found.values() else found

    def add(self, key: str, number: int) -> int:
        """Add to a counter that begins at 0; its new value. Raises NoRoom."""
        before = self._values.get(key, 0)
        total = number + (before if isinstance(before, int) else 0)
        self.set(key, total)
        return total


def _size_of(key: str, value: Value) -> int:
    held = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return _ENTRY_BYTES + len(key.encode("utf-8", "replace")) + (8 if isinstance(held, int) else len(held))
