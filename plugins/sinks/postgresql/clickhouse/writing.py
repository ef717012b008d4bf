"""Writing rows: their versions into ClickHouse first, then their figures in PostgreSQL's transaction.

The streams are locked in PostgreSQL meanwhile, as they are where the rows are in PostgreSQL. Steps beyond a stream's
last are new without looking. At or below it ClickHouse is asked, and whatever it has counts as stored only where
the cursor of the spool that brought it says so: after a crash in between, versions are there that no figure counts.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lens_core import Position, StepMetrics

from ..encoding import StreamChange
from ..figures import update_catalogue, update_streams
from ..grouping import Pending, StreamKey, state_of
from ..identity import Connection, StreamId
from ..layouts import MANY_ROWS, layouts_of
from ..point_store import BatchName, Streams
from ..rows import RowState, Version, merge, to_stored
from ..series import Integers
from ..text import microseconds
from ..writer import RowsById, lock_streams, rows_by_id
from .client import ClickHouse, list_of
from .native import Block, encode_block
from .ranges import ranges_of
from .schema import COLUMNS, NO_TIME, RANGE_COLUMNS, RANGE_TABLE, TABLE
from .stored_rows import StoredState, VersionRow, state_of_versions
from .versions import Source, VersionColumns, versions_of

_PAIRS_AT_ONCE = 2_000
_IN_THREAD_ROWS = 500
_OFFSET_BITS = 24
# Between these a double has whole microseconds.
_FIRST_SECOND, _EXACT_SECONDS = -9e9, 9e9
_VERSION_COLUMNS = ", ".join(VersionRow._fields)
_CURSORS = b'select spool_id, sink, batch, "offset" from lens_cursor'

assert set(VersionRow._fields) == set(COLUMNS)


def spool_number(spool_id: str, sink: str) -> int:
    """A number for a spool and a sink, the same in every process."""
    digest = hashlib.blake2b(f"{spool_id}\x00{sink}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def position_number(position: Position) -> int:
    """A position in a spool as one number that grows with it."""
    number: int = (position.batch << _OFFSET_BITS) | min(position.offset, 2**_OFFSET_BITS - 1)
    return number


class PointWriter:
    """Writes the rows of batches, one at a time."""

    def __init__(self, clickhouse: ClickHouse, history_limit: int) -> None:
        self._clickhouse = clickhouse
        self._history_limit = history_limit

    async def write_versions(
        self, connection: Connection, streams: Streams, ids: Mapping[StreamKey, StreamId], now_us: int, name: BatchName
    ) -> dict[int, StreamChange]:
        """Write rows; what changed, by stream id. Raises StreamsGone, PointsAway."""
        by_id = rows_by_id(streams, ids, self._history_limit)
        last_steps, _ = await lock_streams(connection, sorted(by_id))
        known = await self._find_known(connection, by_id, last_steps, name)
        source = Source(spool_number(name.spool_id, name.sink), position_number(name.end), now_us)
        plan = WritePlan(source, self._history_limit)
        if sum(len(rows) for _, rows in by_id.values()) > _IN_THREAD_ROWS:
            blocks = await asyncio.to_thread(plan.plan_rows, by_id, known, last_steps)
        else:
            blocks = plan.plan_rows(by_id, known, last_steps)
        if blocks is not None:
            await insert_blocks(self._clickhouse, blocks, plan.token(name))
        await update_streams(connection, plan.changes)
        await update_catalogue(connection, plan.changes)
        await _note_arrival(connection, plan, now_us)
        return plan.changes

    async def _find_known(
        self, connection: Connection, by_id: RowsById, last_steps: Mapping[int, int | None], name: BatchName
    ) -> dict[tuple[int, int], StoredState]:
        """Those of the rows that ClickHouse has, at or below their stream's last step."""
        late = [
            (stream_id, step)
            for stream_id, (_, rows) in by_id.items()
            if (last := last_steps[stream_id]) is not None
            for step in rows
            if step <= last
        ]
        if not late:
            return {}
        found = await fetch_versions(self._clickhouse, late)
        cursors = await _read_cursors(connection, {row.spool for rows in found.values() for row in rows}, name)
        return {key: _counted_state(rows, cursors, self._history_limit) for key, rows in found.items()}


async def fetch_versions(
    clickhouse: ClickHouse, keys: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], list[VersionRow]]:
    """All versions of these rows, each given by its stream and step."""
    found: dict[tuple[int, int], list[VersionRow]] = defaultdict(list)
    for low in range(0, len(keys), _PAIRS_AT_ONCE):
        some = keys[low : low + _PAIRS_AT_ONCE]
        pairs = ", ".join(f"({stream}, {step})" for stream, step in some)
        rows = await clickhouse.fetch_rows(
            f"select {_VERSION_COLUMNS} from {clickhouse.own_rows(TABLE)}"
            f" and stream in ({list_of({key[0] for key in some})})"
            f" and step in ({list_of({key[1] for key in some})}) and (stream, step) in ({pairs})"
        )
        for row in map(VersionRow._make, rows):
            found[row.stream, row.step].append(row)
    return found


async def _read_cursors(connection: Connection, spools: set[int], name: BatchName) -> dict[int, int]:
    """The position of each spool that has a cursor; this batch's as it was before the transaction."""
    own = spool_number(name.spool_id, name.sink)
    found = {}
    if spools - {own}:
        cursor = await connection.execute(_CURSORS)
        found = {
            spool_number(spool_id, sink): position_number(Position(batch, offset))
            for spool_id, sink, batch, offset in await cursor.fetchall()
        }
    return {**found, own: position_number(name.written)}


def _counted_state(rows: Sequence[VersionRow], cursors: Mapping[int, int], history_limit: int) -> StoredState:
    """A row, with what of it the figures count. A spool without a cursor was forgotten long after it was written."""
    found = state_of_versions(rows, history_limit)
    counted = [row for row in rows if row.spool not in cursors or row.position <= cursors[row.spool]]
    found.counted = {row.metric for row in counted} & found.state.current.keys()
    found.is_counted = bool(counted)
    return found


class Blocks(NamedTuple):
    """Versions as they are inserted, and what is extreme among them in each range of steps."""

    versions: Block
    version_columns: Sequence[str]
    ranges: Block


def encode_versions(versions: VersionColumns) -> Blocks:
    """Versions, at least one, as blocks."""
    columns = versions.columns()
    ranges = ranges_of(columns)
    found = len(ranges["stream"])
    return Blocks(
        encode_block(COLUMNS, columns, versions.count),
        list(columns),
        encode_block(RANGE_COLUMNS, ranges, found) if found else [],
    )


async def insert_blocks(clickhouse: ClickHouse, blocks: Blocks, token: str) -> None:
    """Insert versions, and before them their ranges: a version that can be read is in its range. Raises PointsAway.

    Both change nothing when they are inserted again.
    """
    if blocks.ranges:
        await clickhouse.insert(RANGE_TABLE, list(RANGE_COLUMNS), blocks.ranges, f"{token}:ranges")
    await clickhouse.insert(TABLE, blocks.version_columns, blocks.versions, token)


class WritePlan:
    """The changes of a batch: versions to insert, and the figures of streams."""

    def __init__(self, source: Source, history_limit: int) -> None:
        self.versions = VersionColumns(source)
        self.changes: dict[int, StreamChange] = {}
        self.overwritten: set[int] = set()  # streams of which a version was replaced, or a time
        self._source = source
        self._history_limit = history_limit

    def plan_rows(
        self,
        by_id: RowsById,
        known: Mapping[tuple[int, int], StoredState],
        last_steps: Mapping[int, int | None],
    ) -> Blocks | None:
        """Plan all rows; what is to be inserted."""
        for stream_id, (key, rows) in by_id.items():
            change = self.changes[stream_id] = StreamChange()
            last = last_steps[stream_id]
            old = [step for step in rows if (stream_id, step) in known] if known else []
            fresh = {step: row for step, row in rows.items() if (stream_id, step) not in known} if old else rows
            self._append_new(stream_id, key, fresh, change)
            change.note_new_steps(list(fresh), last)
            for step in old:
                self._merge(stream_id, step, known[stream_id, step], state_of(rows[step], key), key, change)
        return encode_versions(self.versions) if self.versions.count else None

    def _append_new(self, stream_id: int, key: StreamKey, rows: Mapping[int, Pending], change: StreamChange) -> None:
        """Add rows of which nothing is stored; nearly all are written once."""
        usual = [row for row in rows.values() if isinstance(row, StepMetrics) and row.values and not row.tags]
        for step, row in rows.items() if len(usual) < len(rows) else ():
            if isinstance(row, StepMetrics) and row.values and not row.tags:
                continue
            state = state_of(row, key)
            self.versions.append_versions(stream_id, step, versions_of(state), state)
            if self._is_overwritten(state, row):
                self.overwritten.add(stream_id)
            first_us = self._see(step, state, self._source.now_us, change)
            at = step if state.iteration is None else state.iteration
            change.note_metrics([{name: version.value for name, version in state.current.items()}], [first_us], [at])
            change.new_rows += 1
        if usual:
            self._append_usual(stream_id, key, usual, change)

    def _append_usual(self, stream_id: int, key: StreamKey, rows: Sequence[StepMetrics], change: StreamChange) -> None:
        """Add rows that are written once, at least one."""
        values, layouts = [row.values for row in rows], None
        if len(rows) < MANY_ROWS:
            times = [microseconds(row.event_time) for row in rows]
            self.versions.append_usual(stream_id, key, rows, times)
            seen_us = [self._source.now_us if time is None else time for time in times]
        else:
            times_us, layouts = _times_of(rows), layouts_of(values)
            self.versions.append_tables(stream_id, key, rows, times_us, layouts)
            seen_us = np.where(times_us == NO_TIME, self._source.now_us, times_us).tolist()
        steps = [row.row_step for row in rows]
        iterations = [row.row_step if row.iteration is None else row.iteration for row in rows]
        change.new_rows += len(rows)
        change.note_metrics(values, seen_us, iterations, layouts)
        change.saw_all(steps, iterations, seen_us)

    def _is_overwritten(self, state: RowState, row: Pending) -> bool:
        """Whether a version of this row was replaced; without a history a row that was merged may have been."""
        return bool(state.history) or (not self._history_limit and isinstance(row, RowState))

    def _see(self, step: int, state: RowState, received_us: int, change: StreamChange) -> int:
        first: int = received_us if state.first_us is None else state.first_us
        change.saw(step, state.iteration, first, first if state.last_us is None else state.last_us)
        return first

    def _merge(
        self, stream_id: int, step: int, known: StoredState, row: RowState, key: StreamKey, change: StreamChange
    ) -> None:
        """Merge a write into a row that is there; one that changes nothing and is counted leaves nothing."""
        shared = key.shared_by_ranks
        merged = merge(known.state, row, self._history_limit)
        uncounted = [name for name in row.current if name not in known.counted]
        before, after = (to_stored(state, shared_by_ranks=shared) for state in (known.state, merged))
        if merged.history:  # of a write that only now is counted, too
            self.overwritten.add(stream_id)
        if before == after and known.is_counted and not uncounted:
            return
        facts_changed = (known.state.iteration, known.state.first_us, known.state.last_us) != (
            merged.iteration,
            merged.first_us,
            merged.last_us,
        )
        self.versions.append_versions(
            stream_id, step, self._changed_versions(merged, row, all_current=facts_changed), merged, known.received_us
        )
        if facts_changed or any(name in row.current for name in known.state.current):
            self.overwritten.add(stream_id)
        change.late_steps.append(step)
        first_us = self._see(step, merged, self._source.now_us, change)
        change.unsure.update(merged.current)
        at = step if merged.iteration is None else merged.iteration
        if known.is_counted:
            change.changed_rows += 1
            old_at = step if known.state.iteration is None else known.state.iteration
            values = {name: version.value for name, version in known.state.current.items() if name in known.counted}
            gone = {n: v for n, v in values.items() if old_at != at or repr(merged.current[n].value) != repr(v)}
            new = {name: merged.current[name].value for name in [*gone, *uncounted]}
            change.note_metrics([new], [first_us], [at])
            change.points.subtract(list(gone))
            change.overwritten.append((old_at, gone))
        else:
            change.new_rows += 1
            values = {name: version.value for name, version in row.current.items()}
            change.note_metrics([values], [first_us], [at])

    def _changed_versions(self, merged: RowState, row: RowState, *, all_current: bool) -> list[tuple[str, Version]]:
        """The versions of a write, and all current ones where the row's times or iteration changed."""
        found = [
            (name, Version(order, value, None))
            for order, values in row.history.items()
            for name, value in values.items()
        ]
        found += row.current.items()
        if all_current:
            found += [(name, version) for name, version in merged.current.items() if row.current.get(name) != version]
        return found

    def token(self, name: BatchName) -> str:
        """The name of the insert. With other streams it is another: those of before may have been removed."""
        streams = ",".join(map(str, sorted(self.versions.streams())))
        digest = hashlib.blake2b(streams.encode(), digest_size=8).hexdigest()
        return f"{name.spool_id}:{name.sink}:{name.end.batch}.{name.end.offset}:{self.versions.count}:{digest}"


def _times_of(rows: Sequence[StepMetrics]) -> Integers:
    """The times of rows in microseconds, of those without one NO_TIME."""
    seconds = np.array([row.event_time for row in rows], np.float64)
    is_time = (seconds > _FIRST_SECOND) & (seconds < _EXACT_SECONDS)
    found = np.full(seconds.size, NO_TIME)
    found[is_time] = np.rint(seconds[is_time] * 1e6)
    for place in np.flatnonzero(~is_time).tolist():
        time_us = microseconds(rows[place].event_time)
        found[place] = NO_TIME if time_us is None else time_us
    return found


async def _note_arrival(connection: Connection, plan: WritePlan, now_us: int) -> None:
    """Say of each stream when rows came last, which retention goes by, and whether any of its versions was replaced."""
    grown = {stream_id for stream_id, change in plan.changes.items() if not change.is_empty} | plan.overwritten
    if grown:
        await connection.execute(
            "update lens_stream set received_us = greatest(received_us, %s), overwritten = overwritten or id = any(%s)"
            " where id = any(%s)",
            [now_us, list(plan.overwritten), list(grown)],
        )
