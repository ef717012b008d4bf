"""Points in PostgreSQL: rows of `lens_row`, with compact copies in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .encoding import StreamChange
from .grouping import StreamKey
from .identity import Connection, StreamId
from .news_log import StepRange
from .place import PointsElsewhere, read_place
from .point_store import LAST_ROWS, LAST_VALUES, BatchName, LastRows, ShownRow, Streams, StreamSize
from .reading import Reader
from .retention import remove_attempt
from .rows import StoredRow
from .streams import Stream, Window, headers
from .writer import write_rows

_TIME = "coalesce(event_time_us, received_us)"
_LAST_ROWS = f"""
    select s.id, r.* from unnest(%s::bigint[]) s (id) cross join lateral (
        select max(iteration) as iteration, max(iteration)::numeric - min(iteration), max(at) as seen_us,
            max(at) - min(at), count(distinct at), jsonb_agg(metrics order by place) filter (where place <= %s)
        from (select iteration, {_TIME} as at, metrics, row_number() over (order by row_step desc) as place
            from lens_row where stream_id = s.id order by row_step desc limit %s) last_rows
    ) r where r.seen_us is not null
""".encode()
_SHOWN_ROWS = f"""
    select row_step, iteration, {_TIME}, metrics from lens_row where stream_id = %s and row_step >= %s
    order by row_step limit %s
""".encode()
_SHOWN_RANGES = f"""
    select k.place, r.* from unnest(%s::bigint[], %s::bigint[], %s::bigint[]) with ordinality k (id, low, high, place)
    cross join lateral (
        select row_step, iteration, {_TIME}, metrics from lens_row
        where stream_id = k.id and row_step between k.low and k.high order by row_step limit %s
    ) r order by k.place, r.row_step
""".encode()
_STORED_ROWS = b"""
    select row_step, sequence, rank, nullif(iteration, row_step), event_time_us, updated_us, metrics, tags,
        key_sequences, history
    from lens_row where stream_id = %s and row_step >= %s order by row_step limit %s
"""
_TAGS = b"""
    select r.stream_id, r.row_step, r.tags -> %s from unnest(%s::bigint[], %s::bigint[]) k (stream_id, row_step)
    join lens_row r using (stream_id, row_step) where r.tags ? %s
"""


class RowStore:
    """Keeps points in the rows of PostgreSQL."""

    is_apart = False

    def __init__(self, history_limit: int) -> None:
        self._history_limit = history_limit

    async def prepare(self, connection: Connection) -> None:
        """See that points belong here. Raises LensError where they are in a ClickHouse."""
        place = await read_place(connection)
        if place:
            raise PointsElsewhere(
                f"the points of this store are in the ClickHouse {place}; give the setting `points` with its address"
            )

    async def close(self) -> None:
        """Close nothing: all connections are the database's."""

    async def begin_write(self, connection: Connection) -> None:
        """See to nothing: rows are written on the connection."""

    async def write_rows(
        self, connection: Connection, streams: Streams, ids: Mapping[StreamKey, StreamId], now_us: int, name: BatchName
    ) -> dict[int, StreamChange]:
        """Write rows within the caller's transaction; what changed, by stream id. Raises StreamsGone."""
        return await write_rows(connection, streams, ids, now_us, self._history_limit)

    async def open_reader(
        self, connection: Connection, window: Window, metrics: Sequence[str], streams: Iterable[Stream]
    ) -> Reader:
        """A reader of the rows and blocks of these streams."""
        ids = {stream.id for stream in streams if stream.blocked_step is not None}
        return Reader(connection, window, metrics, await headers(connection, sorted(ids), window))

    async def last_rows(self, connection: Connection, stream_ids: Sequence[int]) -> dict[int, LastRows]:
        """The last rows of streams that have any."""
        cursor = await connection.execute(_LAST_ROWS, [list(stream_ids), LAST_VALUES, LAST_ROWS])
        return {
            stream_id: LastRows(iteration, int(passed), *rest)
            for stream_id, iteration, passed, *rest in await cursor.fetchall()
        }

    async def shown_rows(self, connection: Connection, stream_id: int, first_step: int, count: int) -> list[ShownRow]:
        """The next rows of a stream from a step on."""
        cursor = await connection.execute(_SHOWN_ROWS, [stream_id, first_step, count])
        return [ShownRow._make(row) for row in await cursor.fetchall()]

    async def stored_rows(
        self, connection: Connection, stream_id: int, first_step: int, count: int, *, shared_by_ranks: bool
    ) -> list[tuple[int, StoredRow]]:
        """The next rows of a stream from a step on, with all that is known of them."""
        cursor = await connection.execute(_STORED_ROWS, [stream_id, first_step, count])
        return [(step, StoredRow._make(row)) for step, *row in await cursor.fetchall()]

    async def shown_ranges(
        self, connection: Connection, ranges: Sequence[StepRange], count: int
    ) -> list[list[ShownRow]]:
        """The first `count` rows of each range of steps."""
        columns = [[getattr(one, name) for one in ranges] for name in ("stream_id", "first_step", "last_step")]
        cursor = await connection.execute(_SHOWN_RANGES, [*columns, count])
        found: list[list[ShownRow]] = [[] for _ in ranges]
        for place, *row in await cursor.fetchall():
            found[place - 1].append(ShownRow._make(row))
        return found

    async def tags(
        self, connection: Connection, metric: str, stream_ids: Sequence[int], steps: Sequence[int]
    ) -> dict[tuple[int, int], dict[str, str]]:
        """The tags of points of a metric, by stream and step."""
        cursor = await connection.execute(_TAGS, [metric, list(stream_ids), list(steps), metric])
        return {(stream_id, step): tags for stream_id, step, tags in await cursor.fetchall()}

    async def remove_attempt(self, connection: Connection, stream: StreamSize, now_us: int) -> tuple[int, bool]:
        """Remove an attempt, portion by portion; how many rows went, and whether all of it did."""
        return await remove_attempt(connection, stream, now_us)

    async def remove_leftovers(self, connection: Connection) -> int:
        """Remove nothing: rows go with their stream."""
        return 0

    async def stats(self) -> dict[str, Any]:
        """Return nothing: all is in PostgreSQL."""
        return {}
