"""Curves of so many points that parts of them are answered in their place, where blocks keep these."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from lens_core import PointColumns, PointQuery

from .answer_columns import answer_columns
from .parts import PART_POINTS, part_columns
from .point_store import PointReader
from .reading import Reader
from .streams import Part, Stream

# A bucket is made of at least so many parts: each of its ends may be off by most of a part.
_FEWEST_PARTS = 2
_BLOCKS_AT_ONCE = 1024
_NOTHING = (0, None)
_CURVE = attrgetter("run_id", "attempt", "data_source")
_CURVE_OF_RANK = attrgetter("run_id", "attempt", "data_source", "rank")


def long_apart(
    reader: PointReader, query: PointQuery, wanted: Sequence[tuple[str | None, str, Sequence[Stream]]]
) -> Iterator[tuple[str | None, str, Sequence[Stream], bool]]:
    """The metrics and their streams in the same order, each stream that `long_curve` answers by itself."""
    for stored, name, streams in wanted:
        is_long = _long_ones(reader, query, stored, streams)
        groups = groupby(range(len(streams)), [place if long else -1 for place, long in enumerate(is_long)].__getitem__)
        for number, places in groups:
            yield stored, name, [streams[place] for place in places], number >= 0


def _long_ones(reader: PointReader, query: PointQuery, metric: str | None, streams: Sequence[Stream]) -> Sequence[bool]:
    """Whether each stream is a curve by itself, where steps are iterations, of so many points that enough parts are
    left of it.
    """
    if query.over_parts is None or metric is None or not isinstance(reader, Reader):
        return [False] * len(streams)
    is_by_rank = query.fields == ("rank",)
    if query.fields and not is_by_rank:
        return [False] * len(streams)
    curve_of = _CURVE_OF_RANK if is_by_rank else _CURVE
    curves = Counter(map(curve_of, streams))
    fewest = query.over_parts * _FEWEST_PARTS * PART_POINTS
    return [
        curves[curve_of(stream)] == 1 and not stream.own_iterations and reader.expected(stream) >= fewest
        for stream in streams
    ]


async def with_rank(pieces: AsyncIterator[PointColumns], stream: Stream) -> AsyncIterator[PointColumns]:
    """The same pieces, with the stream's rank beside each point."""
    rank = None if stream.rank < 0 else stream.rank
    async for piece in pieces:
        yield msgspec.structs.replace(piece, extras={"rank": [rank] * len(piece), **piece.extras})


async def long_curve(reader: PointReader, metric: str, name: str, stream: Stream) -> AsyncIterator[PointColumns]:
    """A curve in the order of its iterations: parts where blocks have them, else points.

    What is whole in the window begins and ends with points, so that the first and the last stand for themselves.
    """
    plan = reader.plan(0, stream)
    inner = [part.last_step for part in plan if part.block is not None and reader.window.holds(part.block)]
    is_begun = False
    for low in range(0, len(plan), _BLOCKS_AT_ONCE):
        few = plan[low : low + _BLOCKS_AT_ONCE]
        known = await _packed_parts(reader, metric, stream, [step for step in inner if _is_among(step, few)])
        if known and not is_begun:
            del known[min(known)]
            is_begun = True
        if known and not await _has_any(reader, metric, stream, [step for step in inner if step > few[-1].last_step]):
            del known[max(known)]

        def kind_of(part: Part, known: Mapping[int, tuple[int, bytes | None]] = known) -> tuple[bool, bool]:
            is_block = part.block is not None  # rows of one that is outdated have its last step
            return is_block, is_block and known.get(part.last_step, _NOTHING)[1] is not None

        for (_, is_known), group in groupby(few, kind_of):
            found = list(group)
            if is_known:
                points, packed = zip(*(known[part.last_step] for part in found), strict=True)
                yield part_columns(name, stream, packed, points)
                continue
            async for series in reader.pieces(metric, found):
                if series.size:
                    yield answer_columns(name, stream, series.iterations, series.times, series.values)


def _is_among(step: int, parts: Sequence[Part]) -> bool:
    return parts[0].last_step <= step <= parts[-1].last_step


async def _has_any(reader: PointReader, metric: str, stream: Stream, steps: Sequence[int]) -> bool:
    """Whether any of these blocks, by their last steps, has the metric."""
    if not steps:
        return False
    cursor = await reader.connection.execute(
        "select from lens_column where stream_id = %s and metric = %s and last_step = any(%s) limit 1",
        [stream.id, metric, list(steps)],
    )
    return cursor.rowcount > 0


async def _packed_parts(
    reader: PointReader, metric: str, stream: Stream, steps: Sequence[int]
) -> dict[int, tuple[int, bytes | None]]:
    """The number of points of those of these blocks that have the metric, and their parts if any are kept."""
    cursor = await reader.connection.execute(
        "select last_step, points, parts from lens_column where stream_id = %s and metric = %s and last_step = any(%s)",
        [stream.id, metric, list(steps)],
        binary=True,
    )
    return {step: (points, parts) for step, points, parts in await cursor.fetchall()}
