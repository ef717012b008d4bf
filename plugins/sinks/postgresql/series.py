"""Reading one metric of one stream: out of blocks where there are any, out of rows everywhere else."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Sequence
from typing import Any

from .arrays import unpack_doubles, unpack_positions, unpack_spaced
from .blocks import SUMMARY_POINTS, Series, summarised, summary_series
from .identity import Connection
from .reducing import concatenated, in_time, reduce_series
from .streams import Header, Segment, Stream, Window, segments

_PIECE_ROWS = 5_000
_PIECE_BLOCKS = 8
_TIME = "coalesce(r.event_time_us, r.received_us)"


async def read_whole(
    connection: Connection,
    stream: Stream,
    blocks: Sequence[Header],
    metric: str | None,
    window: Window,
    after_step: int | None = None,
) -> AsyncIterator[Series]:
    """All points in the order of their steps, in pieces; `metric` None: the iterations themselves."""
    for segment in segments(stream, blocks, window, after_step):
        async for piece in _segment(connection, stream, segment, metric, window):
            known = piece
            if after_step is not None and piece.steps and piece.steps[0] <= after_step:
                known = piece.select([at for at, step in enumerate(piece.steps) if step > after_step])
            if known.values:
                yield known


async def read_reduced(
    connection: Connection,
    stream: Stream,
    blocks: Sequence[Header],
    metric: str | None,
    window: Window,
    max_points: int,
) -> Series:
    """At most `max_points` of the stream's points, its extremes among them, in the order of their steps."""
    parts = segments(stream, blocks, window)
    if metric is None or 2 * _points_expected(stream, blocks, parts) < SUMMARY_POINTS * max_points:
        # A summary would have fewer parts than the answer.
        pieces = [piece for part in parts async for piece in _segment(connection, stream, part, metric, window)]
        return reduce_series(concatenated(pieces), max_points)
    found: list[Series] = []
    for part in parts:
        inside, partly = _split(part.blocks, window)
        if inside:
            found += await _around(connection, stream, metric, window, inside, partly)
        else:
            found += [summarised(piece) async for piece in _segment(connection, stream, part, metric, window)]
    return reduce_series(concatenated(found), max_points)


def _points_expected(stream: Stream, blocks: Sequence[Header], parts: Sequence[Segment]) -> float:
    """About how many points of the metric there are in what is to be read."""
    outside_of_blocks = max(0, stream.rows - sum(block.rows for block in blocks if not block.dirty))
    rows = outside_of_blocks + sum(block.rows for part in parts for block in part.blocks)
    return rows * stream.points / max(1, stream.rows)


async def _around(
    connection: Connection, stream: Stream, metric: str, window: Window, inside: list[Header], partly: list[Header]
) -> list[Series]:
    """Summaries of the blocks inside of the window, points of those that are partly in it, in the order of steps."""
    found = {
        block.last_step: [summary_series(data)] for block, data in await _summaries(connection, stream, metric, inside)
    }
    for block in partly:
        pieces = [summarised(piece) async for piece in _blocks(connection, stream, (block,), metric, window)]
        found[block.last_step] = pieces
    return [piece for last_step in sorted(found) for piece in found[last_step]]


def _split(blocks: Sequence[Header], window: Window) -> tuple[list[Header], list[Header]]:
    inside = [b for b in blocks if window.start_us <= b.first_us and b.last_us <= window.end_us]
    return inside, [b for b in blocks if not (window.start_us <= b.first_us and b.last_us <= window.end_us)]


async def _summaries(
    connection: Connection, stream: Stream, metric: str, blocks: Sequence[Header]
) -> list[tuple[Header, bytes]]:
    by_step = {block.last_step: block for block in blocks}
    cursor = await connection.execute(
        "select last_step, summary from lens_column where stream_id = %s and metric = %s"
        " and last_step between %s and %s order by last_step",
        [stream.id, metric, blocks[0].last_step, blocks[-1].last_step],
        binary=True,
    )
    return [(by_step[last_step], data) for last_step, data in await cursor.fetchall() if last_step in by_step]


async def _segment(
    connection: Connection, stream: Stream, segment: Segment, metric: str | None, window: Window
) -> AsyncIterator[Series]:
    if segment.blocks:
        for low in range(0, len(segment.blocks), _PIECE_BLOCKS):
            blocks = segment.blocks[low : low + _PIECE_BLOCKS]
            async for piece in _blocks(connection, stream, blocks, metric, window):
                yield piece
    else:
        async for piece in _rows(connection, stream, segment, metric, window):
            yield piece


async def _blocks(
    connection: Connection, stream: Stream, blocks: Sequence[Header], metric: str | None, window: Window
) -> AsyncIterator[Series]:
    columns = "b.rows, b.steps, b.iterations, b.times"
    steps = [block.last_step for block in blocks]
    if metric is None:
        statement = f"select {columns}, null, null from lens_block b where b.stream_id = %s and b.last_step = any(%s)"
        parameters: list[Any] = [stream.id, steps]
    else:
        statement = (
            f'select {columns}, c.positions, c."values"'
            " from lens_column c join lens_block b using (stream_id, last_step)"
            " where c.stream_id = %s and c.metric = %s and c.last_step = any(%s)"
        )
        parameters = [stream.id, metric, steps]
    cursor = await connection.execute(f"{statement} order by b.last_step".encode(), parameters, binary=True)
    for row in await cursor.fetchall():
        yield in_time(_unpacked(*row), window.start_us, window.end_us)


def _unpacked(
    rows: int, steps: bytes, iterations: bytes | None, times: bytes, positions: bytes | None, values: bytes | None
) -> Series:
    step_numbers = unpack_spaced(steps, rows)
    numbers = step_numbers if iterations is None else unpack_spaced(iterations, rows)
    moments = unpack_spaced(times, rows)
    if values is None:
        return Series(numbers, moments, array("d", numbers), step_numbers)
    if positions is None:
        return Series(numbers, moments, unpack_doubles(values), step_numbers)
    at = unpack_positions(positions)
    return Series(
        array("q", [numbers[p] for p in at]),
        array("q", [moments[p] for p in at]),
        unpack_doubles(values),
        array("q", [step_numbers[p] for p in at]),
    )


async def _rows(
    connection: Connection, stream: Stream, segment: Segment, metric: str | None, window: Window
) -> AsyncIterator[Series]:
    """Rows by the primary key, piece by piece; the transaction's snapshot keeps the pieces together."""
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
        found = await (await connection.execute(statement.encode(), parameters)).fetchall()
        if found:
            steps, iterations, times, values = zip(*found, strict=True)
            yield Series(array("q", iterations), array("q", times), array("d", map(float, values)), array("q", steps))
        if len(found) < _PIECE_ROWS:
            return
        first = found[-1][0] + 1


async def is_in_order(connection: Connection, stream: Stream, blocks: Sequence[Header]) -> bool:
    """Whether the stream's iterations never go back, so that the order of its steps is that of its iterations."""
    if not stream.own_iterations:
        return True
    highest = -(2**63)
    for block in blocks:
        if block.dirty or not block.ordered or block.first_iteration < highest:
            return False
        highest = block.last_iteration
    cursor = await connection.execute(
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
