"""Which blocks, and which spans of which level in place of many of them, a chart of a long stream is read from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from .blocks import BLOCK_ROWS, LOWEST_STEP, SPAN_PARTS, points_of_part
from .identity import Connection
from .streams import Header, Stream, Window, headers_between

_HIGHEST_STEP = 2**63 - 1


class Cover(NamedTuple):
    """Blocks and spans that hold all of a stream's blocks in a window, in the order of their steps.

    `level` is that of the coarsest among them. What a window does not touch is left out.
    """

    level: int
    headers: list[Header]


class _Steps(NamedTuple):
    """A range of steps, both included."""

    first: int
    last: int


def has_spans(stream: Stream) -> bool:
    """Whether the stream is long enough for one."""
    return stream.rows >= BLOCK_ROWS * SPAN_PARTS


def coarsest_level(points: int, max_points: int) -> int:
    """The highest level whose summaries of so many points have as many parts as an answer has."""
    return next(level for level in count(1) if 2 * points < points_of_part(level + 1) * max_points)


async def cover(connection: Connection, stream: Stream, window: Window, max_points: int) -> Cover:
    """The fewest blocks and spans that answer `max_points` of the window.

    From the highest level down: a span that is wholly inside of the window, and as fine as the answer, is taken; in
    place of others what they hold is looked at, at the level below.
    """
    left = [_Steps(LOWEST_STEP, _HIGHEST_STEP)]
    taken: list[Header] = []
    coarsest = 1
    for level in range(coarsest_level(stream.points, max_points), 1, -1):
        spans = await _spans(connection, stream.id, level, left)
        if coarsest == 1 and _is_fine(stream, level, [s for s in spans if window.holds(s)], max_points):
            coarsest = level
        settled = [s for s in spans if not s.dirty and (not window.touches(s) or (coarsest > 1 and window.holds(s)))]
        taken += [span for span in settled if window.touches(span)]
        left = _between(left, settled)
    taken += await headers_between(connection, stream.id, left)
    return Cover(coarsest, sorted(taken, key=lambda header: header.last_step))


def _is_fine(stream: Stream, level: int, spans: Sequence[Header], max_points: int) -> bool:
    """Whether the summaries of these spans have as many parts as the answer."""
    points = sum(span.rows for span in spans) * stream.points / max(1, stream.rows)
    return 2 * points >= points_of_part(level) * max_points


def _between(ranges: Sequence[_Steps], settled: Sequence[Header]) -> list[_Steps]:
    """What the settled ones leave of ranges that hold them; both in the order of their steps."""
    found = []
    for first, last in ranges:
        for span in settled:
            if first <= span.first_step and span.last_step <= last:
                found.append(_Steps(first, span.first_step - 1))
                first = span.last_step + 1
        found.append(_Steps(first, last))
    return [steps for steps in found if steps.first <= steps.last]


async def _spans(connection: Connection, stream_id: int, level: int, ranges: Sequence[_Steps]) -> list[Header]:
    """The spans of a level in ranges of steps; one with a block that is to be made anew is not to be read either."""
    cursor = await connection.execute(
        "select s.first_step, s.last_step, s.rows, s.dirty or exists (select from lens_block b"
        "  where b.stream_id = s.stream_id and b.dirty and b.last_step between s.first_step and s.last_step),"
        " true, 0, 0, s.first_us, s.last_us, s.level"
        " from unnest(%s::bigint[], %s::bigint[]) r (first_step, last_step) join lens_span s"
        " on s.stream_id = %s and s.level = %s and s.last_step between r.first_step and r.last_step order by 2",
        [[steps.first for steps in ranges], [steps.last for steps in ranges], stream_id, level],
        binary=True,
    )
    return [Header(*row) for row in await cursor.fetchall()]
