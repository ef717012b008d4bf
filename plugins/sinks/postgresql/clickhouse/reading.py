"""Reading one metric of many streams out of ClickHouse: columns of numbers, one version for each row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lens_core import Unavailable

from ..address import NotReady
from ..identity import Connection
from ..point_store import Curve, Known
from ..reducing import coarseness, thin
from ..series import Integers, Series
from ..streams import ALL, Part, Range, Stream, Window
from .client import ClickHouse, list_of, text_of
from .ranges import RANGE_TYPE, thin_ranges
from .schema import NO_TIME, RANGE_BITS, RANGE_TABLE, TABLE, TIME
from .versions import values_of

_ROWS_AT_ONCE = 262_144
_STREAMS_AT_ONCE = 1_000
_RANGED_STREAMS_AT_ONCE = 5_000
RANGE_STEPS: int = 2**RANGE_BITS
# Of curves with fewer points all are read.
LEAST_POINTS = 100_000
_LOWEST = -(2**63)
# Mostly enough: one version for each row.
ROW_TYPE = np.dtype([("stream", "<u8"), ("step", "<i8"), ("bits", "<u8"), ("iteration", "<i8"), ("time", "<i8")])
_PLAIN_COLUMNS = f"stream, step, bits, if(has_iteration, iteration, step), {TIME}"
_FULL = np.dtype(
    [
        *[("stream", "<u8"), ("step", "<i8"), ("priority", "<i4"), ("sequence", "<i8"), ("bits", "<u8")],
        *[("has_iteration", "u1"), ("iteration", "<i8"), ("event", "<i8"), ("received", "<i8")],
    ]
)
_EVENT = f"multiIf(lag < {NO_TIME}, sequence + lag, event_us)"
_FULL_COLUMNS = f"stream, step, priority, sequence, bits, has_iteration, iteration, {_EVENT}, received_us"
ROW_COLUMNS = (
    "stream, step, toUInt64(0), if(max(has_iteration), max(iteration), step),"
    f" if(min({_EVENT}) < {NO_TIME}, min({_EVENT}), min(received_us))"
)
_Found = npt.NDArray[Any]


class ColumnReader:
    """One question's way to the points of ClickHouse."""

    def __init__(
        self, clickhouse: ClickHouse, connection: Connection, window: Window, counts: Mapping[int, float] | None
    ) -> None:
        self.connection = connection
        self.window = window
        self._clickhouse = clickhouse
        self._shares = counts  # of each stream, how large a part of its rows is in the window

    def plan(self, place: int, stream: Stream, among: Range = ALL) -> list[Part]:
        """Locate a stream's points: they are all in one place."""
        part = Part(place, stream, ALL.low, ALL.high)
        if not stream.own_iterations:  # steps are iterations
            part = part.among(among)
        return [part] if part.first_step <= part.last_step else []

    def coarseness(self, stream: Stream, curve: Curve, max_points: int) -> int:
        """Of how many points of a stream the extremes are read for a chart of a curve.

        Ranges of the roll-up are coarser than what is chosen of points: they are for curves of which that leaves more
        points than are drawn.
        """
        is_enough = curve.points >= LEAST_POINTS and 2 * curve.points >= RANGE_STEPS * curve.share
        if is_enough and self._has_ranges(stream) and stream.points >= RANGE_STEPS:
            return RANGE_STEPS
        return coarseness(self.expected(stream), max_points, is_large=curve.is_large)

    def _has_ranges(self, stream: Stream) -> bool:
        """Whether the roll-up says of a stream what its points say."""
        return not (self.window.is_limited or stream.overwritten or stream.own_iterations)

    def expected(self, stream: Stream) -> float:
        """About how many points of a stream are in the query's window."""
        return stream.points if self._shares is None else stream.points * self._shares.get(stream.id, 0.0)

    def ends(self, stream: Stream) -> Iterable[tuple[int, int, int]]:
        """The first and last iteration and the number of rows of a stream."""
        yield stream.first_iteration, stream.last_iteration, stream.rows

    def iteration_before_last(self, stream: Stream, count: int) -> int:
        """An iteration after which there are about `count` points or more, as if they were evenly spread."""
        span = stream.last_iteration - stream.first_iteration + 1
        back = 2 * span * count // max(1, stream.points)
        return _LOWEST if back >= span else stream.last_iteration - back

    async def pieces(
        self, metric: str | None, parts: Iterable[Part], among: Range = ALL, *, part_of: Integers | None = None
    ) -> AsyncIterator[Series]:
        """The points of parts in pieces; None: the iterations themselves."""
        together: list[Part] = []
        rows = 0.0
        if part_of is not None and metric is not None and among == ALL:
            parts = list(parts)
            coarse = [part for part in parts if part_of[part.place] == RANGE_STEPS]
            for low in range(0, len(coarse), _RANGED_STREAMS_AT_ONCE):
                for series in await self._ranges(metric, coarse[low : low + _RANGED_STREAMS_AT_ONCE]):
                    yield series
            parts = [part for part in parts if part_of[part.place] != RANGE_STEPS]
        for part in parts:
            count = part.stream.points
            if count > _ROWS_AT_ONCE:
                async for series in self._portions(metric, part):
                    yield self._thinned(series, among, part_of)
                continue
            if together and (rows + count > _ROWS_AT_ONCE or len(together) >= _STREAMS_AT_ONCE):
                for series in await self._streams(metric, together):
                    yield self._thinned(series, among, part_of)
                together, rows = [], 0.0
            together.append(part)
            rows += count
        for series in await self._streams(metric, together):
            yield self._thinned(series, among, part_of)

    def _thinned(self, series: Series, among: Range, part_of: Integers | None) -> Series:
        found = series.between(*self.window, *among)
        if part_of is None or not found.size or part_of[found.streams[0]] == 1:
            return found
        return thin(found, int(part_of[found.streams[0]]))

    async def summaries_of(self, metric: str, parts: Sequence[Part]) -> list[Known]:
        """Return nothing: there are no blocks."""
        return []

    async def count_points(self, metric: str | None, streams: Sequence[Stream]) -> int:
        """Count the points of a metric in the window; without a window the figures know it."""
        if not self.window.is_limited:
            return sum(stream.points for stream in streams)
        parts = [part for place, stream in enumerate(streams) for part in self.plan(place, stream)]
        return sum([series.size async for series in self.pieces(metric, parts)])

    async def _streams(self, metric: str | None, parts: Sequence[Part]) -> list[Series]:
        """All points of a few streams, a series for each that has any."""
        if not parts:
            return []
        low, high = min(part.first_step for part in parts), max(part.last_step for part in parts)
        condition = f"stream in ({list_of(part.stream.id for part in parts)}) and {_between(low, high)}"
        found, _ = await self._fetch(metric, condition)
        ids = np.array([part.stream.id for part in parts], np.uint64)
        starts = np.searchsorted(found["stream"], ids)
        ends = np.searchsorted(found["stream"], ids, "right")
        every = _rows_as_series(metric, found, 0)
        series = []
        for part, first, last in zip(parts, starts.tolist(), ends.tolist(), strict=True):
            if first < last:
                every.streams[first:last] = part.place
                series.append(_only_steps(every.select(slice(first, last)), part))
        return series

    async def _ranges(self, metric: str, parts: Sequence[Part]) -> list[Series]:
        """The points of a few streams' ranges, a series for each that has any."""
        try:
            found = await self._clickhouse.fetch(
                f"select {', '.join(RANGE_TYPE.names or ())} from {self._clickhouse.own_rows(RANGE_TABLE)}"
                f" and stream in ({list_of(part.stream.id for part in parts)})"
                f" and metric = {text_of(metric)} order by stream, metric, part",
                RANGE_TYPE,
            )
        except NotReady as error:
            raise Unavailable(str(error)) from None
        ids = np.array([part.stream.id for part in parts], np.uint64)
        starts, ends = np.searchsorted(found["stream"], ids), np.searchsorted(found["stream"], ids, "right")
        return [
            thin_ranges(found[first:last], part.place, part.stream.points)
            for part, first, last in zip(parts, starts, ends, strict=True)
            if first < last
        ]

    async def _portions(self, metric: str | None, part: Part) -> AsyncIterator[Series]:
        """The points of one stream, portion by portion."""
        first, is_last = part.first_step, False
        while not is_last and first <= part.last_step:
            condition = f"stream = {part.stream.id} and {_between(first, part.last_step)}"
            found, is_last = await self._fetch(metric, condition, limit=_ROWS_AT_ONCE)
            if found.size:
                yield _rows_as_series(metric, found, part.place)
                first = int(found["step"][-1]) + 1

    async def _fetch(self, metric: str | None, condition: str, limit: int = 0) -> tuple[_Found, bool]:
        """One row for each stream and step, in their order, and whether there are no more than the limit allows."""
        source = f"{self._clickhouse.own_rows(TABLE)} and {condition}"
        try:
            if metric is None:
                end = f" limit {limit}" if limit else ""
                found = await self._clickhouse.fetch(
                    f"select {ROW_COLUMNS} from {source} group by stream, step order by stream, step{end}",
                    ROW_TYPE,
                )
                return found, found.size < (limit or found.size + 1)
            of_metric = f"from {source} and metric = {text_of(metric)} order by stream, metric, step"
            end = f" limit {limit} with ties" if limit else ""
            found = await self._clickhouse.fetch(f"select {_PLAIN_COLUMNS} {of_metric}{end}", ROW_TYPE)
            is_last = found.size < (limit or found.size + 1)
            if _is_repeated(found):
                found = newest_versions(await self._clickhouse.fetch(f"select {_FULL_COLUMNS} {of_metric}{end}", _FULL))
            return found, is_last
        except NotReady as error:
            raise Unavailable(str(error)) from None


async def shares_in_window(
    clickhouse: ClickHouse, window: Window, streams: Sequence[Stream], metrics: Sequence[str]
) -> dict[int, float]:
    """Of each stream about how large a part of its points is in a window."""
    ids = sorted({stream.id for stream in streams})
    if not ids:
        return {}
    among = f" and metric in ({', '.join(map(text_of, metrics))})" if metrics else ""
    try:
        found = await clickhouse.fetch(
            f"select stream, countIf({TIME} between {window.start_us} and {window.end_us}) / count() from"
            f" {clickhouse.own_rows(TABLE)} and stream in ({list_of(ids)}){among} group by stream",
            np.dtype([("stream", "<u8"), ("share", "<f8")]),
        )
    except NotReady as error:
        raise Unavailable(str(error)) from None
    return dict(zip(found["stream"].tolist(), found["share"].tolist(), strict=True))


def _between(low: int, high: int) -> str:
    return f"step between {low} and {high}"


def _is_repeated(found: _Found) -> bool:
    steps, streams = found["step"], found["stream"]
    return bool(((steps[1:] == steps[:-1]) & (streams[1:] == streams[:-1])).any())


def newest_versions(found: _Found) -> _Found:
    """Of versions in the order of stream and step the current one of each row, with what all of them say of it."""
    order = np.lexsort((found["bits"], found["sequence"], found["priority"], found["step"], found["stream"]))
    found = found[order]
    is_next = (found["stream"][1:] != found["stream"][:-1]) | (found["step"][1:] != found["step"][:-1])
    starts = np.flatnonzero(np.append(True, is_next)) if found.size else np.empty(0, np.int64)
    newest = found[np.append(starts[1:], found.size) - 1] if found.size else found
    kept = np.empty(starts.size, ROW_TYPE)
    for name in ("stream", "step", "bits"):
        kept[name] = newest[name]
    if found.size:
        event = np.minimum.reduceat(found["event"], starts)
        kept["time"] = np.where(event < NO_TIME, event, np.minimum.reduceat(found["received"], starts))
        has_own = np.maximum.reduceat(found["has_iteration"], starts)
        kept["iteration"] = np.where(has_own, np.maximum.reduceat(found["iteration"], starts), newest["step"])
    return kept


def _only_steps(series: Series, part: Part) -> Series:
    """The points of a part of a stream, whose steps ascend."""
    if part.first_step <= series.steps[0] and series.steps[-1] <= part.last_step:
        return series
    return series.select((series.steps >= part.first_step) & (series.steps <= part.last_step))


def _rows_as_series(metric: str | None, found: _Found, place: int) -> Series:
    columns = [np.ascontiguousarray(found[name]) for name in ("step", "iteration", "time")]
    values = columns[1].astype(np.float64) if metric is None else values_of(np.ascontiguousarray(found["bits"]))
    return Series.from_rows(columns, values, place)
