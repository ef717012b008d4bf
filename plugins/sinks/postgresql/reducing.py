"""Fewer points: both ends and the extremes of equal parts of a series. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .blocks import SUMMARY_POINTS
from .series import Series, extremes


def reduce_series(series: Series, max_points: int) -> Series:
    """At most `max_points` points: the first, the last, and the lowest and highest of parts of equal weight.

    Where a part has values that are no numbers the first of them is kept too, as far as there are points. Of one point
    it is the last, of three the extreme that is farther from both ends.
    """
    last = series.size - 1
    if last < max_points:
        return series
    if max_points < 3:
        return series.select([last] if max_points == 1 else [0, last])
    per_part = 3 if np.isnan(series.values).any() else 2
    parts = max(1, (max_points - 2) // per_part)
    before = np.cumsum(series.weights)
    number = np.minimum((before - series.weights / 2) * parts / before[-1], parts - 1).astype(np.int64)
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    inner = np.setdiff1d(extremes(series.values, starts), [0, last])
    if inner.size > max_points - 2:  # of one part: what is farthest from both ends
        ends = series.values[[0, last]]
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.fmin.reduce(np.abs(series.values[inner, None] - ends), axis=1)
        order = np.argsort(-np.nan_to_num(distance, nan=-1.0, posinf=np.inf), kind="stable")
        inner = np.sort(inner[order[: max_points - 2]])
    return series.select(np.concatenate([[0], inner, [last]]))


def thin(series: Series, part: int) -> Series:
    """Points of one stream as coarse as summaries are: both ends and the extremes of each `part` points; each stands
    for as many points as the others."""
    series = series.ordered(series.streams, series.streams)
    kept = extremes(series.values, np.arange(0, series.size, part))
    kept = np.unique(np.concatenate([kept, [0, series.size - 1]]))
    return series.select(kept)._replace(weights=np.full(kept.size, series.size / kept.size))


def coarseness(points: float, max_points: int, *, is_large: bool) -> int:
    """Of how many points of a stream the extremes are read: one for all, SUMMARY_POINTS where summaries are as fine
    as the answer; in between only where `is_large`: of a curve that has too many points."""
    part = int(2 * points // max(1, max_points))
    if part >= SUMMARY_POINTS:
        return SUMMARY_POINTS
    return max(1, part) if is_large else 1


def shares(counts: Sequence[int], newest: int, max_points: int) -> list[int]:
    """Share `max_points` among several series: both ends, then both extremes, the rest by length.

    Where there are not as many points as that, the newest has both ends, and of the others the longest come first:
    each gets its last point, then its first. Where there are more series than points some get none.
    """
    longest_first = sorted(range(len(counts)), key=lambda place: (-counts[place], place))
    found = [0] * len(counts)
    if not counts:
        return found
    found[newest] = min(2, counts[newest], max_points)
    for most in (1, 2, 3, 4):
        short = [place for place in longest_first if found[place] < min(most, counts[place])]
        for place in short[: max_points - sum(found)]:
            found[place] += 1
    left, total = max_points - sum(found), sum(counts) or 1
    return [share + left * count // total if share else 0 for share, count in zip(found, counts, strict=True)]
