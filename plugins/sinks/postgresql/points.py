"""Points of metrics in one snapshot: whole, as pages, or reduced to as many as can be drawn.

Each metric's streams are planned, read and reduced a batch of attempts at a time, so that memory is bounded and many
short attempts cost no more statements than a long one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np

from lens_core import PointColumns, PointQuery
from lens_core.plugin_api.store import metric_name

from .aggregating import Aggregator
from .database import Database
from .identity import Connection
from .paging import Page, Place
from .reading import ALL, Range, Reader, count_points, metric_of_all_rows
from .reducing import coarseness, reduce_series, shares
from .series import Integers, Mask, Series, concatenated
from .streams import Stream, all_streams, headers, streams_by_metric, window_of

_TARGET = "target_iteration"
_MILLISECOND = 1000
_BATCH_POINTS = 200_000
_PIECE_POINTS = 5_000
_MARK_POINTS = 4_000
# A curve of many ranks is made of so many points, and of so many of each of them: both ends and both extremes.
_MOST_OF_RANKS = 200_000
_LEAST_OF_RANK = 4
# An answer is in the order of attempts; a curve is what is drawn as one, whatever ranks logged it.
_ATTEMPT = attrgetter("run_id", "attempt")
_CURVE = attrgetter("run_id", "attempt", "data_source")
_SIDE = attrgetter("data_source", "rank")
# A metric as it is stored (None: the iterations themselves), its own name, the streams that have it.
_Wanted: TypeAlias = tuple[str | None, str, list[Stream]]
Watch: TypeAlias = Callable[[Iterable[int]], None]
_Streams: TypeAlias = Sequence[tuple[int, Stream]]  # with their places among those of the metric


async def metric_columns(database: Database, query: PointQuery, watch: Watch) -> AsyncGenerator[PointColumns, None]:
    """The points of a query in the order metric, run, attempt, iteration, time. Raises BadRequest, Unavailable.

    `watch` is told which streams are read.
    """
    page = Page(query)
    async with database.reading() as connection, connection.transaction():
        wanted: list[_Wanted] = [
            (stored, metric_name(stored), streams) for stored, streams in await streams_by_metric(connection, query)
        ]
        watch({stream.id for _, _, streams in wanted for stream in streams})
        async for piece in _read_page(connection, query, wanted, page):
            yield piece


async def iteration_columns(database: Database, query: PointQuery, watch: Watch) -> AsyncGenerator[PointColumns, None]:
    """`iteration` of every row, then `target_iteration` where it is known; each in the order of `metric_columns`."""
    page = Page(query)
    target = msgspec.structs.replace(query, metrics=(_TARGET,))
    async with database.reading() as connection, connection.transaction():
        wanted: list[_Wanted] = [(None, "iteration", await all_streams(connection, query))]
        wanted += [(stored, stored, streams) for stored, streams in await streams_by_metric(connection, target)]
        watch({stream.id for _, _, streams in wanted for stream in streams})
        async for piece in _read_page(connection, query, wanted, page):
            yield piece


async def _read_page(
    connection: Connection, query: PointQuery, wanted: Sequence[_Wanted], page: Page
) -> AsyncGenerator[PointColumns, None]:
    """All columns; the last of a query with a limit also says how many points there are in all."""
    ids = {stream.id for _, _, streams in wanted for stream in streams if stream.blocked_step is not None}
    metrics = [stored for stored, _, _ in wanted if stored is not None]
    window = window_of(query)
    reader = Reader(connection, window, metrics, await headers(connection, sorted(ids), window))
    last: PointColumns | None = None
    async for piece in _cut_pieces(reader, query, wanted, page):
        if last is not None:
            yield last
        last = piece
    if last is not None and query.limit is not None:
        counts = [] if page.is_counted else [await count_points(reader, stored, found) for stored, _, found in wanted]
        last = msgspec.structs.replace(last, total_count=page.seen if page.is_counted else sum(counts))
    if last is not None:
        yield last


async def _cut_pieces(
    reader: Reader, query: PointQuery, wanted: Sequence[_Wanted], page: Page
) -> AsyncIterator[PointColumns]:
    """Yield the part of an answer that is on the page. A computed answer is computed whole, so that it is counted."""
    for stored, name, streams in wanted:
        if query.aggregate is not None:
            found = _aggregated(reader, query, stored, streams)
        elif query.max_points is not None:
            found = _reduced(reader, stored, streams, query.max_points)
        else:
            found = _read_whole(reader, stored, name, streams, page)
        curve_of = _numbered(streams, _CURVE)
        async for series in found:
            for piece in _columns(name, streams, curve_of, series, page):
                yield piece
            if page.is_full and not page.is_counted:
                return


def _columns(
    name: str, streams: Sequence[Stream], curve_of: Integers, series: Series, page: Page
) -> Iterator[PointColumns]:
    """Points that belong to the page as columns of one run, attempt and source each; the last has the page's cursor."""
    if page.is_full:
        page.cut_series(name, streams, series)
        return
    whole, series = series, page.cut_series(name, streams, series)
    if not series.size and not page.is_full:
        return
    cuts = np.flatnonzero(np.diff(curve_of[series.streams])) + 1
    bounds = sorted({*cuts.tolist(), *range(0, series.size, _PIECE_POINTS)}) or [0]
    for low, high in pairwise([*bounds, series.size]):
        stream = streams[(series if series.size else whole).streams[low]]
        yield PointColumns(
            metric_name=name,
            data_source=stream.data_source,
            run_id=stream.run_id,
            attempt=stream.attempt,
            iterations=array("q", series.iterations[low:high].tobytes()),
            timestamps=array("q", (series.times[low:high] // _MILLISECOND).tobytes()),
            values=array("d", series.values[low:high].tobytes()),
            next_cursor=page.next_cursor if high == series.size else "",
        )


def _batches(streams: _Streams, cost: Mapping[int, float], most: float) -> Iterator[_Streams]:
    """Attempts in a row together, as long as they cost no more than `most`; an attempt is never split."""
    batch: list[tuple[int, Stream]] = []
    spent = 0.0
    for _, group in groupby(streams, lambda one: _ATTEMPT(one[1])):
        attempt = list(group)
        price = sum(cost[place] for place, _ in attempt)
        if batch and spent + price > most:
            yield batch
            batch, spent = [], 0.0
        batch += attempt
        spent += price
    if batch:
        yield batch


def _numbered(streams: Sequence[Stream], key: Callable[[Stream], Any]) -> Integers:
    """For each stream the place of its key among all of them, sorted."""
    keys = sorted({key(stream) for stream in streams})
    return np.array([bisect_left(keys, key(stream)) for stream in streams], np.int64)


async def _read_whole(
    reader: Reader, stored: str | None, name: str, streams: Sequence[Stream], page: Page
) -> AsyncIterator[Series]:
    """All points from the page's place on, sorted; of an attempt with many points a range of iterations at a time."""
    after = page.place
    begins = None if after is None else (after.metric, after.run_id, after.attempt)
    left = [one for one in enumerate(streams) if begins is None or (name, *_ATTEMPT(one[1])) >= begins]
    most = _BATCH_POINTS if page.remaining is None else max(_MARK_POINTS, min(page.remaining, _BATCH_POINTS))
    attempt_of, side_of = _numbered(streams, _ATTEMPT), _numbered(streams, _SIDE)
    cost = {place: reader.expected(stream) for place, stream in left}
    for batch in _batches(left, cost, most):
        ranges: Iterable[Range] = [ALL]
        if sum(cost[place] for place, _ in batch) > most:
            ranges = _ranges(reader, batch, most)
        for among in ranges:
            is_begun = after is not None and after.is_in(name, *_ATTEMPT(batch[-1][1]))
            if is_begun and after is not None and among.high < after.iteration:
                continue
            parts = [part for place, stream in batch for part in reader.plan(place, stream, among)]
            found = concatenated([series async for series in reader.pieces(stored, parts, among)])
            if after is not None and after.is_in(name, *_ATTEMPT(batch[0][1])):
                found = found.select(_is_beyond(found, after, streams, attempt_of == attempt_of[batch[0][0]]))
            yield found.ordered(attempt_of[found.streams], side_of[found.streams])


def _ranges(reader: Reader, batch: _Streams, most: int) -> Iterator[Range]:
    """Ranges of iterations that have about `most` points each, by what is known of the blocks' ends."""
    marks: list[int] = []
    total = 0.0
    for _, stream in batch:
        density = stream.points / max(1, stream.rows)
        for first, last, rows in reader.ends(stream):
            count = int(rows * density) // _MARK_POINTS + 1
            marks += [first + (last - first) * number // count for number in range(count)]
            total += rows * density
    begin = ALL.low
    for cut in sorted(marks)[:: max(1, round(len(marks) * most / max(1.0, total)))]:
        if cut > begin:
            yield Range(begin, cut - 1)
            begin = cut
    yield Range(begin, ALL.high)


def _is_beyond(series: Series, after: Place, streams: Sequence[Stream], is_same: Mask) -> Mask:
    """Select the points behind a place; those of other attempts than its own all are. `is_same`: of which streams not."""
    later = np.array([_SIDE(stream) > (after.data_source, after.rank) for stream in streams])
    equal = np.array([_SIDE(stream) == (after.data_source, after.rank) for stream in streams])
    found = later[series.streams] | (equal[series.streams] & (series.steps > after.row_step))
    for column, bound in ((series.times, after.time_us), (series.iterations, after.iteration)):
        found = (column > bound) | ((column == bound) & found)
    return found | ~is_same[series.streams]


async def _reduced(
    reader: Reader, stored: str | None, streams: Sequence[Stream], max_points: int
) -> AsyncIterator[Series]:
    """At most `max_points` points, shared among the curves; all ranks of one source are one curve."""
    curves = [list(group) for _, group in groupby(enumerate(streams), lambda one: _CURVE(one[1]))]
    counts = [sum(stream.points for _, stream in curve) for curve in curves]
    newest = max(range(len(curves)), key=lambda number: max(s.last_seen_us for _, s in curves[number]), default=0)
    share_of = dict(enumerate(shares(counts, newest, max_points)))
    drawn = [one for number, curve in enumerate(curves) for one in curve if share_of[number]]
    attempt_of, curve_of = _numbered(streams, _ATTEMPT), _numbered(streams, _CURVE)
    part_of = np.ones(len(streams), np.int64)
    for number, curve in enumerate(curves):
        most = max(_LEAST_OF_RANK, _MOST_OF_RANKS // len(curve))
        is_large = counts[number] > _MOST_OF_RANKS
        for place, stream in curve:
            part_of[place] = coarseness(reader.expected(stream), min(share_of[number], most), is_large=is_large)
    metric = stored
    if stored is None and (part_of > 1).any():
        metric = await metric_of_all_rows(reader.connection, [stream for _, stream in drawn])
    cost = {place: 2 * reader.expected(stream) / part_of[place] for place, stream in drawn}
    for batch in _batches(drawn, cost, _BATCH_POINTS):
        parts = [part for place, stream in batch for part in reader.plan(place, stream)]
        found = concatenated([series async for series in reader.pieces(metric, parts, part_of=part_of)])
        if stored is None:
            found = found._replace(values=found.iterations.astype(float))
        found = found.ordered(curve_of[found.streams], found.streams)
        numbers, starts = np.unique(curve_of[found.streams], return_index=True)
        bounds = pairwise([*starts.tolist(), found.size])
        few = concatenated(
            reduce_series(found.select(slice(low, high)), share_of[number])
            for number, (low, high) in zip(numbers.tolist(), bounds, strict=True)
        )
        yield few.ordered(attempt_of[few.streams], curve_of[few.streams])


async def _aggregated(
    reader: Reader, query: PointQuery, stored: str | None, streams: Sequence[Stream]
) -> AsyncIterator[Series]:
    """One point for each interval of a curve; all ranks of one source are one curve."""
    assert query.aggregate is not None and query.interval_ms is not None  # noqa: PT018 - one condition of the API
    attempt_of, curve_of = _numbered(streams, _ATTEMPT), _numbered(streams, _CURVE)
    cost = {place: reader.expected(stream) for place, stream in enumerate(streams)}
    for batch in _batches(list(enumerate(streams)), cost, _BATCH_POINTS):
        gathered = Aggregator(query.aggregate, query.interval_ms * _MILLISECOND, curve_of)
        parts = [part for place, stream in batch for part in reader.plan(place, stream)]
        async for series in reader.pieces(stored, await gathered.add_known(reader, stored, parts)):
            gathered.append_points(series)
        found = gathered.figures()
        yield found.ordered(attempt_of[found.streams], curve_of[found.streams])
