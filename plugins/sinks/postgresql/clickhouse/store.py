"""The store of points in a ClickHouse, beside a PostgreSQL that has everything else."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from lens_core import Unavailable

from ..address import NotReady
from ..encoding import StreamChange
from ..grouping import StreamKey
from ..identity import Connection, StreamId
from ..news_log import StepRange
from ..place import PointsElsewhere, has_rows, read_place, read_store_id, rename_place, write_place
from ..point_store import LAST_ROWS, LAST_VALUES, BatchName, LastRows, PointStore, ShownRow, Streams, StreamSize
from ..retention import forget_curve, hide_curve, sizes_of
from ..rows import StoredRow, to_stored
from ..streams import Stream, Window
from .client import ClickHouse, list_of, text_of
from .client_errors import ForeignPoints
from .ownership import Ownership
from .reading import ROW_COLUMNS, ROW_TYPE, ColumnReader, shares_in_window
from .schema import NO_METRIC, PARTITION_STREAMS, RANGE_TABLE, TABLE
from .stored_rows import StoredState, state_of_versions
from .writing import PointWriter, fetch_versions

T = TypeVar("T")
_HIGHEST = 2**63 - 1
_LOWEST = -(2**63)
_STREAMS_AT_ONCE = 200
_RANGES_AT_ONCE = 1_000
_KEYS_AT_ONCE = 5_000
_SEQUENCE = "pg_get_serial_sequence('lens_stream', 'id')::regclass"
_LAST_STREAM = f"select coalesce(pg_sequence_last_value({_SEQUENCE}), 0)".encode()
_SKIP_STREAMS = f"select setval({_SEQUENCE}, greatest(%s, coalesce(pg_sequence_last_value({_SEQUENCE}), 0)))".encode()


class ClickHouseStore(PointStore):
    """Keeps points in a table of ClickHouse."""

    is_apart = True

    def __init__(self, clickhouse: ClickHouse, history_limit: int) -> None:
        self.clickhouse = clickhouse
        self._history_limit = history_limit
        self._writer = PointWriter(clickhouse, history_limit)
        self._settled = 0  # the verification of ClickHouse after which PostgreSQL was last compared with it

    async def prepare(self, connection: Connection) -> None:
        """See that points belong here. Raises LensError where they are in PostgreSQL, or those of another store."""
        place = await self.expect_this_store(connection)
        if place:
            return  # whether it is this ClickHouse that has them is seen at each connection to it
        if await has_rows(connection):
            raise PointsElsewhere(
                "the points of this store are in PostgreSQL; copy them with `lens db move-points`, or remove the"
                " setting `points`"
            )
        try:
            await self.clickhouse.prepare()
        except ForeignPoints as error:
            raise PointsElsewhere(str(error)) from None
        async with connection.transaction():
            await connection.execute("lock table lens_place in exclusive mode")
            if not await read_place(connection):
                await write_place(connection, self.clickhouse.place)
        await self.expect_this_store(connection)

    async def expect_this_store(self, connection: Connection) -> str:
        """Ask ClickHouse for points of this store only; the place that has them, if any."""
        place = await read_place(connection)
        self.clickhouse.expect_store(Ownership(await read_store_id(connection), place))
        return place

    async def check_place(self, connection: Connection) -> None:
        """See that ClickHouse answers, and that the points that it should have are there. Raises LensError."""
        row = await (await connection.execute("select to_regclass('lens_store') is not null")).fetchone()
        if row == (True,):
            await self.expect_this_store(connection)
        await self.clickhouse.ping()

    async def close(self) -> None:
        """Close the connections to ClickHouse."""
        await self.clickhouse.close()

    async def begin_write(self, connection: Connection) -> None:
        """See after each connection that ClickHouse has this store's points. Raises NotReady."""
        verified = await self.clickhouse.verify()
        if verified != self._settled:
            await rename_place(connection, self.clickhouse.place)
            await self._skip_known_streams(connection)
            self._settled = verified

    async def _skip_known_streams(self, connection: Connection) -> None:
        """Have new streams numbered after all that ClickHouse has: PostgreSQL may be restored from an old backup."""
        found = await self.clickhouse.fetch(
            f"select stream from {self.clickhouse.own_rows(TABLE)} order by stream desc limit 1",
            np.dtype([("stream", "<u8")]),
        )
        if not found.size:
            return
        newest = int(found["stream"][0])
        row = await (await connection.execute(_LAST_STREAM)).fetchone()
        if row is not None and row[0] < newest:
            async with connection.transaction():
                await connection.execute("lock table lens_stream in share row exclusive mode")
                await connection.execute(_SKIP_STREAMS, [newest])

    async def write_rows(
        self, connection: Connection, streams: Streams, ids: Mapping[StreamKey, StreamId], now_us: int, name: BatchName
    ) -> dict[int, StreamChange]:
        """Write rows, then their figures within the caller's transaction. Raises StreamsGone, NotReady."""
        return await self._writer.write_versions(connection, streams, ids, now_us, name)

    async def open_reader(
        self, connection: Connection, window: Window, metrics: Sequence[str], streams: Iterable[Stream]
    ) -> ColumnReader:
        """A reader of these streams."""
        shares = None
        if window.is_limited:
            shares = await shares_in_window(self.clickhouse, window, list(streams), metrics)
        return ColumnReader(self.clickhouse, connection, window, shares)

    async def last_rows(self, connection: Connection, stream_ids: Sequence[int]) -> dict[int, LastRows]:
        """The last rows of streams that have any."""
        found: dict[int, LastRows] = {}
        for low in range(0, len(stream_ids), _STREAMS_AT_ONCE):
            found.update(await self._last_rows(connection, stream_ids[low : low + _STREAMS_AT_ONCE]))
        return found

    async def _last_rows(self, connection: Connection, stream_ids: Sequence[int]) -> dict[int, LastRows]:
        bounds = await self._steps_before_end(connection, stream_ids, LAST_ROWS)
        if not bounds:
            return {}
        conditions = " or ".join(f"(stream = {stream} and step >= {step})" for stream, step in bounds.items())
        rows = await _answered(
            self.clickhouse.fetch(
                f"select {ROW_COLUMNS} from {self.clickhouse.own_rows(TABLE)} and ({conditions}) group by stream, step"
                f" order by stream, step desc limit {LAST_ROWS} by stream",
                ROW_TYPE,
            )
        )
        found = {}
        newest: dict[int, list[int]] = {}
        for stream in np.unique(rows["stream"]).tolist():
            mine = rows[rows["stream"] == stream]
            iterations, times = mine["iteration"].tolist(), mine["time"].tolist()
            newest[stream] = mine["step"][:LAST_VALUES].tolist()
            spans = (max(iterations) - min(iterations), max(times), max(times) - min(times))
            found[stream] = LastRows(max(iterations), *spans, len(set(times)), [])
        keys = [(stream, step) for stream, steps in newest.items() for step in steps]
        states = await self._states(keys)
        return {
            stream: rows._replace(metrics=[_metrics(states[stream, step]) for step in newest[stream]])
            for stream, rows in found.items()
        }

    async def _steps_before_end(self, connection: Connection, stream_ids: Sequence[int], count: int) -> dict[int, int]:
        """For each stream the step of its last row but `count`, or a lower one."""
        if not stream_ids:
            return {}
        cursor = await connection.execute(
            "select id, coalesce(last_step, 0), rows from lens_stream where id = any(%s)", [list(stream_ids)]
        )
        found = {}
        few: list[int] = []
        spans = {stream: (last, rows) for stream, last, rows in await cursor.fetchall()}
        # Mostly a step is a row, or ten are: so far back there are enough of nearly all.
        lows = {stream: max(_LOWEST, last - 20 * count) for stream, (last, _) in spans.items()}
        if not lows:
            return {}
        conditions = " or ".join(f"(stream = {stream} and step >= {step})" for stream, step in lows.items())
        counts = await _answered(
            self.clickhouse.fetch(
                f"select stream, uniqExact(step) from {self.clickhouse.own_rows(TABLE)} and ({conditions})"
                " group by stream",
                np.dtype([("stream", "<u8"), ("count", "<u8")]),
            )
        )
        known = dict(zip(counts["stream"].tolist(), counts["count"].tolist(), strict=True))
        for stream, (_, rows) in spans.items():
            if known.get(stream, 0) >= min(count, rows):
                found[stream] = lows[stream]
            else:
                few.append(stream)
        return {**found, **dict.fromkeys(few, _LOWEST)}

    async def shown_rows(self, connection: Connection, stream_id: int, first_step: int, count: int) -> list[ShownRow]:
        """The next rows of a stream from a step on."""
        states = await self._next_states(connection, stream_id, first_step, count)
        return [_shown_row(step, stored) for step, stored in states]

    async def shown_ranges(
        self, connection: Connection, ranges: Sequence[StepRange], count: int
    ) -> list[list[ShownRow]]:
        """The first `count` rows of each range of steps. Those that have no more are read many at once."""
        short = [one for one in ranges if one.rows <= count]
        long = [one for one in ranges if one.rows > count]
        found = dict(zip(long, await super().shown_ranges(connection, long, count), strict=True))
        for low in range(0, len(short), _RANGES_AT_ONCE):
            found.update(await self._shown_together(short[low : low + _RANGES_AT_ONCE], count))
        return [found[one] for one in ranges]

    async def _shown_together(self, ranges: Sequence[StepRange], count: int) -> dict[StepRange, list[ShownRow]]:
        """The first `count` rows of each range, at least one range."""
        conditions = " or ".join(
            f"(stream = {one.stream_id} and step >= {one.first_step} and step <= {one.last_step})" for one in ranges
        )
        streams = list_of({one.stream_id for one in ranges})
        stored = await _answered(
            self.clickhouse.fetch(
                f"select distinct stream, step from {self.clickhouse.own_rows(TABLE)} and stream in ({streams})"
                f" and ({conditions}) order by stream, step",
                np.dtype([("stream", "<u8"), ("step", "<i8")]),
            )
        )
        steps_of: dict[int, list[int]] = defaultdict(list)
        for stream, step in stored.tolist():
            steps_of[stream].append(step)
        wanted = {}
        for one in ranges:
            steps = steps_of[one.stream_id]
            first, end = bisect_left(steps, one.first_step), bisect_right(steps, one.last_step)
            wanted[one] = [(one.stream_id, step) for step in steps[first : min(end, first + count)]]
        keys = sorted({key for found in wanted.values() for key in found})
        rows: dict[tuple[int, int], ShownRow] = {}
        for low in range(0, len(keys), _KEYS_AT_ONCE):
            states = await self._states(keys[low : low + _KEYS_AT_ONCE])
            rows.update((key, _shown_row(key[1], state)) for key, state in states.items())
        return {one: [rows[key] for key in found] for one, found in wanted.items()}

    async def stored_rows(
        self, connection: Connection, stream_id: int, first_step: int, count: int, *, shared_by_ranks: bool
    ) -> list[tuple[int, StoredRow]]:
        """The next rows of a stream from a step on, with all that is known of them."""
        states = await self._next_states(connection, stream_id, first_step, count)
        return [(step, to_stored(stored.state, shared_by_ranks=shared_by_ranks)) for step, stored in states]

    async def _next_states(
        self, connection: Connection, stream_id: int, first_step: int, count: int
    ) -> list[tuple[int, StoredState]]:
        """The next rows, in the order of their steps."""
        row = await (
            await connection.execute("select coalesce(last_step, 0), rows from lens_stream where id = %s", [stream_id])
        ).fetchone()
        if row is None:
            return []
        last_step, rows = row
        # As if the rows were evenly spread; where they are not, once more with all that are left.
        span = 2 * count * max(1, (last_step - first_step + 1) // max(1, rows))
        steps: list[int] = []
        for last in (min(_HIGHEST, first_step + span), _HIGHEST):
            found = await _answered(
                self.clickhouse.fetch(
                    f"select distinct step from {self.clickhouse.own_rows(TABLE)} and stream = {stream_id}"
                    f" and step >= {first_step} and step <= {last} order by step limit {count}",
                    np.dtype([("step", "<i8")]),
                )
            )
            steps = found["step"].tolist()
            if len(steps) == count:
                break
        states = await self._states([(stream_id, step) for step in steps])
        return [(step, states[stream_id, step]) for step in steps]

    async def tags(
        self, connection: Connection, metric: str, stream_ids: Sequence[int], steps: Sequence[int]
    ) -> dict[tuple[int, int], dict[str, str]]:
        """The tags of points of a metric, by stream and step."""
        keys = sorted(set(zip(stream_ids, steps, strict=True)))
        found: dict[tuple[int, int], dict[str, str]] = {}
        for low in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[low : low + _KEYS_AT_ONCE]
            pairs = ", ".join(f"({stream}, {step})" for stream, step in some)
            rows = await _answered(
                self.clickhouse.fetch_rows(
                    f"select stream, step from {self.clickhouse.own_rows(TABLE)}"
                    f" and stream in ({list_of({key[0] for key in some})})"
                    f" and metric = {text_of(metric)} and (stream, step) in ({pairs}) group by stream, step"
                    " having max(tags) <> ''"
                )
            )
            tagged = [(stream, step) for stream, step in rows]
            for key, stored in (await self._states(tagged)).items():
                version = stored.state.current.get(metric)
                if version is not None and version.tags:
                    found[key] = dict(version.tags)
        return found

    async def remove_attempt(self, connection: Connection, stream: StreamSize, now_us: int) -> tuple[int, bool]:
        """Remove an attempt unless it is written to; how many rows went, and whether all of it did."""
        async with connection.transaction():
            if await _rows_to_remove(connection, stream, now_us) is None:
                return 0, False
            await hide_curve(connection, stream.id)
        await forget_curve(connection, stream.id)
        async with connection.transaction():
            rows = await _rows_to_remove(connection, stream, now_us)
            if rows is None:
                return 0, False
            await connection.execute(
                "update lens_subject set rows = greatest(0, rows - %s), version = version + 1 where id = %s",
                [rows, stream.subject_id],
            )
            await hide_curve(connection, stream.id)  # another rank may have logged since
            await connection.execute("delete from lens_stream where id = %s", [stream.id])
        return rows, True

    async def remove_leftovers(self, connection: Connection) -> int:
        """Remove the points of streams that are gone, which no answer shows any more."""
        found = await self.clickhouse.fetch(
            f"select distinct stream from {self.clickhouse.own_rows(TABLE)}"
            f" union distinct select distinct stream from {self.clickhouse.own_rows(RANGE_TABLE)}",
            np.dtype([("stream", "<u8")]),
        )
        stored = set(found["stream"].tolist())
        cursor = await connection.execute("select id from lens_stream where id = any(%s)", [list(stored)])
        gone = stored - {int(row[0]) for row in await cursor.fetchall()}
        by_partition: dict[int, set[int]] = defaultdict(set)
        for stream in gone:
            by_partition[stream // PARTITION_STREAMS].add(stream)
        for partition, streams in by_partition.items():
            await self.clickhouse.verify(again=True)  # a partition is dropped whosever it is
            kept = {stream for stream in stored - gone if stream // PARTITION_STREAMS == partition}
            if not kept and await self._is_closed(connection, partition):
                for table in (RANGE_TABLE, TABLE):
                    await self.clickhouse.execute(f"alter table {table} drop partition {partition}")
            else:
                await self.remove_streams(streams)
        return len(gone)

    async def remove_streams(self, streams: Iterable[int]) -> None:
        """Remove the points of some streams, at least one; the table that tells which there are is the last."""
        listed = list_of(sorted(streams))
        for table in (RANGE_TABLE, TABLE):
            await self.clickhouse.execute(
                f"delete from {self.clickhouse.own_rows(table)} and stream in ({listed})"
                " settings lightweight_deletes_sync = 1"
            )

    async def _is_closed(self, connection: Connection, partition: int) -> bool:
        """Whether new streams go into later partitions; a stream that was just made may have been missed above."""
        row = await (await connection.execute("select coalesce(max(id), 0) from lens_stream")).fetchone()
        return row is not None and row[0] // PARTITION_STREAMS > partition

    async def stats(self) -> dict[str, Any]:
        """Size of the table in ClickHouse."""
        rows = await _answered(
            self.clickhouse.fetch_rows(
                f"select sumIf(rows, table = '{TABLE}'), sum(bytes_on_disk), count() from system.parts"
                f" where active and database = currentDatabase() and table in ('{TABLE}', '{RANGE_TABLE}')"
            )
        )
        versions, size, parts = rows[0]
        return {
            "points_in": f"ClickHouse {self.clickhouse.place}",
            "clickhouse_versions": int(versions),
            "clickhouse_bytes": int(size),
            "clickhouse_parts": int(parts),
        }

    async def _states(self, keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], StoredState]:
        found = await _answered(fetch_versions(self.clickhouse, keys))
        return {key: state_of_versions(rows, self._history_limit) for key, rows in found.items()}


def _shown_row(step: int, stored: StoredState) -> ShownRow:
    """A row as charts show it."""
    return ShownRow(
        step,
        step if stored.state.iteration is None else stored.state.iteration,
        stored.received_us if stored.state.first_us is None else stored.state.first_us,
        _metrics(stored),
    )


def _metrics(stored: StoredState) -> dict[str, float]:
    return {name: version.value for name, version in stored.state.current.items() if name != NO_METRIC}


async def _rows_to_remove(connection: Connection, stream: StreamSize, now_us: int) -> int | None:
    """The rows of a stream that nobody has written to since it was chosen; it is locked, None if it has to stay."""
    cursor = await connection.execute("select rows from lens_stream where id = %s for update", [stream.id])
    row = await cursor.fetchone()
    current = await sizes_of(connection, stream.id - 1, now_us, 1)
    return None if row is None or not current or current[0].written_us > stream.written_us else int(row[0])


async def _answered(asked: Awaitable[T]) -> T:
    """The answer to a question. Raises Unavailable."""
    try:
        return await asked
    except NotReady as error:
        raise Unavailable(str(error)) from None
