"""Moves the points of a store from PostgreSQL to ClickHouse while it is in use.

From the first moment a trigger notes each row that is written. Streams are copied one after the other, and what
ClickHouse has of each is compared with what was read: the number of versions and the sum of their bits. Then the noted
rows are copied, round after round, and compared one by one. The last few are copied while nobody can write; the same
transaction says that the points are in ClickHouse. An interrupted move goes on with the streams that are not done.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lens_core import LensError

from ..blocks import LOWEST_STEP
from ..grouping import LOG_SOURCE
from ..identity import Connection
from ..place import has_change_trigger, write_place
from ..rows import RowState, from_stored, to_stored
from ..sessions import only_here
from ..writer import stored_row
from .client import ClickHouse, list_of
from .schema import TABLE
from .store import ClickHouseStore
from .stored_rows import StoredState, state_of_versions
from .versions import Source, VersionColumns, bits_of, versions_of
from .writing import encode_versions, fetch_versions, insert_blocks

_NOTED_EVENTS = {"insert": "new", "update": "new", "delete": "old"}
_LOCK = (0x4C454E53 << 32) - 2
_ROWS_AT_ONCE = 5_000
_ROWS_OF_THE_END = 2_000
_MOST_ROUNDS = 50
_LOCK_TIMEOUT = "30s"
_LOCK_WAIT_SECONDS = 40.0
_LOCK_PAUSE_SECONDS = 0.2
_COLUMNS = (
    "r.stream_id, r.row_step, r.received_us, r.sequence, r.rank, nullif(r.iteration, r.row_step), r.event_time_us,"
    " r.updated_us, r.metrics::text, r.tags::text, r.key_sequences::text, r.history::text"
)
_NEXT_ROWS = f"select {_COLUMNS} from lens_row r where stream_id = %s and row_step >= %s order by row_step limit %s"
_NOTED_ROWS = (
    f"select {_COLUMNS} from (select distinct stream_id, row_step from lens_moving_row where id <= %s) k"
    " join lens_row r using (stream_id, row_step)"
)
_GONE_ROWS = (
    "select distinct k.stream_id, k.row_step from lens_moving_row k join lens_stream s on s.id = k.stream_id"
    " where k.id <= %s and not exists (select from lens_row r where (r.stream_id, r.row_step) ="
    " (k.stream_id, k.row_step))"
)


class MoveFailed(LensError):
    """Points could not be moved; the text says why. They are where they were."""


class Moved(NamedTuple):
    """Streams, rows and versions that a move has copied."""

    streams: int
    rows: int
    versions: int


class _Row(NamedTuple):
    """A row of PostgreSQL."""

    stream_id: int
    row_step: int
    stored: StoredState


class PointMove:
    """One move, on a connection of its own; `show` is told of the rows that were copied."""

    def __init__(
        self, connection: Connection, store: ClickHouseStore, history_limit: int, show: Callable[[int], None]
    ) -> None:
        self._connection = connection
        self._store = store
        self._clickhouse: ClickHouse = store.clickhouse
        self._history_limit = history_limit
        self._show = show
        self._rows = 0
        self._versions = 0
        self._logs: set[int] = set()  # streams of logs, whose rows all ranks share

    async def move_everything(self) -> Moved:
        """Move everything. Raises MoveFailed, NotReady where ClickHouse is away; both may be run again."""
        deadline = time.monotonic() + _LOCK_WAIT_SECONDS
        while True:
            async with only_here(self._connection, _LOCK) as is_ours:
                if is_ours:
                    streams = await self._move_alone()
                    break
            # The session of a move that was killed goes on until its statement has ended.
            if time.monotonic() > deadline:
                raise MoveFailed("another move of this store's points is running; wait until it has ended")
            await asyncio.sleep(_LOCK_PAUSE_SECONDS)
        await self._store.expect_this_store(self._connection)
        await self._store.remove_leftovers(self._connection)
        return Moved(streams, self._rows, self._versions)

    async def _move_alone(self) -> int:
        place = await self._store.expect_this_store(self._connection)
        if place:
            raise MoveFailed(f"the points of this store are in the ClickHouse {place} already")
        await self._clickhouse.prepare()
        await self._begin()
        streams = await self._copy_streams()
        for _ in range(_MOST_ROUNDS):
            if await self._copy_noted() <= _ROWS_OF_THE_END:
                break
        await self._switch()
        return streams

    async def _begin(self) -> None:
        """Have writes noted, unless an interrupted move has begun with that."""
        async with self._connection.transaction():
            if await has_change_trigger(self._connection):
                return
            await self._connection.execute("truncate lens_moving_row, lens_moved_stream")
            for event, table in _NOTED_EVENTS.items():  # a trigger with a transition table is of one event
                await self._connection.execute(
                    f"create trigger lens_row_moving_{event} after {event} on lens_row referencing {table} table as"
                    " written for each statement execute function lens_note_moving_rows()".encode()
                )

    async def _copy_streams(self) -> int:
        """Copy the streams that are not done, many short ones at once; how many."""
        cursor = await self._connection.execute(
            "select id, data_source from lens_stream s where rows > 0"
            " and not exists (select from lens_moved_stream m where m.stream_id = s.id) order by id"
        )
        streams = await cursor.fetchall()
        self._logs |= {stream_id for stream_id, source in streams if source == LOG_SOURCE}
        await self._remove_partial([stream_id for stream_id, _ in streams])
        copied = _Copied()
        for stream_id, _ in streams:
            first = LOWEST_STEP
            while rows := await self._read_rows(_NEXT_ROWS, [stream_id, first, _ROWS_AT_ONCE]):
                await self._insert_rows(rows, copied)
                first = rows[-1].row_step + 1
                if len(rows) < _ROWS_AT_ONCE or first >= 2**63:
                    break
            copied.done.append(stream_id)
            if copied.rows >= _ROWS_AT_ONCE:
                await self._check(copied)
                copied = _Copied()
        await self._check(copied)
        return len(streams)

    async def _remove_partial(self, stream_ids: Sequence[int]) -> None:
        """Remove what an interrupted move left of streams that it had not checked."""
        if not stream_ids:
            return
        dtype = np.dtype([("stream", "<u8")])
        found = await self._clickhouse.fetch(f"select distinct stream from {self._clickhouse.own_rows(TABLE)}", dtype)
        partial = set(found["stream"].tolist()) & set(stream_ids)
        if partial:
            await self._store.remove_streams(partial)

    async def _read_rows(self, statement: str, parameters: Sequence[Any]) -> list[_Row]:
        cursor = await self._connection.execute(statement.encode(), parameters)
        found = await cursor.fetchall()
        unknown = {row[0] for row in found} - self._logs
        cursor = await self._connection.execute(
            "select id from lens_stream where id = any(%s) and data_source = %s", [list(unknown), LOG_SOURCE]
        )
        self._logs |= {row[0] for row in await cursor.fetchall()}
        return await asyncio.to_thread(self._decode, found)

    def _decode(self, found: Iterable[Sequence[Any]]) -> list[_Row]:
        return [
            _Row(
                row[0],
                row[1],
                StoredState(from_stored(stored_row(row[3:]), shared_by_ranks=row[0] in self._logs), row[2]),
            )
            for row in found
        ]

    async def _insert_rows(self, rows: Sequence[_Row], copied: _Copied) -> None:
        """Insert rows, each with all of its versions."""
        columns = VersionColumns(Source(0, 0, 0))
        for stream_id, step, stored in rows:
            columns.append_versions(stream_id, step, versions_of(stored.state), stored.state, stored.received_us)
        copied.note(rows, columns)
        # Inserted anew however often: a row that changed since has the same keys, and would have the same token.
        blocks = await asyncio.to_thread(encode_versions, columns)
        await insert_blocks(self._clickhouse, blocks, f"move:{uuid.uuid4()}")
        self._rows += len(rows)
        self._versions += columns.count
        self._show(self._rows)

    async def _check(self, copied: _Copied) -> None:
        """Compare copied streams, and note that they are done. Raises MoveFailed."""
        if not copied.done:
            return
        rows = await self._clickhouse.fetch_rows(
            f"select stream, metric, count(), sum(bits) from"
            f" {self._clickhouse.own_rows(f'{TABLE} final')} and stream in ({list_of(copied.done)})"
            " group by stream, metric"
        )
        found = {(row[0], row[1]): (row[2], row[3]) for row in rows}
        if found != copied.sums():
            raise MoveFailed(
                f"what ClickHouse has of the streams {copied.done[0]} to {copied.done[-1]} is not what was copied; run"
                " the move again, which copies them anew"
            )
        await self._connection.execute(
            "insert into lens_moved_stream (stream_id, received_us) select * from unnest(%s::bigint[], %s::bigint[])"
            " on conflict do nothing",
            [copied.done, [copied.received_us[stream_id] for stream_id in copied.done]],
        )

    async def _copy_noted(self) -> int:
        """Copy the rows that were written since, and compare each; how many were noted."""
        cursor = await self._connection.execute("select coalesce(max(id), 0), count(*) from lens_moving_row")
        last, count = (await cursor.fetchall())[0]
        rows = await self._read_rows(_NOTED_ROWS, [last])
        for low in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[low : low + _ROWS_AT_ONCE]
            await self._insert_rows(some, _Copied())
            await self._compare(some)
        await self._remove_gone(last)
        await self._connection.execute("delete from lens_moving_row where id <= %s", [last])
        return int(count)

    async def _remove_gone(self, last: int) -> None:
        """Remove noted rows that retention has removed since, but not the rest of their stream."""
        cursor = await self._connection.execute(_GONE_ROWS.encode(), [last])
        gone = await cursor.fetchall()
        for low in range(0, len(gone), _ROWS_AT_ONCE):
            some = gone[low : low + _ROWS_AT_ONCE]
            pairs = ", ".join(f"({stream}, {step})" for stream, step in some)
            await self._clickhouse.execute(
                f"delete from {self._clickhouse.own_rows(TABLE)} and stream in ({list_of({row[0] for row in some})})"
                f" and (stream, step) in ({pairs}) settings lightweight_deletes_sync = 1"
            )

    async def _compare(self, rows: Sequence[_Row]) -> None:
        found = await fetch_versions(self._clickhouse, [(row.stream_id, row.row_step) for row in rows])
        for stream_id, step, wanted in rows:
            shared = stream_id in self._logs
            state = state_of_versions(found[stream_id, step], self._history_limit).state
            if _comparable(state, shared) != _comparable(wanted.state, shared):
                raise MoveFailed(f"ClickHouse has something else of stream {stream_id}, step {step} than was copied")

    async def _switch(self) -> None:
        """Copy the last rows while nobody writes, and say that points are in ClickHouse."""
        connection = self._connection
        async with connection.transaction():
            await connection.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'".encode())
            await connection.execute("lock table lens_stream in exclusive mode")
            await self._copy_noted()
            await connection.execute(
                "update lens_stream s set overwritten = true, received_us ="
                " coalesce((select received_us from lens_moved_stream m where m.stream_id = s.id),"
                " (extract(epoch from now()) * 1000000)::bigint) where rows > 0"
            )
            for event in _NOTED_EVENTS:
                await connection.execute(f"drop trigger if exists lens_row_moving_{event} on lens_row".encode())
            await connection.execute("truncate lens_moving_row, lens_moved_stream")
            await write_place(connection, self._clickhouse.place)


def _comparable(state: RowState, shared: bool) -> tuple[Any, str]:
    """A row as it is stored; as a text, in which a NaN is a NaN, but for tags, which have no order."""
    row = to_stored(state, shared_by_ranks=shared)
    return row.tags, repr(row._replace(tags=None))


class _Copied:
    """The copied part of some streams: for each metric the number of its versions and the sum of their bits."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.rows = 0
        self.received_us: dict[int, int] = defaultdict(int)
        self._sums: dict[tuple[int, str], tuple[int, int]] = {}

    def note(self, rows: Sequence[_Row], columns: VersionColumns) -> None:
        """Note rows that are copied, and their versions."""
        for stream_id, _, stored in rows:
            self.received_us[stream_id] = max(self.received_us[stream_id], stored.received_us)
        self.rows += len(rows)
        values: dict[tuple[int, str], list[float]] = defaultdict(list)
        for stream_id, metric, value in columns.points():
            values[stream_id, metric].append(value)
        for key, found in values.items():
            count, total = self._sums.get(key, (0, 0))
            self._sums[key] = count + len(found), (total + int(bits_of(found).sum(dtype=np.uint64))) % 2**64

    def sums(self) -> dict[tuple[int, str], tuple[int, int]]:
        """The number of versions and the sum of their bits by stream and metric."""
        return self._sums
