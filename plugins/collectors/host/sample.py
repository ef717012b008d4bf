"""What the readers give: values with the tags that tell them apart, and counters that become rates."""

from __future__ import annotations

from typing import NamedTuple


class Value(NamedTuple):
    """One value; None is "no data"."""

    name: str
    value: float | None
    tags: tuple[tuple[str, str], ...] = ()


class Rates:
    """Turns counters into rates per second; a counter that was seen once, or that began anew, has none yet."""

    def __init__(self) -> None:
        self._before: dict[tuple[object, ...], tuple[float, float]] = {}
        self._now: dict[tuple[object, ...], tuple[float, float]] = {}

    def rate(self, key: tuple[object, ...], counter: float, at: float) -> float | None:
        """The counter's growth per second since the last round."""
        self._now[key] = (counter, at)
        before = self._before.get(key)
        if before is None or at <= before[1] or counter < before[0]:
            return None
        return (counter - before[0]) / (at - before[1])

    def next_round(self) -> None:
        """Forget counters that were not seen in this round."""
        self._before, self._now = self._now, {}
