"""Streams of one attempt (its ranks and sources), each in order by itself, as one: out of blocks, bounded in memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Sequence
from itertools import chain, groupby, repeat
from typing import TypeAlias

from .blocks import Series
from .paging import Place
from .reader import Reader
from .series import read_whole
from .streams import Header, Stream, Window

MOST_STREAMS = 128
_ROUND_POINTS = 20_000
_HIGHEST = 2**63
# iteration, time, source and rank, step, stream, value: an answer's order. A stream has a step once, so that values,
# which may be NaN, are never compared.
_Row: TypeAlias = tuple[int, int, float, int, int, float]


async def read_merged(
    reader: Reader,
    streams: Sequence[Stream],
    blocks: dict[int, list[Header]],
    metric: str | None,
    window: Window,
    after: Place | None,
    *,
    by_stream: bool,
) -> AsyncIterator[tuple[Stream, Series]]:
    """The points in the order iteration, time, source, rank, step; a piece is of one source, or of one stream."""
    sides = sorted({(stream.data_source, stream.rank) for stream in streams})
    lanes = [
        _Lane(number, bisect_left(sides, (stream.data_source, stream.rank)), _points(reader, stream, *rest))
        for number, stream in enumerate(streams)
        for rest in [(blocks[stream.id], metric, window, after)]
    ]
    beyond = None if after is None else (after.iteration, after.time_us, _side(sides, after), after.row_step)
    quota = max(1, _ROUND_POINTS // len(lanes))
    while rows := await _round(lanes, quota):
        if beyond is not None:
            rows = [row for row in rows if row[:4] > beyond]
        for _, group in groupby(rows, lambda row: row[4] if by_stream else streams[row[4]].data_source):
            run = list(group)
            yield streams[run[0][4]], _series(run)


def _points(
    reader: Reader,
    stream: Stream,
    blocks: Sequence[Header],
    metric: str | None,
    window: Window,
    after: Place | None,
) -> AsyncIterator[Series]:
    """A stream's points from the iteration of a place on, a few before it among them where iterations are its own."""
    step = None
    if after is not None and stream.own_iterations:
        step = max((block.last_step for block in blocks if block.last_iteration < after.iteration), default=None)
    elif after is not None:
        step = after.iteration - 1
    return read_whole(reader, stream, blocks, metric, window, step, at_once=1)


def _side(sides: Sequence[tuple[str, int]], place: Place) -> float:
    """Where a place's source and rank are among those of the streams, or between which of them."""
    wanted = (place.data_source, place.rank)
    found = bisect_left(sides, wanted)
    return found if sides[found : found + 1] == [wanted] else found - 0.5


async def _round(lanes: Sequence[_Lane], quota: int) -> list[_Row]:
    """The next points of all, about `quota` of each; nothing at the end."""
    for lane in lanes:
        await lane.fill()
    bound = min(lane.bound(quota) for lane in lanes)
    return sorted(chain.from_iterable(lane.take(bound) for lane in lanes))


class _Lane:
    """What has been read of a stream and not been answered."""

    def __init__(self, number: int, side: int, pieces: AsyncIterator[Series]) -> None:
        self._number = number
        self._side = side
        self._pieces = pieces
        self._series = Series.empty()
        self._at = 0
        self._ended = False

    async def fill(self) -> None:
        """Read on until there is more than one iteration, so that the first is there with all of its points."""
        while not self._ended and self._after_first() == len(self._series.iterations):
            piece = await anext(self._pieces, None)
            if piece is None:
                self._ended = True
                return
            rest = self._series.part(self._at, len(self._series.iterations))
            rest.extend(piece)
            self._series, self._at = rest, 0

    def _after_first(self) -> int:
        iterations = self._series.iterations
        return bisect_right(iterations, iterations[self._at], self._at) if self._at < len(iterations) else self._at

    def bound(self, quota: int) -> int:
        """The iteration before which all is there: about `quota` points from here, more than one iteration."""
        iterations = self._series.iterations
        position = max(self._at + quota, self._after_first())
        if position < len(iterations):
            return iterations[position]
        return _HIGHEST if self._ended else iterations[-1]

    def take(self, bound: int) -> zip[_Row]:
        """The points before an iteration."""
        high = bisect_left(self._series.iterations, bound, self._at)
        part = self._series.part(self._at, high)
        self._at = high
        side, number = repeat(float(self._side)), repeat(self._number)
        return zip(part.iterations, part.times, side, part.steps, number, part.values)  # noqa: B905 - some repeat


def _series(rows: Sequence[_Row]) -> Series:
    iterations, times, _, steps, _, values = zip(*rows, strict=True)
    return Series(array("q", iterations), array("q", times), array("d", values), array("q", steps))
