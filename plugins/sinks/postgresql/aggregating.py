"""One figure for each interval of time: out of what is known of a block where an interval holds all of it, else out of
its points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lens_core import BadRequest, PointQuery
from lens_core.plugin_api.store import percentile_of

from .blocks import unpack_summaries
from .point_store import PointReader
from .series import Doubles, Integers, Series, concatenated
from .streams import Header, Part

_MOST_INTERVALS = 1_000_000
_AT_ONCE = 2048
# Points of many short streams are joined together.
_POINTS_AT_ONCE = 100_000


class Buckets(NamedTuple):
    """Intervals of curves, as columns; one interval may have several rows before they are joined.

    `first` and `last` are values, `first_us` and `last_us` their times. `other` is the highest iteration in an interval
    of time, the latest time in one of iterations; values that are NaN count for nothing else.
    """

    curve: Integers
    interval: Integers
    other: Integers
    points: Integers
    total: Doubles
    lowest: Doubles
    highest: Doubles
    first_us: Integers
    first: Doubles
    last_us: Integers
    last: Doubles


class Aggregator:
    """Gathers the points of curves into intervals. Raises BadRequest where these are more than anybody looks at.

    `curve_of`: the curve of each stream.
    """

    def __init__(self, query: PointQuery, curve_of: Integers) -> None:
        self._aggregates = query.aggregates
        self._by_time = query.interval_iterations is None
        self._interval = query.interval_iterations or (query.interval_ms or 1) * 1000
        self._curve_of = curve_of
        self._found: list[Buckets] = []
        self._waiting: list[Series] = []
        self._waiting_points = 0
        # Percentiles are made of all values: the curve, the interval and the value of each point.
        self._values: list[tuple[Integers, Integers, Doubles]] = []
        self._has_percentiles = any(percentile_of(name) is not None for name in self._aggregates)

    async def add_known(self, reader: PointReader, metric: str | None, parts: Sequence[Part]) -> Sequence[Part]:
        """Add what is known of blocks that are wholly in one interval; the parts that are left to be read."""
        if metric is None or self._has_percentiles:
            return parts
        known = [part for part in parts if part.block and reader.window.holds(part.block) and self._is_one(part.block)]
        done: set[Part] = set()
        for low in range(0, len(known), _AT_ONCE):
            done |= await self._add_blocks(reader, metric, known[low : low + _AT_ONCE])
        return [part for part in parts if part not in done]

    def _is_one(self, block: Header) -> bool:
        """Whether an interval holds all of a block, whose highest iteration is that of its last point."""
        low, high = (block.first_us, block.last_us) if self._by_time else (block.first_iteration, block.last_iteration)
        return block.ordered and low // self._interval == high // self._interval

    async def _add_blocks(self, reader: PointReader, metric: str, parts: Sequence[Part]) -> set[Part]:
        """Add blocks; those with which that is done: a block with a NaN is to be read, as is one without a sum, and
        for the first and the last figure one whose first or last row in time has not the metric."""
        found = [known for known in await reader.summaries_of(metric, parts) if known.total is not None]
        if not found:
            return set()
        series = unpack_summaries(
            [known.summary for known in found], [known.points for known in found], range(len(found))
        )
        starts = np.searchsorted(series.streams, np.arange(len(found)))
        ends = np.append(starts[1:], series.size) - 1
        blocks = [parts[known.number].block for known in found]
        first_us = np.array([block.first_us for block in blocks if block])
        last_us = np.array([block.last_us for block in blocks if block])
        is_known = ~np.logical_or.reduceat(np.isnan(series.values), starts)
        if {"first", "last"} & set(self._aggregates):
            is_known &= (series.times[starts] == first_us) & (series.times[ends] == last_us)
        if not self._by_time:  # the latest time is known where the last point has it
            is_known &= series.times[ends] == last_us
        buckets = Buckets(
            self._curve_of[[parts[known.number].place for known in found]],
            (first_us if self._by_time else series.iterations[starts]) // self._interval,
            np.maximum.reduceat(series.iterations, starts) if self._by_time else last_us,
            np.array([known.points for known in found]),
            np.array([known.total for known in found]),
            np.minimum.reduceat(series.values, starts),
            np.maximum.reduceat(series.values, starts),
            first_us,
            series.values[starts],
            last_us,
            series.values[ends],
        )
        self._append(Buckets._make(column[is_known] for column in buckets))
        return {parts[known.number] for known, is_done in zip(found, is_known, strict=True) if is_done}

    def append_points(self, series: Series) -> None:
        """Add points, in any order."""
        self._waiting.append(series)
        self._waiting_points += series.size
        if self._waiting_points >= _POINTS_AT_ONCE:
            self._join_waiting()

    def _join_waiting(self) -> None:
        """Make buckets of the points that came last."""
        series = concatenated(self._waiting)
        self._waiting, self._waiting_points = [], 0
        if not series.size:
            return
        count = (~np.isnan(series.values)).astype(np.int64)
        values = np.where(count, series.values, 0.0)
        axis, other = (series.times, series.iterations) if self._by_time else (series.iterations, series.times)
        curves, intervals = self._curve_of[series.streams], axis // self._interval
        if self._has_percentiles:
            is_number = count.astype(bool)
            self._values.append((curves[is_number], intervals[is_number], series.values[is_number]))
        self._append(
            Buckets(
                curves,
                intervals,
                other,
                count,
                values,
                np.where(count, values, np.inf),
                np.where(count, values, -np.inf),
                np.where(count, series.times, 2**63 - 1),
                values,
                np.where(count, series.times, -(2**63)),
                values,
            )
        )

    def _append(self, buckets: Buckets) -> None:
        if buckets.interval.size:
            self._found.append(_joined([buckets]))
        if len(self._found) > 64:
            self._found = [_joined(self._found)]
        if sum(found.interval.size for found in self._found) > _MOST_INTERVALS:
            self._found = [_joined(self._found)]
            if self._found[0].interval.size > _MOST_INTERVALS:
                raise BadRequest(f"the interval makes more than {_MOST_INTERVALS:,} points of one metric")

    def figures(self) -> list[Series]:
        """For each aggregate a point for each interval of each curve, as a point of the curve's first stream."""
        self._join_waiting()
        found = _joined(self._found)
        starts = np.maximum(found.interval, -(2**63 // self._interval)) * self._interval  # within 64 bits
        axes = (found.other, starts) if self._by_time else (starts, found.other)
        curves, first = np.unique(self._curve_of, return_index=True)
        streams = first[np.searchsorted(curves, found.curve)]
        return [
            Series.from_rows((np.zeros_like(starts), *axes), self._figure(name, found), 0)._replace(streams=streams)
            for name in self._aggregates
        ]

    def _figure(self, name: str, found: Buckets) -> Doubles:
        if name == "count":
            return found.points.astype(float)
        percentile = percentile_of(name)
        if percentile is not None:
            figure = np.full(found.points.size, np.nan)
            if self._values:
                figure[found.points > 0] = _percentiles(self._values, percentile)
            return figure
        figures = {"sum": found.total, "min": found.lowest, "max": found.highest, "first": found.first}
        figures |= {"last": found.last, "mean": found.total / np.maximum(found.points, 1)}
        return np.where(found.points, figures[name], np.nan)


def _percentiles(gathered: Sequence[tuple[Integers, Integers, Doubles]], percentile: float) -> Doubles:
    """The percentile of each interval of each curve that has values, in their order; between two in proportion."""
    curves, intervals, values = map(np.concatenate, zip(*gathered, strict=True))
    order = np.lexsort((values, intervals, curves))
    curves, intervals, values = curves[order], intervals[order], values[order]
    if not values.size:
        return values
    starts = np.flatnonzero(np.append(True, (np.diff(curves) != 0) | (np.diff(intervals) != 0)))
    places = (np.diff(starts, append=values.size) - 1) * percentile / 100
    below = np.floor(places).astype(np.int64)
    share = places - below
    low, high = values[starts + below], values[starts + np.ceil(places).astype(np.int64)]
    with np.errstate(invalid="ignore"):  # between infinities there is nothing in proportion
        between = low * (1 - share) + high * share
    found: Doubles = np.where((share == 0) | (low == high), low, between)
    return found


def _joined(found: Sequence[Buckets]) -> Buckets:
    """One row for each interval of each curve, in the order of curve and time."""
    if not found:
        none = np.empty(0, np.int64)
        return Buckets._make([none] * 4 + [np.empty(0)] * 3 + [none, np.empty(0)] * 2)
    every = Buckets._make(map(np.concatenate, zip(*found, strict=True)))
    order = np.lexsort((every.first_us, every.interval, every.curve))
    every = Buckets._make(column[order] for column in every)
    is_next = (np.diff(every.curve) != 0) | (np.diff(every.interval) != 0)
    starts = np.flatnonzero(np.append(True, is_next))
    ends = np.append(starts[1:], every.interval.size) - 1
    latest = np.lexsort((every.last_us, every.interval, every.curve))[ends]
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.add.reduceat(every.total.astype(np.longdouble), starts).astype(np.float64)
    return Buckets(
        every.curve[starts],
        every.interval[starts],
        np.maximum.reduceat(every.other, starts),
        np.add.reduceat(every.points, starts),
        total,
        np.minimum.reduceat(every.lowest, starts),
        np.maximum.reduceat(every.highest, starts),
        every.first_us[starts],
        every.first[starts],
        every.last_us[latest],
        every.last[latest],
    )
