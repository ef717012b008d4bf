"""What the metrics of one query share: the steps and times of blocks, and the rows that are in no block yet.

Each is read once for all metrics; what is kept is bounded, and gone with the query.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from .arrays import ends_of, unpack_spaced
from .blocks import BLOCK_ROWS, Series
from .gathering import FEW_STREAMS, gather, is_short
from .identity import Connection
from .levels import Cover, coarsest_level, cover
from .streams import Header, Segment, Stream, Window

_MOST_FRAMES = 64
_MOST_COVERS = 64
_MOST_TAIL_ROWS = 2 * BLOCK_ROWS
_MOST_VALUES = 4_000_000
_GROUP = 32
_FEW_METRICS = 2
_TIME = "coalesce(event_time_us, received_us)"
_decode_integers = msgspec.json.Decoder(list[int]).decode
_decode_values = msgspec.json.Decoder(list[list[float | str | None]]).decode


class Frame(NamedTuple):
    """The rows of a block without their metrics."""

    steps: array[int]
    iterations: array[int]
    times: array[int]


class Tail(NamedTuple):
    """The rows of a stream that are in no block; of some metrics the positions and values of their points."""

    frame: Frame
    points: Sequence[tuple[array[int] | None, array[float]]]


class Reader:
    """One query's way to blocks and rows, on a connection in a transaction of one snapshot."""

    def __init__(self, connection: Connection, metrics: Sequence[str]) -> None:
        self.connection = connection
        self._metrics = metrics
        self._places = {metric: place for place, metric in enumerate(metrics)}
        self._frames: OrderedDict[tuple[int, int], Frame] = OrderedDict()
        self._tails: dict[int, Tail | None] = {}
        self._group = -1
        self._values = 0
        self._gathered: dict[int, Series] = {}
        self._covers: OrderedDict[tuple[int, int, int], Cover] = OrderedDict()

    async def gather(
        self, streams: Sequence[Stream], blocks: Mapping[int, Sequence[Header]], metric: str | None
    ) -> None:
        """Read all points of a metric of the short ones among these streams, in place of those gathered before."""
        short = [stream for stream in streams if is_short(stream, blocks.get(stream.id, ()))]
        many = len(short) > FEW_STREAMS
        self._gathered = await gather(self.connection, short, blocks, metric) if many else {}

    def gathered(self, stream: Stream) -> Series | None:
        """All points of the metric that was gathered last, if this stream's are among them."""
        return self._gathered.get(stream.id)

    async def frames(self, stream: Stream, blocks: Sequence[Header]) -> dict[int, Frame]:
        """Steps, iterations and times of blocks of a stream, by the blocks' last steps."""
        found = {b.last_step: self._frames[stream.id, b.last_step] for b in blocks if self._knows(stream, b)}
        missing = [block.last_step for block in blocks if block.last_step not in found]
        if missing:
            cursor = await self.connection.execute(
                "select last_step, rows, steps, iterations, times from lens_block"
                " where stream_id = %s and last_step = any(%s)",
                [stream.id, missing],
                binary=True,
            )
            for last_step, rows, steps, iterations, times in await cursor.fetchall():
                numbers = unpack_spaced(steps, rows)
                frame = Frame(
                    numbers,
                    numbers if iterations is None else unpack_spaced(iterations, rows),
                    unpack_spaced(times, rows),
                )
                found[last_step] = self._frames[stream.id, last_step] = frame
            while len(self._frames) > _MOST_FRAMES:
                self._frames.popitem(last=False)
        return found

    def _knows(self, stream: Stream, block: Header) -> bool:
        return (stream.id, block.last_step) in self._frames

    async def cover(self, stream: Stream, window: Window, max_points: int) -> Cover:
        """What a chart of so many points is read from; the same for all metrics that have as many points.

        `window` is that of the query.
        """
        highest = coarsest_level(stream.points, max_points)
        key = (stream.id, stream.points if highest > 1 else 0, max_points if highest > 1 else 0)
        if key not in self._covers:
            self._covers[key] = await cover(self.connection, stream, window, max_points)
            while len(self._covers) > _MOST_COVERS:
                self._covers.popitem(last=False)
        return self._covers[key]

    async def ends(self, stream: Stream, blocks: Sequence[Header]) -> dict[int, Series]:
        """The first and the last row of blocks of a stream, as points of iterations, by the blocks' last steps."""
        columns = [
            f"octet_length({name}), substr({name}, 1, 8) || substr({name}, octet_length({name}) - 7)"
            for name in ("steps", "times", "coalesce(iterations, steps)")
        ]
        cursor = await self.connection.execute(
            f"select last_step, rows, {', '.join(columns)} from lens_block"
            " where stream_id = %s and last_step = any(%s)".encode(),
            [stream.id, [block.last_step for block in blocks]],
            binary=True,
        )
        found = {}
        for last_step, rows, *parts in await cursor.fetchall():
            steps, times, iterations = (ends_of(parts[n + 1], parts[n], rows) for n in (0, 2, 4))
            found[last_step] = Series(iterations, times, array("d", iterations), steps)
        return found

    async def tail(self, stream: Stream, segment: Segment, metric: str) -> Series | None:
        """The points of a metric in the rows beyond all blocks.

        None where reading them for many metrics at once does not pay: few metrics, many rows, many streams.
        """
        beyond = stream.blocked_step is None or segment.first_step > stream.blocked_step
        if not beyond or len(self._metrics) <= _FEW_METRICS:
            return None
        place = self._places[metric]
        group = place - place % _GROUP
        if group != self._group:  # metrics come one after the other: what was read for others is not needed again
            self._group, self._tails, self._values = group, {}, 0
        if stream.id not in self._tails:
            names = self._metrics[group : group + _GROUP]
            if self._values + min(stream.rows, _MOST_TAIL_ROWS) * len(names) > _MOST_VALUES:
                return None
            self._tails[stream.id] = await self._read_tail(stream, segment, names)
        tail = self._tails[stream.id]
        return None if tail is None else _series(tail.frame, *tail.points[place - group])

    async def _read_tail(self, stream: Stream, segment: Segment, names: Sequence[str]) -> Tail | None:
        """One text for each column costs least on both sides."""
        values = ", ".join(f"metrics -> %(m{place})s" for place in range(len(names)))
        cursor = await self.connection.execute(
            "select count(*), string_agg(row_step::text, ','), string_agg(iteration::text, ','),"
            " string_agg(at::text, ','), string_agg(found::text, ',') from ("
            f"select row_step, iteration, {_TIME} as at, to_jsonb(array[{values}]) as found from lens_row"
            " where stream_id = %(id)s and row_step >= %(first)s order by row_step limit %(limit)s) rows".encode(),
            {
                **{"id": stream.id, "first": segment.first_step, "limit": _MOST_TAIL_ROWS + 1},
                **{f"m{place}": name for place, name in enumerate(names)},
            },
        )
        row = await cursor.fetchone()
        assert row is not None  # an aggregate always has a row
        if row[0] > _MOST_TAIL_ROWS:
            return None
        steps, iterations, times = (array("q", _decode_integers(f"[{text or ''}]")) for text in row[1:4])
        columns = list(zip(*_decode_values(f"[{row[4] or ''}]"), strict=True)) or [()] * len(names)
        self._values += row[0] * len(names)
        return Tail(Frame(steps, iterations, times), [_points(column) for column in columns])


def _points(column: Sequence[float | str | None]) -> tuple[array[int] | None, array[float]]:
    """Positions (None: all) and values of what is there."""
    known: list[Any] = [value for value in column if value is not None]
    values: array[float]
    try:
        values = array("d", known)
    except TypeError:  # the special values are strings
        values = array("d", map(float, known))
    if len(known) == len(column):
        return None, values
    return array("q", [position for position, value in enumerate(column) if value is not None]), values


def _series(frame: Frame, positions: array[int] | None, values: array[float]) -> Series:
    whole = Series(frame.iterations, frame.times, values, frame.steps)
    return whole if positions is None else whole.at(positions)
