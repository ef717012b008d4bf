"""Pages of points: how many may still come, and where the next page begins. Pure, no I/O."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from lens_core import BadRequest, PointQuery

from .series import Mask, Series
from .streams import Range, Stream
from .text import bigint, refuse_nul

# An answer is in the order of attempts, and within one iteration and time in that of sides.
ATTEMPT = attrgetter("run_id", "attempt")
SIDE = attrgetter("data_source", "rank")


class Place(NamedTuple):
    """The last point of a page; everything that the order of an answer depends on. Time in microseconds."""

    metric: str
    run_id: str
    attempt: int
    iteration: int
    time_us: int
    data_source: str
    rank: int
    row_step: int

    def is_in(self, metric: str, run_id: str, attempt: int) -> bool:
        """Whether the place is within this attempt of this run."""
        return (self.metric, self.run_id, self.attempt) == (metric, run_id, attempt)


def place_of(cursor: str) -> Place | int | None:
    """Decode a cursor: a place, or how many points were answered before. Raises BadRequest."""
    if not cursor:
        return None
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        place: Place | int = msgspec.json.decode(text, type=Place | int)
        for part in place if isinstance(place, Place) else (place,):
            bigint(part) if isinstance(part, int) else refuse_nul(part)
        return place
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise BadRequest("cursor is none that this server gave") from None


def cursor_of(place: Place | int) -> str:
    """A place as a text for an URL."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


class Page:
    """Counts the points of an answer. Raises BadRequest for a cursor that is none."""

    def __init__(self, query: PointQuery) -> None:
        place = place_of(query.cursor)
        # Points that are made rather than read have no place of their own: a cursor counts them.
        self.is_counted = query.max_points is not None or query.aggregate is not None
        if place is not None and isinstance(place, int) != self.is_counted:
            raise BadRequest("the cursor belongs to another query")
        self.place = None if isinstance(place, int) else place
        self.remaining = query.limit
        self.next_cursor = ""
        self.seen = 0
        self._skip = place if isinstance(place, int) else 0
        self._answered = self._skip
        self._last: Place | None = None

    @property
    def is_full(self) -> bool:
        """Whether there is more than fits; `next_cursor` says where it begins."""
        return bool(self.next_cursor)

    def cut_series(self, metric: str, streams: Sequence[Stream], series: Series) -> Series:
        """The points that belong to this page; none once it is full. `seen` counts all."""
        self.seen += series.size
        if self.is_full:
            return series.select(slice(0))
        if self._skip:
            skipped = min(self._skip, series.size)
            self._skip -= skipped
            series = series.select(slice(skipped, None))
        if self.remaining is None:
            return series
        count = min(self.remaining, series.size)
        if count:
            stream = streams[series.streams[count - 1]]
            numbers = (series.iterations, series.times, series.steps)
            iteration, time_us, step = (int(column[count - 1]) for column in numbers)
            where = (stream.run_id, stream.attempt, iteration, time_us, stream.data_source, stream.rank, step)
            self._last = Place(metric, *where)
        self.remaining -= count
        self._answered += count
        if count < series.size:
            self.next_cursor = cursor_of(self._answered if self.is_counted or self._last is None else self._last)
        return series.select(slice(count))


def is_ahead(query: PointQuery, name: str, stream: Stream, after: Place | None) -> bool:
    """Whether an attempt has points after a place of the answer, in which metrics are in ascending order."""
    if after is None or name != after.metric:
        return after is None or name > after.metric
    attempt, reached = ATTEMPT(stream), (after.run_id, after.attempt)
    return bool(attempt <= reached if query.is_descending else attempt >= reached)


def is_answered(among: Range, after: Place, query: PointQuery) -> bool:
    """Whether all of a range was on the pages before."""
    return among.low > after.iteration if query.is_descending else among.high < after.iteration


def is_beyond(
    series: Series, after: Place, streams: Sequence[Stream], is_same: Mask, *, descending: bool = False
) -> Mask:
    """Select the points after a place; those of other attempts all are. `is_same` marks the streams of its attempt."""
    later = np.array([SIDE(stream) > (after.data_source, after.rank) for stream in streams])
    equal = np.array([SIDE(stream) == (after.data_source, after.rank) for stream in streams])
    found = later[series.streams] | (equal[series.streams] & (series.steps > after.row_step))
    for column, bound in ((series.times, after.time_us), (series.iterations, after.iteration)):
        found = (column > bound) | ((column == bound) & found)
    if descending:
        itself = equal[series.streams] & (series.steps == after.row_step)
        found = ~found & ~(itself & (series.times == after.time_us) & (series.iterations == after.iteration))
    return found | ~is_same[series.streams]
