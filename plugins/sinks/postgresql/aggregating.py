"""One figure for each interval of time: out of what is known of a block where an interval holds all of it, else out of
its points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lens_core import BadRequest

from .blocks import unpack_summaries
from .reading import Part, Reader
from .series import Doubles, Integers, Series
from .streams import Header

_MOST_INTERVALS = 1_000_000
_AT_ONCE = 2048


class Buckets(NamedTuple):
    """Intervals of curves, as columns; one interval may have several rows before they are joined.

    `first` and `last` are values, `first_us` and `last_us` their times. Values that are NaN count for nothing but the
    highest iteration.
    """

    curve: Integers
    interval: Integers
    iteration: Integers
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

    def __init__(self, aggregate: str, interval_us: int, curve_of: Integers) -> None:
        self._aggregate = aggregate
        self._interval_us = interval_us
        self._curve_of = curve_of
        self._found: list[Buckets] = []

    async def add_known(self, reader: Reader, metric: str | None, parts: Sequence[Part]) -> Sequence[Part]:
        """Add what is known of blocks that are wholly in one interval; the parts that are left to be read."""
        if metric is None:
            return parts
        known = [part for part in parts if part.block and reader.window.holds(part.block) and self._is_one(part.block)]
        done: set[Part] = set()
        for low in range(0, len(known), _AT_ONCE):
            done |= await self._add_blocks(reader, metric, known[low : low + _AT_ONCE])
        return [part for part in parts if part not in done]

    def _is_one(self, block: Header) -> bool:
        """Whether an interval holds all of a block, whose highest iteration is that of its last point."""
        return block.ordered and block.first_us // self._interval_us == block.last_us // self._interval_us

    async def _add_blocks(self, reader: Reader, metric: str, parts: Sequence[Part]) -> set[Part]:
        """Add blocks; those with which that is done: a block with a NaN is to be read, as is one without a sum, and
        for the first and the last figure one whose first or last row in time has not the metric."""
        found = [row for row in await reader.summaries_of(metric, parts) if row[2] is not None]
        if not found:
            return set()
        series = unpack_summaries([row[3] for row in found], [row[1] for row in found], range(len(found)))
        starts = np.searchsorted(series.streams, np.arange(len(found)))
        ends = np.append(starts[1:], series.size) - 1
        blocks = [parts[row[0]].block for row in found]
        first_us = np.array([block.first_us for block in blocks if block])
        last_us = np.array([block.last_us for block in blocks if block])
        is_known = ~np.logical_or.reduceat(np.isnan(series.values), starts)
        if self._aggregate in ("first", "last"):
            is_known &= (series.times[starts] == first_us) & (series.times[ends] == last_us)
        buckets = Buckets(
            self._curve_of[[parts[row[0]].place for row in found]],
            first_us // self._interval_us,
            np.maximum.reduceat(series.iterations, starts),
            np.array([row[1] for row in found]),
            np.array([row[2] for row in found]),
            np.minimum.reduceat(series.values, starts),
            np.maximum.reduceat(series.values, starts),
            first_us,
            series.values[starts],
            last_us,
            series.values[ends],
        )
        self._append(Buckets._make(column[is_known] for column in buckets))
        return {parts[row[0]] for row, known in zip(found, is_known, strict=True) if known}

    def append_points(self, series: Series) -> None:
        """Add points, in any order."""
        if not series.size:
            return
        count = (~np.isnan(series.values)).astype(np.int64)
        values = np.where(count, series.values, 0.0)
        self._append(
            Buckets(
                self._curve_of[series.streams],
                series.times // self._interval_us,
                series.iterations,
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

    def figures(self) -> Series:
        """A point for each interval of each curve, at its beginning, as a point of the curve's first stream."""
        found = _joined(self._found)
        starts = found.interval * self._interval_us
        series = Series.from_rows((np.zeros_like(starts), found.iteration, starts), self._figure(found), 0)
        curves, first = np.unique(self._curve_of, return_index=True)
        return series._replace(streams=first[np.searchsorted(curves, found.curve)])

    def _figure(self, found: Buckets) -> Doubles:
        if self._aggregate == "count":
            return found.points.astype(float)
        figures = {"sum": found.total, "min": found.lowest, "max": found.highest, "first": found.first}
        figures |= {"last": found.last, "mean": found.total / np.maximum(found.points, 1)}
        return np.where(found.points, figures[self._aggregate], np.nan)


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
        np.maximum.reduceat(every.iteration, starts),
        np.add.reduceat(every.points, starts),
        total,
        np.minimum.reduceat(every.lowest, starts),
        np.maximum.reduceat(every.highest, starts),
        every.first_us[starts],
        every.first[starts],
        every.last_us[latest],
        every.last[latest],
    )
