"""A finding: what got worse, since when, by which rule, with which figures."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SCALE = 1.4826


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding; `type` is the type of the event that it becomes, `time` in seconds since the epoch.

    `is_told`: an event of the job tells of it already.
    """

    type: str
    iteration: int
    time: float
    rule: str
    details: dict[str, Any] = {}
    is_told: bool = False


class Points(msgspec.Struct, frozen=True, eq=False):
    """One metric of one attempt by rising iteration; times in seconds since the epoch."""

    iterations: Ints
    times: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def finite(self) -> Points:
        """Return the points whose values are numbers."""
        kept = np.isfinite(self.values)
        return Points(self.iterations[kept], self.times[kept], self.values[kept])


def mad(values: Floats) -> float:
    """Return the median distance from the median."""
    return float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0
