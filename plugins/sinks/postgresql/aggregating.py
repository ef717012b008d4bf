"""One figure for each interval of time: out of what is known of a block where an interval holds all of it.

Else out of all points: at the ends of intervals, of blocks with values that are no numbers or iterations that go back,
of those that were made before their sums were kept, and of figures that need the points' own times (first, last).
"""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import summary_series
from .reader import Reader
from .reducing import Aggregator, Known, has_nan
from .series import read_segment, read_whole
from .streams import Header, Segment, Stream, Window, segments

_AT_ONCE = 512


async def aggregate(
    reader: Reader, stream: Stream, blocks: Sequence[Header], metric: str | None, window: Window, into: Aggregator
) -> None:
    """Add a stream's points in a window to the figures; `metric` None: the iterations themselves."""
    if metric is None or not into.takes_sums or reader.gathered(stream) is not None:
        async for series in read_whole(reader, stream, blocks, metric, window):
            into.add(series)
        return
    for segment in segments(stream, blocks, window):
        left = await _beside_known(reader, stream, segment, metric, window, into) if segment.blocks else segment
        if left is not None:
            async for series in read_segment(reader, stream, left, metric, window):
                into.add(series)


async def _beside_known(
    reader: Reader, stream: Stream, segment: Segment, metric: str, window: Window, into: Aggregator
) -> Segment | None:
    """Add what is known of whole blocks; the segment of those that are to be read, None where there are none."""
    whole = [b for b in segment.blocks if b.ordered and window.holds(b) and into.is_one(b.first_us, b.last_us)]
    done: set[int] = set()
    for low in range(0, len(whole), _AT_ONCE):
        done |= await _add_known(reader, stream, metric, whole[low : low + _AT_ONCE], into)
    left = tuple(block for block in segment.blocks if block.last_step not in done)
    return segment._replace(blocks=left) if left else None


async def _add_known(
    reader: Reader, stream: Stream, metric: str, blocks: Sequence[Header], into: Aggregator
) -> set[int]:
    """Add what is known of these blocks; the last steps of those with which that is done."""
    cursor = await reader.connection.execute(
        "select last_step, points, total, summary from lens_column where stream_id = %s and metric = %s"
        " and last_step = any(%s)",
        [stream.id, metric, [block.last_step for block in blocks]],
        binary=True,
    )
    found = {row[0]: row[1:] for row in await cursor.fetchall()}
    done = set()
    for block in blocks:
        points, total, summary = found.get(block.last_step, (0, 0.0, b""))
        telling = summary_series([summary])
        if total is None or has_nan(telling.values):
            continue
        if points:  # both ends and both extremes are among what is telling
            extremes = (min(telling.values), max(telling.values))
            into.add_known(block.first_us, Known(telling.iterations[-1], points, total, *extremes))
        done.add(block.last_step)
    return done
