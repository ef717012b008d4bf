"""Reading one metric of one stream: out of blocks where there are any, out of rows everywhere else."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from itertools import groupby

from .arrays import unpack_doubles, unpack_positions
from .blocks import BLOCK_ROWS, SUMMARY_POINTS, Series, coarser, holds_all, summary_series
from .levels import Cover, has_spans
from .reader import Frame, Reader
from .reducing import concatenated, in_time, reduce_series
from .streams import Header, Segment, Stream, Window, segments

_PIECE_ROWS = 5_000
_PIECE_BLOCKS = 8
_TIME = "coalesce(r.event_time_us, r.received_us)"


async def read_whole(
    reader: Reader,
    stream: Stream,
    blocks: Sequence[Header],
    metric: str | None,
    window: Window,
    after_step: int | None = None,
    *,
    at_once: int = _PIECE_BLOCKS,
) -> AsyncIterator[Series]:
    """All points in the order of their steps, in pieces; `metric` None: the iterations themselves.

    `at_once`: so many blocks are read at one time.
    """
    gathered = reader.gathered(stream)
    if gathered is not None:
        known = _beyond(in_time(gathered, window.start_us, window.end_us), after_step)
        if known.values:
            yield known
        return
    for segment in segments(stream, blocks, window, after_step):
        async for piece in _segment(reader, stream, segment, metric, window, at_once):
            known = _beyond(piece, after_step)
            if known.values:
                yield known


def _beyond(series: Series, step: int | None) -> Series:
    if step is None or not series.steps or series.steps[0] > step:
        return series
    return series.part(bisect_right(series.steps, step), len(series.steps))


async def read_reduced(
    reader: Reader,
    stream: Stream,
    blocks: Sequence[Header],
    metric: str | None,
    window: Window,
    max_points: int,
) -> Series:
    """At most `max_points` of the stream's points, its extremes among them, in the order of their steps."""
    gathered = reader.gathered(stream)
    if gathered is not None:
        return reduce_series(in_time(gathered, window.start_us, window.end_us), max_points)
    whole = Cover(1, list(blocks))
    level, headers = await reader.cover(stream, window, max_points) if reads_spans(stream, metric) else whole
    # Of a metric a block has the extremes of each of its parts, of the iterations themselves both ends.
    per_part = SUMMARY_POINTS if metric is not None else BLOCK_ROWS
    parts = segments(stream, headers, window)
    if level == 1 and 2 * _points_expected(stream, headers, window) < per_part * max_points:
        # A summary would have fewer parts than the answer.
        pieces = [piece for part in parts async for piece in _all_points(reader, stream, part, metric, window)]
        return reduce_series(concatenated(pieces), max_points)
    found: list[Series] = []
    for part in parts:
        if part.blocks:
            found += await _summarised(reader, stream, metric, window, part.blocks, level)
        else:
            found += [coarser(piece, 0, level) async for piece in _segment(reader, stream, part, metric, window)]
    return reduce_series(concatenated(found), max_points)


def reads_spans(stream: Stream, metric: str | None) -> bool:
    """Whether fewer points of a stream may be read out of spans; of the iterations themselves spans know nothing."""
    return metric is not None and has_spans(stream)


def _points_expected(stream: Stream, headers: Sequence[Header], window: Window) -> float:
    """About how many points of the metric there are in what is to be read."""
    rows = stream.rows - stream.blocked_rows + sum(header.rows for header in headers if window.touches(header))
    return rows * stream.points / max(1, stream.rows)


async def _all_points(
    reader: Reader, stream: Stream, segment: Segment, metric: str | None, window: Window
) -> AsyncIterator[Series]:
    """The points of a segment; of a rare metric out of the summaries that hold all of them, without their steps.

    A block's steps and times are many times what it has of such a metric.
    """
    if metric is None or not segment.blocks or 2 * stream.points * BLOCK_ROWS > SUMMARY_POINTS * stream.rows:
        async for piece in _segment(reader, stream, segment, metric, window):
            yield piece
        return
    cursor = await reader.connection.execute(
        f"select last_step, case when {holds_all('summary', 'points')} then summary end from lens_column"
        " where stream_id = %s and metric = %s and last_step = any(%s)".encode(),
        [stream.id, metric, [block.last_step for block in segment.blocks]],
        binary=True,
    )
    summaries: dict[int, bytes | None] = dict(await cursor.fetchall())
    known = [block for block in segment.blocks if block.last_step in summaries]
    for are_whole, group in groupby(known, lambda block: summaries[block.last_step] is not None):
        run = list(group)
        if are_whole:
            whole = summary_series([summaries[block.last_step] or b"" for block in run])
            yield in_time(whole, window.start_us, window.end_us)
        else:
            async for piece in _segment(reader, stream, segment._replace(blocks=tuple(run)), metric, window):
                yield piece


async def _summarised(
    reader: Reader, stream: Stream, metric: str | None, window: Window, blocks: Sequence[Header], level: int
) -> list[Series]:
    """Summaries of what is inside of the window, points of blocks that are partly in it, all as coarse as a level."""
    inside = [block for block in blocks if window.holds(block)]
    summaries: dict[int, bytes] = {}
    points: dict[int, Series] = {}
    if metric is None:
        points = await reader.ends(stream, inside)
    else:
        for _, group in groupby(sorted(inside, key=lambda block: block.level), lambda block: block.level):
            summaries.update(await _summaries(reader, stream, metric, list(group)))
    for block in blocks:
        if not window.holds(block):
            async for piece in _blocks(reader, stream, (block,), metric, window):
                points[block.last_step] = coarser(piece, 0, level)
    pieces: list[Series] = []
    known = [block for block in blocks if block.last_step in summaries or block.last_step in points]
    for its_level, group in groupby(known, lambda block: block.level if block.last_step in summaries else 0):
        steps = [block.last_step for block in group]
        if its_level:
            pieces.append(coarser(summary_series([summaries[step] for step in steps]), its_level, level))
        else:
            pieces += [points[step] for step in steps]
    return pieces


async def _summaries(reader: Reader, stream: Stream, metric: str, blocks: Sequence[Header]) -> dict[int, bytes]:
    """The summaries of blocks, or of spans of one level, by their last steps."""
    cursor = await reader.connection.execute(
        "select last_step, summary from lens_level_column where stream_id = %s and level = %s and metric = %s"
        " and last_step = any(%s)",
        [stream.id, blocks[0].level, metric, [block.last_step for block in blocks]],
        binary=True,
    )
    return dict(await cursor.fetchall())


async def _segment(
    reader: Reader, stream: Stream, segment: Segment, metric: str | None, window: Window, at_once: int = _PIECE_BLOCKS
) -> AsyncIterator[Series]:
    if segment.blocks:
        for low in range(0, len(segment.blocks), at_once):
            blocks = segment.blocks[low : low + at_once]
            async for piece in _blocks(reader, stream, blocks, metric, window):
                yield piece
    else:
        async for piece in _rows(reader, stream, segment, metric, window):
            yield piece


async def _blocks(
    reader: Reader, stream: Stream, blocks: Sequence[Header], metric: str | None, window: Window
) -> AsyncIterator[Series]:
    frames = await reader.frames(stream, blocks)
    if metric is None:
        for last_step in sorted(frames):
            steps, iterations, times = frames[last_step]
            whole = Series(iterations, times, array("d", iterations), steps)
            yield in_time(whole, window.start_us, window.end_us)
        return
    cursor = await reader.connection.execute(
        'select last_step, positions, "values" from lens_column'
        " where stream_id = %s and metric = %s and last_step = any(%s) order by last_step",
        [stream.id, metric, [block.last_step for block in blocks]],
        binary=True,
    )
    for last_step, positions, values in await cursor.fetchall():
        yield in_time(_unpacked(frames[last_step], positions, values), window.start_us, window.end_us)


def _unpacked(frame: Frame, positions: bytes | None, values: bytes) -> Series:
    whole = Series(frame.iterations, frame.times, unpack_doubles(values), frame.steps)
    return whole if positions is None else whole.at(unpack_positions(positions))


async def _rows(
    reader: Reader, stream: Stream, segment: Segment, metric: str | None, window: Window
) -> AsyncIterator[Series]:
    """Rows by the primary key, piece by piece; the transaction's snapshot keeps the pieces together."""
    tail = None if metric is None else await reader.tail(stream, segment, metric)
    if tail is not None:
        yield in_time(tail, window.start_us, window.end_us)
        return
    value = "r.iteration" if metric is None else "r.metrics ->> %(metric)s"
    statement = f"select r.row_step, r.iteration, {_TIME}, {value} from lens_row r where r.stream_id = %(id)s"
    statement += " and r.row_step between %(first)s and %(last)s"
    statement += "" if metric is None else " and r.metrics ? %(metric)s"
    statement += f" and {_TIME} between %(start)s and %(end)s" if window.is_limited else ""
    statement += " order by r.row_step limit %(limit)s"
    first = segment.first_step
    while first <= segment.last_step:
        parameters = {"id": stream.id, "metric": metric, "first": first, "last": segment.last_step}
        parameters |= {"start": window.start_us, "end": window.end_us, "limit": _PIECE_ROWS}
        found = await (await reader.connection.execute(statement.encode(), parameters)).fetchall()
        if found:
            steps, iterations, times, values = zip(*found, strict=True)
            yield Series(array("q", iterations), array("q", times), array("d", map(float, values)), array("q", steps))
        if len(found) < _PIECE_ROWS:
            return
        first = found[-1][0] + 1


async def is_in_order(reader: Reader, stream: Stream, blocks: Sequence[Header]) -> bool:
    """Whether the stream's iterations never go back, so that the order of its steps is that of its iterations."""
    if not stream.own_iterations:
        return True
    highest = -(2**63)
    for block in blocks:
        if block.dirty or not block.ordered or block.first_iteration < highest:
            return False
        highest = block.last_iteration
    cursor = await reader.connection.execute(
        "select count(*), coalesce(bool_and(iteration >= before), true) from ("
        " select iteration, coalesce(lag(iteration) over (order by row_step), %(highest)s) as before from ("
        "  select row_step, iteration from lens_row where stream_id = %(id)s and row_step > %(after)s"
        "  order by row_step limit %(limit)s) rows) pairs",
        {
            "id": stream.id,
            "highest": highest,
            "after": highest if stream.blocked_step is None else stream.blocked_step,
            "limit": 4 * _PIECE_ROWS,
        },
    )
    row = await cursor.fetchone()
    return row is not None and row[0] < 4 * _PIECE_ROWS and bool(row[1])
