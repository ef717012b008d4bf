"""Reading as many points of one stream as can be drawn: out of what is extreme, where that is as fine as the chart."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Sequence
from itertools import groupby

from .blocks import BLOCK_ROWS, SUMMARY_POINTS, Series, coarser, holds_all, summary_series
from .levels import Cover, has_spans
from .reader import Reader
from .reducing import concatenated, in_time, reduce_series
from .series import read_blocks, read_segment
from .streams import Header, Segment, Stream, Window, segments


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
    other = await _metric_of_all_rows(reader, stream) if metric is None else None
    points = await _coarse_points(reader, stream, blocks, metric or other, window, max_points)
    if other is not None:
        points = points._replace(values=array("d", points.iterations))
    return reduce_series(points, max_points)


async def _metric_of_all_rows(reader: Reader, stream: Stream) -> str | None:
    """A metric of which every row has a point, where iterations only rise.

    Any points of such a run draw its iterations: those of a summary are much less to read than all steps and times.
    """
    if stream.own_iterations:
        return None
    cursor = await reader.connection.execute(
        "select metric from lens_catalogue where stream_id = %s and points = %s limit 1", [stream.id, stream.rows]
    )
    found = await cursor.fetchone()
    return None if found is None else str(found[0])


async def _coarse_points(
    reader: Reader, stream: Stream, blocks: Sequence[Header], metric: str | None, window: Window, max_points: int
) -> Series:
    """The stream's points, those that are extreme alone where that is still as fine as `max_points`."""
    whole = Cover(1, list(blocks))
    level, headers = await reader.cover(stream, window, max_points) if reads_spans(stream, metric) else whole
    # Of a metric a block has the extremes of each of its parts, of the iterations themselves both ends.
    per_part = SUMMARY_POINTS if metric is not None else BLOCK_ROWS
    parts = segments(stream, headers, window)
    if level == 1 and 2 * _points_expected(stream, headers, window) < per_part * max_points:
        # A summary would have fewer parts than the answer.
        return concatenated([p for part in parts async for p in _all_points(reader, stream, part, metric, window)])
    found: list[Series] = []
    for part in parts:
        if part.blocks:
            found += await _summarised(reader, stream, metric, window, part.blocks, level)
        else:
            found += [coarser(piece, 0, level) async for piece in read_segment(reader, stream, part, metric, window)]
    return concatenated(found)


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
        async for piece in read_segment(reader, stream, segment, metric, window):
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
            async for piece in read_segment(reader, stream, segment._replace(blocks=tuple(run)), metric, window):
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
            async for piece in read_blocks(reader, stream, (block,), metric, window):
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
