"""Comparisons of ranks within one window of time: with each other, each with its own best, and by their waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

MANY_RANKS = 16
_LEAST_SPREAD = 0.005
_WAIT_CANDIDATE, _WAIT_CRITICAL = 0.10, 0.20
_INDIVIDUAL_RATIO = 1.10
_SPREAD_PERCENTILES = 1.25


class Slow(NamedTuple):
    """A rank that is slower than the others: robust z and ratio to their median."""

    rank: int
    z: float
    ratio: float


class Waiting(NamedTuple):
    """The rank that waits least for the others: whom they wait for."""

    rank: int
    score: float
    is_critical: bool


def slower_than_others(times: Mapping[int, float]) -> list[Slow]:
    """The ranks whose time is far above the median of all; the limits are wider for fewer than 16 ranks."""
    if len(times) < 3:
        return []
    values = np.array(list(times.values()))
    centre = float(np.median(values))
    if not centre > 0:
        return []
    spread = max(1.4826 * float(np.median(np.abs(values - centre))), _LEAST_SPREAD * centre)
    least_z, least_ratio = (6.0, 1.10) if len(times) >= MANY_RANKS else (3.5, 1.20)
    found = [Slow(rank, (value - centre) / spread, value / centre) for rank, value in times.items()]
    chosen = [slow for slow in found if slow.z >= least_z and slow.ratio >= least_ratio]
    return sorted(chosen, key=lambda slow: -slow.ratio)


def slower_than_before(times: Mapping[int, float], best: Mapping[int, float], best_centre: float) -> list[Slow]:
    """The ranks that lost more against their own best than the job did; lasting differences do not count."""
    centre = float(np.median(list(times.values()))) if times else 0.0
    if not (centre > 0 and best_centre > 0):
        return []
    found = []
    for rank, value in times.items():
        own = best.get(rank, 0.0)
        ratio = (value / own) / (centre / best_centre) if own > 0 else 0.0
        if ratio >= _INDIVIDUAL_RATIO:
            found.append(Slow(rank, float("nan"), ratio))
    return sorted(found, key=lambda slow: -slow.ratio)


def least_waiting(times: Mapping[int, float], step: float) -> Waiting | None:
    """The rank that spends least time in a collective, if the others wait a tenth of the step for it."""
    if len(times) < 2 or not step > 0:
        return None
    ordered = sorted(times.values())
    upper_median = ordered[len(ordered) // 2]
    rank = min(times, key=lambda one: (times[one], one))
    score = (upper_median - times[rank]) / step
    return Waiting(rank, score, score >= _WAIT_CRITICAL) if score >= _WAIT_CANDIDATE else None


def is_spread(times: Mapping[int, float]) -> bool:
    """Whether the slowest tenth of the ranks is far slower than the fastest: seen even where half of them are slow."""
    if len(times) < 3:
        return False
    low, high = np.percentile(list(times.values()), [10, 90])
    return bool(low > 0 and high / low > _SPREAD_PERCENTILES)
