"""Growth over time: memory that creeps towards its limit, checkpoints that take longer and longer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from .finding import Finding, Floats, Points

_MOST_POINTS = 400
_LEAST_POINTS, _LEAST_SECONDS = 50, 2 * 3600.0
_GIB = 2.0**30 / 1e9
_LEAST_PERCENT = 1.0
_WARN_HOURS = 24.0
_SAVES, _SAVE_FACTOR = 5, 1.5


class Trend(msgspec.Struct, frozen=True):
    """A line through points: its slope and the lower bound of it (95 %) per second, and its newest value."""

    slope: float
    lower: float
    newest: float


def theil_sen(times: Floats, values: Floats) -> Trend | None:
    """The median slope among all pairs of points, which single outliers do not move; None for fewer than three."""
    if len(times) > _MOST_POINTS:
        chosen = np.linspace(0, len(times) - 1, _MOST_POINTS).astype(np.int64)
        times, values = times[chosen], values[chosen]
    count = len(times)
    first, second = np.triu_indices(count, 1)
    apart = times[second] - times[first]
    kept = apart > 0
    if count < 3 or not kept.any():
        return None
    slopes = np.sort((values[second] - values[first])[kept] / apart[kept])
    slope = float(np.median(slopes))
    half = 1.96 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    lower = float(slopes[max(0, math.floor((len(slopes) - half) / 2))])
    return Trend(slope, lower, float(np.median(values - slope * times)) + slope * float(times[-1]))


def find_memory_creep(memory: Points, limit: float | None) -> list[Finding]:
    """Find memory of a device (in GB) that grows and reaches its limit within a day."""
    creep = _creep(memory, limit, _GIB)
    if creep is None:
        return []
    trend, hours = creep
    return [
        _finding_of_creep(
            "memory_creep",
            memory,
            "Theil–Sen slope with its lower bound above 0, at least 1 GiB of growth, less than 24 h left",
            {"gb_per_hour": trend.slope * 3600, "hours_left": hours, "gb_now": trend.newest, "gb_limit": limit},
        )
    ]


def find_host_memory_creep(percent: Points) -> list[Finding]:
    """Find a host's memory (in per cent of what it has) that grows and is used up within a day."""
    creep = _creep(percent, 100.0, _LEAST_PERCENT)
    if creep is None:
        return []
    trend, hours = creep
    return [
        _finding_of_creep(
            "host_memory_creep",
            percent,
            "Theil–Sen slope with its lower bound above 0, at least 1 % of growth, less than 24 h left",
            {"percent_per_hour": trend.slope * 3600, "hours_left": hours, "percent_now": trend.newest},
        )
    ]


def _creep(points: Points, limit: float | None, least_growth: float) -> tuple[Trend, float] | None:
    """The trend of values that grow by `least_growth` and reach `limit` within a day, and the hours until then."""
    clean = points.finite()
    if len(clean) < 3 or limit is None:
        return None
    lasts = float(clean.times[-1] - clean.times[0])
    if len(clean) < _LEAST_POINTS and lasts < _LEAST_SECONDS:
        return None
    trend = theil_sen(clean.times - float(clean.times[0]), clean.values)
    if trend is None or trend.lower <= 0 or trend.slope * lasts < least_growth:
        return None
    hours = max(0.0, (limit - trend.newest) / trend.slope / 3600)
    return None if hours >= _WARN_HOURS else (trend, hours)


def _finding_of_creep(kind: str, points: Points, rule: str, details: dict[str, Any]) -> Finding:
    clean = points.finite()
    return Finding(
        type=kind, iteration=int(clean.iterations[-1]), time=float(clean.times[-1]), rule=rule, details=details
    )


def find_slower_checkpoints(saves: Sequence[tuple[int, float, float]]) -> list[Finding]:
    """Find that saving takes longer than it did: of (iteration, time, seconds) the last five against the first five."""
    if len(saves) < 2 * _SAVES:
        return []
    before = float(np.median([seconds for _, _, seconds in saves[:_SAVES]]))
    after = float(np.median([seconds for _, _, seconds in saves[-_SAVES:]]))
    if not before > 0 or after < _SAVE_FACTOR * before:
        return []
    iteration, time, _ = saves[-1]
    return [
        Finding(
            type="checkpoint_slower",
            iteration=iteration,
            time=time,
            rule="median of the last 5 saves at least 1.5 times that of the first 5",
            details={"seconds_before": before, "seconds_after": after, "ratio": after / before},
        )
    ]
