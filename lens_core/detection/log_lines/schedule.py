"""Times at which something is to be looked at again: a tick costs what is due, not what there is."""

from __future__ import annotations

import heapq

# Sums and differences of times are rounded differently: what is due is looked at by this much too early.
_ROUNDING_SECONDS = 0.001
_MIN_STALE = 64


class Schedule:
    """The time at which each name is due: the earliest that was given, until it was popped.

    A time that comes to lie later need not be given at once: whoever looks at a name too early schedules it anew.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def schedule_earliest(self, name: str, due: float) -> None:
        """Look at a name at this time, or before where an earlier time is known."""
        known = self._due.get(name)
        if known is not None and known <= due:
            return
        self._due[name] = due
        heapq.heappush(self._heap, (due, name))
        if len(self._heap) > 2 * len(self._due) + _MIN_STALE:
            self._heap = [(at, one) for one, at in self._due.items()]
            heapq.heapify(self._heap)

    def pop_due(self, now: float) -> list[str]:
        """Remove and return the names that are due, the earliest first."""
        names: list[str] = []
        while self._heap and self._heap[0][0] <= now + _ROUNDING_SECONDS:
            due, name = heapq.heappop(self._heap)
            if self._due.get(name) == due:
                del self._due[name]
                names.append(name)
        return names

    def forget_names(self) -> None:
        """Forget all names."""
        self._due.clear()
        self._heap.clear()
