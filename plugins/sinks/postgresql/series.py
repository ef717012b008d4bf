"""Reading one metric of one stream: out of blocks where there are any, out of rows everywhere else."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from itertools import groupby

from .arrays import unpack_doubles, unpack_positions
from .blocks import BLOCK_ROWS, SUMMARY_POINTS, Series, summarised, summary_series
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
    parts = segments(stream, blocks, window)
    # Of a metric a block has the extremes of each of its parts, of the iterations themselves both ends.
    per_part = SUMMARY_POINTS if metric is not None else BLOCK_ROWS
    if 2 * _points_expected(stream, blocks, parts) < per_part * max_points:
        # A summary would have fewer parts than the answer.
        pieces = [piece for part in parts async for piece in _segment(reader, stream, part, metric, window)]
        return reduce_series(concatenated(pieces), max_points)
    found: list[Series] = []
    for part in parts:
        inside, partly = _split(part.blocks, window)
        if inside:
            found += await _around(reader, stream, metric, window, inside, partly)
        else:
            found += [summarised(piece) async for piece in _segment(reader, stream, part, metric, window)]
    return reduce_series(concatenated(found), max_points)


def _points_expected(stream: Stream, blocks: Sequence[Header], parts: Sequence[Segment]) -> float:
    """About how many points of the metric there are in what is to be read."""
    outside_of_blocks = max(0, stream.rows - sum(block.rows for block in blocks if not block.dirty))
    rows = outside_of_blocks + sum(block.rows for part in parts for block in part.blocks)
    return rows * stream.points / max(1, stream.rows)


async def _around(
    reader: Reader, stream: Stream, metric: str | None, window: Window, inside: list[Header], partly: list[Header]
) -> list[Series]:
    """Summaries of the blocks inside of the window, points of those that are partly in it, in the order of steps."""
    found: dict[int, bytes | Series] = {}
    if metric is None:
        found.update(await reader.ends(stream, inside))
    else:
        found.update(await _summaries(reader, stream, metric, inside))
    for block in partly:
        async for piece in _blocks(reader, stream, (block,), metric, window):
            found[block.last_step] = summarised(piece)
    pieces: list[Series] = []
    for _, group in groupby([found[last_step] for last_step in sorted(found)], type):
        run = list(group)
        pieces += [piece for piece in run if isinstance(piece, Series)]
        pieces.append(summary_series([piece for piece in run if isinstance(piece, bytes)]))
    return pieces


def _split(blocks: Sequence[Header], window: Window) -> tuple[list[Header], list[Header]]:
    inside = [b for b in blocks if window.start_us <= b.first_us and b.last_us <= window.end_us]
    return inside, [b for b in blocks if not (window.start_us <= b.first_us and b.last_us <= window.end_us)]


async def _summaries(reader: Reader, stream: Stream, metric: str, blocks: Sequence[Header]) -> list[tuple[int, bytes]]:
    """The summaries by the blocks' last steps."""
    wanted = {block.last_step for block in blocks}
    cursor = await reader.connection.execute(
        "select last_step, summary from lens_column where stream_id = %s and metric = %s"
        " and last_step between %s and %s order by last_step",
        [stream.id, metric, blocks[0].last_step, blocks[-1].last_step],
        binary=True,
    )
    return [(last_step, data) for last_step, data in await cursor.fetchall() if last_step in wanted]


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
