"""Reading one metric of one stream: out of blocks where there are any, out of rows everywhere else.

Whole, that is; what charts read is in `charts.py`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence

from .arrays import unpack_doubles, unpack_positions
from .blocks import Series
from .reader import Frame, Reader
from .reducing import in_time
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
        async for piece in read_segment(reader, stream, segment, metric, window, at_once):
            known = _beyond(piece, after_step)
            if known.values:
                yield known


def _beyond(series: Series, step: int | None) -> Series:
    if step is None or not series.steps or series.steps[0] > step:
        return series
    return series.part(bisect_right(series.steps, step), len(series.steps))


async def read_segment(
    reader: Reader, stream: Stream, segment: Segment, metric: str | None, window: Window, at_once: int = _PIECE_BLOCKS
) -> AsyncIterator[Series]:
    """All points of a segment in a window, in pieces of so many blocks or rows."""
    if segment.blocks:
        for low in range(0, len(segment.blocks), at_once):
            blocks = segment.blocks[low : low + at_once]
            async for piece in read_blocks(reader, stream, blocks, metric, window):
                yield piece
    else:
        async for piece in _rows(reader, stream, segment, metric, window):
            yield piece


async def read_blocks(
    reader: Reader, stream: Stream, blocks: Sequence[Header], metric: str | None, window: Window
) -> AsyncIterator[Series]:
    """All points of a few blocks in a window."""
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
