"""The two places where points may be: rows and blocks of PostgreSQL, or a table of ClickHouse.

Everything small (subjects, attempts, streams with their figures, the catalogue, events) is in PostgreSQL either way. A
store of points is always asked with a connection to it, in whose snapshot or transaction the answer belongs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from lens_core import Position

from .encoding import StreamChange
from .grouping import Pending, StreamKey
from .identity import Connection, StreamId
from .news_log import StepRange
from .rows import StoredRow
from .series import Integers, Series
from .streams import ALL, Part, Range, Stream, Window

Streams: TypeAlias = Mapping[StreamKey, dict[int, Pending]]
# The last rows of an attempt tell its speed, and the very last its values.
LAST_ROWS = 100
LAST_VALUES = 10


class StreamSize(NamedTuple):
    """An attempt as retention sees it; `written_us` is its last write, `size` an estimate in bytes."""

    id: int
    subject_id: int
    uid: str
    name: str
    written_us: int
    size: int


class LastRows(NamedTuple):
    """The last rows of a stream: the highest iteration and time, the spans of both, how many times there are."""

    iteration: int
    passed: int
    seen_us: int
    took_us: int
    times: int
    metrics: Sequence[Mapping[str, float | str]]


class ShownRow(NamedTuple):
    """A row as charts show it."""

    row_step: int
    iteration: int
    time_us: int
    metrics: Mapping[str, float | str]


class Known(NamedTuple):
    """The summary of a block of one metric: its place among the parts that were asked for, its points and their sum."""

    number: int
    points: int
    total: float | None
    summary: bytes


class Curve(NamedTuple):
    """A curve of a chart: its points, the points that are to be left of it, whether it has too many to read all."""

    points: int
    share: int
    is_large: bool


class BatchName(NamedTuple):
    """The batch that is written: its spool and sink, where it ends, and how far the spool was written before it."""

    spool_id: str
    sink: str
    end: Position
    written: Position


class PointReader(Protocol):
    """Reads the points of one question: first where they are (parts), then the parts in bounded pieces."""

    connection: Connection
    window: Window

    def coarseness(self, stream: Stream, curve: Curve, max_points: int) -> int:
        """Of how many points of a stream the extremes are read for a chart of a curve; one for all points.

        `max_points`: of so many points of this stream the chart is made.
        """

    def plan(self, place: int, stream: Stream, among: Range = ALL) -> list[Part]:
        """Locate a stream's points in the query's window and among some iterations, in the order of their steps."""

    def expected(self, stream: Stream) -> float:
        """About how many points of a stream are in the query's window."""

    def ends(self, stream: Stream) -> Iterable[tuple[int, int, int]]:
        """The first and last iteration and the number of rows of each part of a stream of which that is known."""

    def iteration_before_last(self, stream: Stream, count: int) -> int:
        """An iteration after which there are about `count` points of a stream or more; the lowest for all of them."""

    def pieces(
        self, metric: str | None, parts: Iterable[Part], among: Range = ALL, *, part_of: Integers | None = None
    ) -> AsyncIterator[Series]:
        """The points of parts in pieces; None: the iterations themselves.

        `part_of`: for each stream (place), of how many points the extremes will do.
        """

    async def summaries_of(self, metric: str, parts: Sequence[Part]) -> list[Known]:
        """Return the summaries of those parts that are blocks and have the metric."""

    async def count_points(self, metric: str | None, streams: Sequence[Stream]) -> int:
        """Count the points of a metric in the window; None: of the iterations themselves."""


class PointStore(Protocol):
    """Writes rows with their points, and reads them. `is_apart`: in a database of their own, which has no blocks."""

    is_apart: bool

    async def prepare(self, connection: Connection) -> None:
        """See that points belong here. Raises LensError where they are elsewhere, NotReady."""

    async def close(self) -> None:
        """Close connections of its own."""

    async def begin_write(self, connection: Connection) -> None:
        """See that points can be written, before anything of a batch is. Raises NotReady."""

    async def write_rows(
        self, connection: Connection, streams: Streams, ids: Mapping[StreamKey, StreamId], now_us: int, name: BatchName
    ) -> dict[int, StreamChange]:
        """Write rows, and their figures within the caller's transaction; what changed, by stream id.

        Raises StreamsGone, NotReady.
        """

    async def open_reader(
        self, connection: Connection, window: Window, metrics: Sequence[str], streams: Iterable[Stream]
    ) -> PointReader:
        """A reader for these streams."""

    async def last_rows(self, connection: Connection, stream_ids: Sequence[int]) -> dict[int, LastRows]:
        """The last rows of streams that have any."""

    async def shown_rows(self, connection: Connection, stream_id: int, first_step: int, count: int) -> list[ShownRow]:
        """The next rows of a stream from a step on."""

    async def stored_rows(
        self, connection: Connection, stream_id: int, first_step: int, count: int, *, shared_by_ranks: bool
    ) -> list[tuple[int, StoredRow]]:
        """The next rows of a stream from a step on, with all that is known of them."""

    async def shown_ranges(
        self, connection: Connection, ranges: Sequence[StepRange], count: int
    ) -> list[list[ShownRow]]:
        """The first `count` rows of each range of steps. By default each is read by itself."""
        found = []
        for range_ in ranges:
            rows = await self.shown_rows(connection, range_.stream_id, range_.first_step, count)
            found.append([row for row in rows if row.row_step <= range_.last_step])
        return found

    async def tags(
        self, connection: Connection, metric: str, stream_ids: Sequence[int], steps: Sequence[int]
    ) -> dict[tuple[int, int], dict[str, str]]:
        """The tags of points of a metric, by stream and step; both sequences are of one length."""

    async def remove_attempt(self, connection: Connection, stream: StreamSize, now_us: int) -> tuple[int, bool]:
        """Remove an attempt unless it is written to; how many rows went, and whether all of it did."""

    async def remove_leftovers(self, connection: Connection) -> int:
        """Remove points whose stream is gone; how many streams that were."""

    async def stats(self) -> dict[str, Any]:
        """Sizes of what is not in PostgreSQL."""
