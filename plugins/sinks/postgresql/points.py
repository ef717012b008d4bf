"""Points of metrics in one snapshot: whole, as pages, or reduced to as many as can be drawn."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import groupby
from typing import TypeAlias

import msgspec

from lens_core import PointColumns, PointQuery
from lens_core.model.queries import metric_name

from .aggregating import aggregate
from .blocks import Series
from .charts import read_reduced, reads_spans
from .counting import count_points
from .database import Database
from .identity import Connection
from .merging import MOST_STREAMS, read_merged
from .paging import Page, Place
from .reader import Reader
from .reducing import Aggregator, aggregated, reduce_together, shares
from .series import is_in_order, read_whole
from .streams import Header, Stream, Window, all_streams, headers, streams_by_metric, window_of
from .unordered import read_sorted

_TARGET = "target_iteration"
_MILLISECOND = 1000
_GATHERED_ROWS = 50_000
# A curve of many ranks is made of so many points, and of so many of each of them: both ends and both extremes.
_MOST_OF_RANKS = 200_000
_LEAST_OF_RANK = 4
Piece = tuple[Stream, Series]
# What is drawn as one: run, attempt and source, whatever ranks logged it.
_Curve: TypeAlias = tuple[str, int, str]
# A metric as it is stored (None: the iterations themselves), its own name, the streams that have it.
_Wanted: TypeAlias = tuple[str | None, str, list[Stream]]


async def metric_columns(database: Database, query: PointQuery) -> AsyncGenerator[PointColumns, None]:
    """The points of a query in the order metric, run, attempt, iteration, time. Raises BadRequest, Unavailable."""
    page = Page(query)
    async with database.reading() as connection, connection.transaction():
        wanted: list[_Wanted] = [
            (stored, metric_name(stored), streams) for stored, streams in await streams_by_metric(connection, query)
        ]
        async for piece in _answer(connection, query, wanted, page):
            yield piece


async def iteration_columns(database: Database, query: PointQuery) -> AsyncGenerator[PointColumns, None]:
    """`iteration` of every row, then `target_iteration` where it is known; each in the order of `metric_columns`."""
    page = Page(query)
    async with database.reading() as connection, connection.transaction():
        wanted: list[_Wanted] = [(None, "iteration", await all_streams(connection, query))]
        target = PointQuery(
            workload_uid=query.workload_uid,
            metrics=(_TARGET,),
            data_source=query.data_source,
            start_ms=query.start_ms,
            end_ms=query.end_ms,
            run_id=query.run_id,
            attempt=query.attempt,
        )
        wanted += [(stored, stored, streams) for stored, streams in await streams_by_metric(connection, target)]
        async for piece in _answer(connection, query, wanted, page):
            yield piece


async def _answer(
    connection: Connection, query: PointQuery, wanted: Sequence[_Wanted], page: Page
) -> AsyncIterator[PointColumns]:
    ids = {
        stream.id
        for stored, _, streams in wanted
        for stream in streams
        if stream.blocked_step is not None and not (query.max_points is not None and reads_spans(stream, stored))
    }
    blocks = await headers(connection, sorted(ids))
    reader = Reader(connection, [stored for stored, _, _ in wanted if stored is not None])
    pieces = _pieces(reader, query, wanted, blocks, page)
    last: PointColumns | None = None
    async for piece in pieces:
        if last is not None:
            yield last
        last = piece
    if last is not None and query.limit is not None:
        total = page.seen
        if not page.is_counted:
            window = window_of(query)
            total = sum(
                [await count_points(connection, stored, streams, blocks, window) for stored, _, streams in wanted]
            )
        last = msgspec.structs.replace(last, total_count=total)
    if last is not None:
        yield last


async def _pieces(
    reader: Reader,
    query: PointQuery,
    wanted: Sequence[_Wanted],
    blocks: dict[int, list[Header]],
    page: Page,
) -> AsyncIterator[PointColumns]:
    """What of an answer is on the page. Of one that is made rather than read all is made, so that it is counted."""
    for stored, name, streams in wanted:
        async for stream, series in _metric(reader, query, stored, name, streams, blocks, page):
            was_full = page.is_full
            found = page.take(name, stream, series)
            if not was_full and (len(found.values) or page.is_full):
                yield _columns(name, stream, found, page.next_cursor)
            if page.is_full and not page.is_counted:
                return


async def _metric(
    reader: Reader,
    query: PointQuery,
    stored: str | None,
    name: str,
    streams: list[Stream],
    blocks: dict[int, list[Header]],
    page: Page,
) -> AsyncIterator[Piece]:
    window = window_of(query)
    share_of: dict[_Curve, int] = {}
    if query.max_points is not None:  # where there are more curves than points, some have none and are not read
        share_of = _shares(streams, query.max_points)
        streams = [stream for stream in streams if _curve(stream) in share_of]
    attempts = _attempts(name, streams, page.place)
    limit = None if page.is_counted else page.remaining
    async for members in _gathering(reader, stored, attempts, blocks, limit):
        place = page.place
        after = place if place is not None and place.is_in(name, members[0].run_id, members[0].attempt) else None
        if query.aggregate is not None:
            pieces = _aggregated(reader, query, stored, members, blocks, window)
        elif query.max_points is not None:
            pieces = _reduced(reader, stored, members, blocks, window, share_of)
        else:
            pieces = _whole(reader, stored, members, blocks, window, after, page.remaining)
        async for piece in pieces:
            yield piece


def _attempts(name: str, streams: Sequence[Stream], place: Place | None) -> list[list[Stream]]:
    """The streams of each attempt, without those before the place at which the answer begins."""
    attempts = [list(group) for _, group in groupby(streams, lambda s: (s.run_id, s.attempt))]
    if place is None:
        return attempts
    begins = (place.metric, place.run_id, place.attempt)
    return [members for members in attempts if (name, members[0].run_id, members[0].attempt) >= begins]


async def _gathering(
    reader: Reader,
    stored: str | None,
    attempts: Sequence[list[Stream]],
    blocks: dict[int, list[Header]],
    limit: int | None,
) -> AsyncIterator[list[Stream]]:
    """The attempts one by one; the short ones among them have been read together, as many as memory and limit allow."""
    most = _GATHERED_ROWS if limit is None else min(limit, _GATHERED_ROWS)
    low = rows = 0
    for high, members in enumerate(attempts, 1):
        rows += sum(stream.rows for stream in members)
        if rows < most and high < len(attempts):
            continue
        await reader.gather([stream for one in attempts[low:high] for stream in one], blocks, stored)
        for one in attempts[low:high]:
            yield one
        low, rows = high, 0


async def _whole(
    reader: Reader,
    stored: str | None,
    members: list[Stream],
    blocks: dict[int, list[Header]],
    window: Window,
    after: Place | None,
    limit: int | None,
) -> AsyncIterator[Piece]:
    in_order = len(members) <= MOST_STREAMS and all([await is_in_order(reader, s, blocks[s.id]) for s in members])
    if in_order and len(members) == 1:
        (stream,) = members
        step = None if after is None else after.row_step
        async for series in read_whole(reader, stream, blocks[stream.id], stored, window, step):
            yield stream, series
        return
    if in_order:  # where a page may end the stream of its last point matters, else only its source is shown
        pieces = read_merged(reader, members, blocks, stored, window, after, by_stream=limit is not None)
    else:
        pieces = read_sorted(reader.connection, members, stored, window, after, limit)
    async for piece in pieces:
        yield piece


async def _reduced(
    reader: Reader,
    stored: str | None,
    members: list[Stream],
    blocks: dict[int, list[Header]],
    window: Window,
    share_of: dict[_Curve, int],
) -> AsyncIterator[Piece]:
    """All ranks of one source together, as one curve."""
    found = []
    for curve, group in groupby(members, _curve):
        ranks, share = list(group), share_of[curve]
        each = share if len(ranks) == 1 else min(share, max(_LEAST_OF_RANK, _MOST_OF_RANKS // len(ranks)))
        series = [await read_reduced(reader, rank, blocks[rank.id], stored, window, each) for rank in ranks]
        found.append((ranks[0], series[0] if len(ranks) == 1 else reduce_together(series, share)))
    for piece in _interleaved(found):
        yield piece


async def _aggregated(
    reader: Reader,
    query: PointQuery,
    stored: str | None,
    members: list[Stream],
    blocks: dict[int, list[Header]],
    window: Window,
) -> AsyncIterator[Piece]:
    """All ranks of one source together."""
    assert query.aggregate is not None and query.interval_ms is not None  # noqa: PT018 - one condition of the API
    found = []
    for _, group in groupby(members, _curve):
        ranks = list(group)
        gathered = Aggregator(query.aggregate, query.interval_ms * _MILLISECOND)
        for stream in ranks:
            await aggregate(reader, stream, blocks[stream.id], stored, window, gathered)
        found.append((ranks[0], aggregated(gathered.buckets())))
    for piece in _interleaved(found):
        yield piece


def _curve(stream: Stream) -> _Curve:
    return stream.run_id, stream.attempt, stream.data_source


def _shares(streams: Sequence[Stream], max_points: int) -> dict[_Curve, int]:
    """How many of the points each curve gets, if any."""
    points: dict[_Curve, int] = defaultdict(int)
    for stream in streams:
        points[_curve(stream)] += stream.points
    return {curve: share for curve, share in zip(points, shares([*points.values()], max_points), strict=True) if share}


def _interleaved(found: Sequence[Piece]) -> list[Piece]:
    """Several series of one run's attempt in the order iteration, time; points of one source in a row are one piece."""
    if len(found) == 1 and not found[0][0].own_iterations:
        return list(found)
    points = sorted(
        (iteration, time, stream.data_source, index, value)
        for index, (stream, series) in enumerate(found)
        for iteration, time, value in zip(series.iterations, series.times, series.values, strict=True)
    )
    pieces = []
    for _, group in groupby(points, lambda point: point[2]):
        run = list(group)
        series = Series(
            array("q", [point[0] for point in run]),
            array("q", [point[1] for point in run]),
            array("d", [point[4] for point in run]),
            array("q", bytes(8 * len(run))),
        )
        pieces.append((found[run[0][3]][0], series))
    return pieces


def _columns(name: str, stream: Stream, series: Series, next_cursor: str) -> PointColumns:
    return PointColumns(
        metric_name=name,
        data_source=stream.data_source,
        run_id=stream.run_id,
        attempt=stream.attempt,
        iterations=series.iterations,
        timestamps=array("q", [time // _MILLISECOND for time in series.times]),
        values=series.values,
        next_cursor=next_cursor,
    )
