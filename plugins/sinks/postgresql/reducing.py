"""Fewer points: the extremes of equal parts of a series, or one figure for each interval of time. Pure, no I/O."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lens_core import BadRequest

from .blocks import Series, extremes, total_of

_MOST_INTERVALS = 1_000_000


def reduce_series(series: Series, max_points: int) -> Series:
    """At most `max_points` points: the first, the last, and the lowest and highest of equal parts.

    Where a part has values that are no numbers the first of them is kept too. Of one point it is the last, of three the
    extreme that is farther from both ends.
    """
    count = len(series.values)
    if count <= max_points:
        return series
    if max_points < 4:
        return series.select(_few(series.values, max_points))
    per_part = 3 if has_nan(series.values) else 2
    parts = (max_points - 2) // per_part
    if not parts:
        numbers = [
            position for position in extremes(series.values, 0, count) if not math.isnan(series.values[position])
        ]
        return series.select(sorted({0, count - 1, *numbers}))
    kept = {0, count - 1}
    for part in range(parts):
        low, high = count * part // parts, count * (part + 1) // parts
        if low < high:
            kept.update(extremes(series.values, low, high))
    return series.select(sorted(kept))


def _few(values: array[float], max_points: int) -> list[int]:
    """Positions of so few points that there are not both ends and both extremes."""
    last = len(values) - 1
    if max_points < 3:
        return [last] if max_points == 1 else [0, last]

    def distance(position: int) -> float:
        found = min(abs(values[position] - values[0]), abs(values[position] - values[last]))
        return math.inf if found != found else found

    return sorted({0, max(extremes(values, 0, last + 1), key=distance), last})


def reduce_together(series: Iterable[Series], max_points: int) -> Series:
    """The same of several series as if they were one, in the order iteration, time."""
    return reduce_series(sorted_by_iteration(concatenated(series)), max_points)


def has_nan(values: Sequence[float]) -> bool:
    """Whether there is a NaN among them; infinities of both signs make one of the sum, and are looked at singly."""
    total = sum(values)
    return total != total and any(map(math.isnan, values))


def shares(counts: Sequence[int], max_points: int) -> list[int]:
    """How many of `max_points` each of several series gets: both ends, then both extremes, the rest by its length.

    Where there are not as many points as that, the last series (the newest) has both ends, and of the others the
    longest come first: each gets its last point, then its first. Where there are more series than points some get none.
    """
    newest = len(counts) - 1
    longest_first = sorted(range(len(counts)), key=lambda place: (-counts[place], place))
    found = [0] * len(counts)
    if counts:
        found[newest] = min(2, counts[newest], max_points)
    for most in (1, 2, 3, 4):
        short = [place for place in longest_first if found[place] < min(most, counts[place])]
        for place in short[: max_points - sum(found)]:
            found[place] += 1
    left, total = max_points - sum(found), sum(counts) or 1
    return [share + left * count // total if share else 0 for share, count in zip(found, counts, strict=True)]


class Bucket(NamedTuple):
    """What an interval of time became: its beginning in microseconds, the highest iteration in it, the figure."""

    start_us: int
    iteration: int
    value: float


class Known(NamedTuple):
    """Of values without NaN: the highest iteration, how many, their sum and extremes."""

    iteration: int
    points: int
    total: float
    lowest: float
    highest: float


@dataclass(slots=True)
class _Sums:
    iteration: int
    count: int = 0
    total: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf
    first: tuple[int, float] = (2**63, math.nan)
    last: tuple[int, float] = (-(2**63), math.nan)

    def add(self, times: array[int], values: array[float]) -> None:
        """Take in values without NaN, in the order of their times."""
        self.add_known(Known(self.iteration, len(values), total_of(values), min(values), max(values)))
        self.first = min(self.first, (times[0], values[0]), key=lambda pair: pair[0])
        self.last = max(self.last, (times[-1], values[-1]), key=lambda pair: pair[0])

    def add_known(self, known: Known) -> None:
        """Take in what is known of values; their times are not."""
        self.iteration = max(self.iteration, known.iteration)
        self.count += known.points
        self.total += known.total
        self.lowest = min(self.lowest, known.lowest)
        self.highest = max(self.highest, known.highest)


class Aggregator:
    """Gathers points into intervals; the order of arrival does not matter. NaN is left out of every figure."""

    def __init__(self, aggregate: str, interval_us: int) -> None:
        self._aggregate = aggregate
        self._interval_us = interval_us
        self._sums: dict[int, _Sums] = {}

    def add(self, series: Series) -> None:
        """Take points in. Raises BadRequest when there are more intervals than anybody could look at."""
        times = series.times
        low, count = 0, len(times)
        ascending = times.tolist() == sorted(times)
        while low < count:
            number = times[low] // self._interval_us
            high = bisect_left(times, (number + 1) * self._interval_us, low) if ascending else low + 1
            self._take(number, series, low, high)
            low = high
        self._check()

    @property
    def takes_sums(self) -> bool:
        """Whether what is known of many points will do: of the first and the last in time it does not say which."""
        return self._aggregate not in ("first", "last")

    def is_one(self, first_us: int, last_us: int) -> bool:
        """Whether two times are in one interval."""
        return first_us // self._interval_us == last_us // self._interval_us

    def add_known(self, time_us: int, known: Known) -> None:
        """Take in what is known of points that are all in the interval of this time. Raises BadRequest as `add`."""
        number = time_us // self._interval_us
        self._sums.setdefault(number, _Sums(known.iteration)).add_known(known)
        self._check()

    def _check(self) -> None:
        if len(self._sums) > _MOST_INTERVALS:
            raise BadRequest(f"the interval makes more than {_MOST_INTERVALS:,} points of one metric")

    def _take(self, number: int, series: Series, low: int, high: int) -> None:
        top = max(series.iterations[low:high])
        sums = self._sums.get(number)
        if sums is None:
            sums = self._sums[number] = _Sums(top)
        sums.iteration = max(sums.iteration, top)
        values, times = series.values[low:high], series.times[low:high]
        if has_nan(values):
            numbers = [position for position, value in enumerate(values) if value == value]
            values, times = array("d", [values[p] for p in numbers]), array("q", [times[p] for p in numbers])
        if values:
            sums.add(times, values)

    def buckets(self) -> list[Bucket]:
        """The figures, in the order of time."""
        return [
            Bucket(number * self._interval_us, self._sums[number].iteration, self._figure(self._sums[number]))
            for number in sorted(self._sums)
        ]

    def _figure(self, sums: _Sums) -> float:
        if self._aggregate == "count":
            return float(sums.count)
        if not sums.count:
            return math.nan
        figures = {
            "mean": sums.total / sums.count,
            "sum": sums.total,
            "min": sums.lowest,
            "max": sums.highest,
            "first": sums.first[1],
            "last": sums.last[1],
        }
        return figures[self._aggregate]


def aggregated(buckets: Iterable[Bucket]) -> Series:
    """Intervals as a series; a point's time is where its interval begins."""
    found = Series.empty()
    for bucket in buckets:
        found.iterations.append(bucket.iteration)
        found.times.append(bucket.start_us)
        found.values.append(bucket.value)
        found.steps.append(0)
    return found


def in_time(series: Series, start_us: int, end_us: int) -> Series:
    """The points whose time lies between the two, both included."""
    times = series.times
    if not times or (start_us <= min(times) and max(times) <= end_us):
        return series
    inside = [position for position, time in enumerate(times) if start_us <= time <= end_us]
    if inside and len(inside) == inside[-1] + 1 - inside[0]:
        return series.part(inside[0], inside[-1] + 1)
    return series.select(inside)


def sorted_by_iteration(series: Series) -> Series:
    """The points in the order iteration, time."""
    keys = list(zip(series.iterations, series.times, strict=True))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return series if order == list(range(len(order))) else series.select(order)


def concatenated(pieces: Iterable[Series]) -> Series:
    """All pieces one after the other."""
    whole = Series(array("q"), array("q"), array("d"), array("q"))
    for piece in pieces:
        whole.extend(piece)
    return whole
