"""Points of metrics in one snapshot: whole, as pages, or reduced to as many as can be drawn.

Each metric's streams are planned, read and reduced a batch of attempts at a time, so that memory is bounded and many
short attempts cost no more statements than a long one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np

from lens_core import BadRequest, PointColumns, PointQuery
from lens_core.plugin_api.store import metric_name, percentile_of

from .aggregating import Aggregator
from .answer_columns import answer_columns
from .database import Database
from .extras import Extras
from .identity import Connection
from .left_out import left_out
from .long_curves import long_apart, long_curve, with_rank
from .paging import ATTEMPT, SIDE, Page, is_ahead, is_answered, is_beyond
from .point_store import Curve, PointReader, PointStore
from .rank_charts import rank_columns, rank_curves, streams_beside
from .reducing import reduce_series, shares
from .series import Integers, Series, concatenated
from .streams import (
    ALL,
    ORDER,
    Range,
    Stream,
    all_streams,
    metric_of_all_rows,
    streams_by_metric,
    window_of,
    workloads_of_streams,
)

_TARGET = "target_iteration"
_BATCH_POINTS = 200_000
_PIECE_POINTS = 5_000
_MARK_POINTS = 4_000
# A curve of many ranks is made of so many points, and of so many of each of them: both ends and both extremes.
_MOST_OF_RANKS = 200_000
_LEAST_OF_RANK = 4
# A curve is drawn as one, whatever ranks logged it.
_CURVE = attrgetter("run_id", "attempt", "data_source")
# A percentile is made of all values of an interval, which are held meanwhile.
_MOST_PERCENTILE_POINTS = 5_000_000
_MOST_INTERVALS = 1_000_000
# A metric as it is stored (None: the iterations themselves), its own name, the streams that have it.
_Wanted: TypeAlias = tuple[str | None, str, list[Stream]]
Watch: TypeAlias = Callable[[Iterable[int]], None]
_Streams: TypeAlias = Sequence[tuple[int, Stream]]  # with their places among those of the metric


async def metric_columns(
    database: Database, store: PointStore, query: PointQuery, watch: Watch
) -> AsyncGenerator[PointColumns, None]:
    """The points of a query in the order metric, run, attempt, iteration, time. Raises BadRequest, Unavailable.

    `watch` is told which streams are read.
    """
    page = Page(query)
    async with database.reading() as connection, connection.transaction():
        hidden = await left_out(connection, query)
        curves = await rank_curves(connection, query, hidden)
        among = await streams_beside(connection, query) if curves else None
        wanted: list[_Wanted] = [
            (stored, metric_name(stored), streams)
            for stored, streams in await streams_by_metric(connection, query, hidden, among)
        ]
        watch({stream.id for _, _, streams in wanted for stream in streams})
        found = _read_page(connection, store, query, wanted, page)
        if not curves:
            async for piece in found:
                yield piece
            return
        summaries = rank_columns(connection, query, curves)
        summary = await anext(summaries, None)
        async for piece in found:
            while summary is not None and summary.metric_name <= piece.metric_name:
                yield summary
                summary = await anext(summaries, None)
            yield piece
        while summary is not None:
            yield summary
            summary = await anext(summaries, None)


async def iteration_columns(
    database: Database, store: PointStore, query: PointQuery, watch: Watch
) -> AsyncGenerator[PointColumns, None]:
    """`iteration` of every row, then `target_iteration` where it is known; each in the order of `metric_columns`."""
    page = Page(query)
    target = msgspec.structs.replace(query, metrics=(_TARGET,))
    async with database.reading() as connection, connection.transaction():
        hidden = await left_out(connection, query)
        wanted: list[_Wanted] = [(None, "iteration", await all_streams(connection, query, hidden))]
        wanted += [(stored, stored, streams) for stored, streams in await streams_by_metric(connection, target, hidden)]
        watch({stream.id for _, _, streams in wanted for stream in streams})
        async for piece in _read_page(connection, store, query, wanted, page):
            yield piece


async def _read_page(
    connection: Connection, store: PointStore, query: PointQuery, wanted: Sequence[_Wanted], page: Page
) -> AsyncGenerator[PointColumns, None]:
    """All columns; the last of a query with a limit also says how many points there are in all."""
    metrics = [stored for stored, _, _ in wanted if stored is not None]
    every = [stream for _, _, streams in wanted for stream in streams]
    reader = await store.open_reader(connection, window_of(query), metrics, every)
    extras = Extras(connection, store, query)
    last: PointColumns | None = None
    if query.is_by_workload:
        wanted = _by_workload(wanted, await workloads_of_streams(connection, query))
    async for piece in _cut_pieces(reader, extras, query, wanted, page):
        if last is not None:
            yield last
        last = piece
    if last is not None and query.limit is not None:
        counts = [] if page.is_counted else [await reader.count_points(stored, found) for stored, _, found in wanted]
        last = msgspec.structs.replace(last, total_count=page.seen if page.is_counted else sum(counts))
    if last is not None:
        yield last


def _by_workload(wanted: Sequence[_Wanted], uids: Mapping[int, str]) -> list[_Wanted]:
    """The streams of each workload as one run of its name."""
    return [
        (stored, name, sorted((one._replace(run_id=uids.get(one.id, ""), attempt=0) for one in streams), key=ORDER))
        for stored, name, streams in wanted
    ]


async def _cut_pieces(
    reader: PointReader, extras: Extras, query: PointQuery, wanted: Sequence[_Wanted], page: Page
) -> AsyncIterator[PointColumns]:
    """Yield the part of an answer that is on the page. A computed answer is computed whole, so that it is counted."""
    for stored, name, streams, is_long in long_apart(reader, query, wanted):
        if is_long and stored is not None:
            whole = long_curve(reader, stored, name, streams[0])
            async for piece in with_rank(whole, streams[0]) if query.fields else whole:
                yield piece
            continue
        if query.is_across_runs:
            streams = sorted((stream._replace(run_id="", attempt=0) for stream in streams), key=ORDER)
        if query.aggregate is not None:
            found = _aggregated(reader, query, stored, streams)
            # Each aggregate has curves of its own, after those of the one before.
            curves = len({_CURVE(stream) for stream in streams})
            numbers = _numbered(streams, _CURVE)
            curve_of = np.concatenate([numbers + curves * place for place in range(len(query.aggregates))])
            streams = [*streams] * len(query.aggregates)
        else:
            curve_of = _numbered(streams, _CURVE)
            if query.max_points is not None:
                found = _reduced(reader, query, stored, streams)
            elif query.last is not None:
                found = _last(reader, query, stored, streams, query.last)
            else:
                found = _read_whole(reader, query, stored, name, streams, page)
        async for series in found:
            if query.is_descending:
                series = series.select(slice(None, None, -1))
            async for piece in _columns(extras, stored, name, streams, curve_of, series, page):
                yield piece
            if page.is_full and not page.is_counted:
                return


async def _columns(
    extras: Extras,
    stored: str | None,
    name: str,
    streams: Sequence[Stream],
    curve_of: Integers,
    series: Series,
    page: Page,
) -> AsyncIterator[PointColumns]:
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
        piece = series.select(slice(low, high))
        beside = await extras.of(stored, streams, piece)
        cursor = page.next_cursor if high == series.size else ""
        yield answer_columns(name, stream, piece.iterations, piece.times, piece.values, beside, cursor)


def _batches(streams: _Streams, cost: Mapping[int, float], most: float) -> Iterator[_Streams]:
    """Attempts in a row together, as long as they cost no more than `most`; an attempt is never split."""
    batch: list[tuple[int, Stream]] = []
    spent = 0.0
    for _, group in groupby(streams, lambda one: ATTEMPT(one[1])):
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


def _placed(streams: Sequence[Stream], query: PointQuery) -> list[tuple[int, Stream]]:
    """The streams with their places, in the order of the answer."""
    placed = list(enumerate(streams))
    return placed[::-1] if query.is_descending else placed


async def _read_whole(
    reader: PointReader, query: PointQuery, stored: str | None, name: str, streams: Sequence[Stream], page: Page
) -> AsyncIterator[Series]:
    """All points from the page's place on, sorted; of an attempt with many points a range of iterations at a time.

    Of a descending answer the last range comes first; within it points are ascending here, too.
    """
    after = page.place
    left = [one for one in _placed(streams, query) if is_ahead(query, name, one[1], after)]
    most = _BATCH_POINTS if page.remaining is None else max(_MARK_POINTS, min(page.remaining, _BATCH_POINTS))
    attempt_of, side_of = _numbered(streams, ATTEMPT), _numbered(streams, SIDE)
    cost = {place: reader.expected(stream) for place, stream in left}
    for batch in _batches(left, cost, most):
        ranges: Iterable[Range] = [ALL]
        if sum(cost[place] for place, _ in batch) > most:
            ranges = _ranges(reader, batch, most)
            if query.is_descending:
                ranges = [*ranges][::-1]
        for among in ranges:
            is_begun = after is not None and after.is_in(name, *ATTEMPT(batch[-1][1]))
            if is_begun and after is not None and is_answered(among, after, query):
                continue
            parts = [part for place, stream in batch for part in reader.plan(place, stream, among)]
            found = concatenated([series async for series in reader.pieces(stored, parts, among)])
            if after is not None and after.is_in(name, *ATTEMPT(batch[0][1])):
                is_same = attempt_of == attempt_of[batch[0][0]]
                found = found.select(is_beyond(found, after, streams, is_same, descending=query.is_descending))
            yield found.ordered(attempt_of[found.streams], side_of[found.streams])


def _ranges(reader: PointReader, batch: _Streams, most: int) -> Iterator[Range]:
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


async def _last(
    reader: PointReader, query: PointQuery, stored: str | None, streams: Sequence[Stream], count: int
) -> AsyncIterator[Series]:
    """The last `count` points of each curve; all ranks of one source are one curve."""
    attempt_of, curve_of = _numbered(streams, ATTEMPT), _numbered(streams, _CURVE)
    cost = {place: min(reader.expected(stream), 2 * count + _MARK_POINTS) for place, stream in enumerate(streams)}
    for batch in _batches(_placed(streams, query), cost, _BATCH_POINTS):
        lowest = {place: reader.iteration_before_last(stream, count) for place, stream in batch}
        found = concatenated([series async for series in _from_iterations(reader, stored, batch, lowest)])
        few = {place for place in lowest if lowest[place] > ALL.low and (found.streams == place).sum() < count}
        if few:  # a metric that is logged rarely, or not lately
            found = found.select(~np.isin(found.streams, list(few)))
            again = [(place, stream) for place, stream in batch if place in few]
            found = concatenated([found, *[one async for one in _from_iterations(reader, stored, again, {})]])
        found = found.ordered(curve_of[found.streams], found.streams)
        ends = np.append(np.flatnonzero(np.diff(curve_of[found.streams])) + 1, found.size)
        starts = np.concatenate([[0], ends[:-1]])
        found = concatenated(
            found.select(slice(max(low, high - count), high)) for low, high in zip(starts, ends, strict=True)
        )
        yield found.ordered(attempt_of[found.streams], curve_of[found.streams])


async def _from_iterations(
    reader: PointReader, stored: str | None, streams: _Streams, lowest: Mapping[int, int]
) -> AsyncIterator[Series]:
    """The points of streams, of some only those from an iteration on."""
    lows = {place: lowest.get(place, ALL.low) for place, _ in streams}
    parts = [part for place, stream in streams for part in reader.plan(place, stream, Range(lows[place], ALL.high))]
    async for series in reader.pieces(stored, parts):
        if series.size:
            yield series.between(*reader.window, lows[int(series.streams[0])], ALL.high)


async def _reduced(
    reader: PointReader, query: PointQuery, stored: str | None, streams: Sequence[Stream]
) -> AsyncIterator[Series]:
    """At most `max_points` points, shared among the curves; all ranks of one source are one curve."""
    assert query.max_points is not None
    max_points = query.max_points
    curves = [list(group) for _, group in groupby(enumerate(streams), lambda one: _CURVE(one[1]))]
    counts = [sum(stream.points for _, stream in curve) for curve in curves]
    newest = max(range(len(curves)), key=lambda number: max(s.last_seen_us for _, s in curves[number]), default=0)
    share_of = dict(enumerate(shares(counts, newest, max_points)))
    drawn = [one for number, curve in enumerate(curves) for one in curve if share_of[number]]
    if query.is_descending:
        drawn.reverse()
    attempt_of, curve_of = _numbered(streams, ATTEMPT), _numbered(streams, _CURVE)
    part_of = np.ones(len(streams), np.int64)
    for number, curve in enumerate(curves):
        most = max(_LEAST_OF_RANK, _MOST_OF_RANKS // len(curve))
        drawing = Curve(counts[number], share_of[number], counts[number] > _MOST_OF_RANKS)
        for place, stream in curve:
            if "tags" in query.fields:
                continue  # they are the rows', whose steps summaries do not know
            part_of[place] = reader.coarseness(stream, drawing, min(share_of[number], most))
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
    reader: PointReader, query: PointQuery, stored: str | None, streams: Sequence[Stream]
) -> AsyncIterator[Series]:
    """One point for each interval of a curve; all ranks of one source are one curve.

    A point of the second aggregate has the place of its stream after all streams, and so on.
    """
    attempt_of, curve_of = _numbered(streams, ATTEMPT), _numbered(streams, _CURVE)
    cost = {place: reader.expected(stream) for place, stream in enumerate(streams)}
    batches = list(_batches(_placed(streams, query), cost, _BATCH_POINTS))
    _ensure_affordable(query, batches, cost)
    for batch in batches:
        gathered = Aggregator(query, curve_of)
        parts = [part for place, stream in batch for part in reader.plan(place, stream)]
        async for series in reader.pieces(stored, await gathered.add_known(reader, stored, parts)):
            gathered.append_points(series)
        figures = gathered.figures()
        found = concatenated(
            figure._replace(streams=figure.streams + number * len(streams)) for number, figure in enumerate(figures)
        )
        number, place = np.divmod(found.streams, max(1, len(streams)))
        yield found.ordered(attempt_of[place] * len(figures) + number, curve_of[place])


def _ensure_affordable(query: PointQuery, batches: Sequence[_Streams], cost: Mapping[int, float]) -> None:
    """Refuse what would need too much memory, before anything is read. Raises BadRequest."""
    if any(percentile_of(name) is not None for name in query.aggregates):
        most = max((sum(cost[place] for place, _ in batch) for batch in batches), default=0.0)
        if most > _MOST_PERCENTILE_POINTS:
            raise BadRequest(
                f"a percentile of one metric is made of at most {_MOST_PERCENTILE_POINTS:,} points, and these are about"
                f" {round(most):,}; choose a run, or start and end, or mean, min and max"
            )
    if query.interval_iterations is not None:
        for batch in batches:
            ends = [(stream.first_iteration, stream.last_iteration) for _, stream in batch]
            span = max(last for _, last in ends) - min(first for first, _ in ends)
            # Iterations may be far apart: an interval without any makes no point.
            intervals = min(span // query.interval_iterations + 1, sum(cost[place] for place, _ in batch))
            if intervals * len(query.aggregates) > _MOST_INTERVALS:
                raise BadRequest(
                    f"the interval makes more than {_MOST_INTERVALS:,} points of one metric; take a longer"
                )
