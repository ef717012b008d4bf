"""Makes blocks of finished ranges of rows, in the background, on a connection of its own.

A stream's row is locked only while a finished block is put in. Whoever writes a row at or below the stream's last step
meanwhile leaves its step in `late_step`, so that a block which misses that row is thrown away and made again. An
advisory lock makes this one daemon's work at a time for each stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import psycopg

from .address import NotReady, describe_error
from .blocks import BLOCK_ROWS, HIGHEST_STEP, LOWEST_STEP, PARTIAL_ROWS, Block, Rows, build_block
from .database import Database
from .encoding import StreamChange
from .identity import Connection
from .point_store import PointStore
from .retention import Policy, retain
from .retention import describe_removal as describe_retained
from .sessions import only_here
from .waiting import IDLE_SECONDS, Waiting

_PAUSE_SECONDS = 2.0
_SHORTEST_PAUSE_SECONDS = 0.1
_RESCAN_SECONDS = 600.0
_RETAIN_SECONDS = 3600.0
_LOCK = 0x4C454E53 << 32
_MOST_TRIES = 5
_GROWN_ROWS = 2 * BLOCK_ROWS
_PIECE_ROWS = 1024
_COPY = b"""
    copy lens_column (stream_id, metric, last_step, points, positions, summary, "values", total, parts)
    from stdin (format binary)"""
_ROWS = b"""
    select count(*), max(row_step), array_send(array_agg(row_step)), array_send(array_agg(iteration)),
        array_send(array_agg(at)), string_agg(metrics::text, ',')
    from (select row_step, iteration, coalesce(event_time_us, received_us) as at, metrics from lens_row
        where stream_id = %s and row_step >= %s and row_step <= coalesce(%s, 9223372036854775807)
        order by row_step limit %s) rows
"""


class _Range(NamedTuple):
    """Rows to make a block of: from `first_step` to `last_step` (None: as many as make a block); how many there are."""

    first_step: int
    last_step: int | None
    rows: int


class Compactor:
    """Watches which streams grew and makes their blocks; hourly removes what is too old.

    `notice` is called with every batch's changes. Blocks are for reading, so that while much is written they wait:
    `Waiting` says for how long.
    """

    def __init__(self, database: Database, store: PointStore, logger: logging.Logger, policy: Policy) -> None:
        self._database = database
        self._store = store
        self._logger = logger
        self._policy = policy
        self._retained = -_RETAIN_SECONDS
        self._waiting = Waiting()
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self._urgent = asyncio.Event()
        self._scanned = -_RESCAN_SECONDS
        self._pending: dict[int, bool] = {}  # streams to be compacted, and whether each is idle

    def start(self) -> None:
        """Begin to work in the background."""
        self._ending = False
        self._task = asyncio.create_task(self._compact_repeatedly(), name="lens blocks")

    async def stop(self) -> None:
        """End; a block that is being made is lost, its rows are not."""
        self._ending = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def record_changes(self, changes: Mapping[int, StreamChange]) -> None:
        """A batch changed this about these streams."""
        now = time.monotonic()
        for stream_id, change in changes.items():
            if self._waiting.grew(stream_id, change.new_rows, now, late=bool(change.late_steps)):
                self._urgent.set()

    def record_readers(self, stream_ids: Iterable[int]) -> None:
        """Somebody reads these streams: of what is written to them blocks are made sooner."""
        now = time.monotonic()
        for stream_id in stream_ids:
            if self._waiting.record_reader(stream_id, now):
                self._urgent.set()

    async def _compact_repeatedly(self) -> None:
        # A connection that is interrupted may answer with an error of its own in place of the cancellation.
        while not self._ending:
            try:
                await self._round()
            except NotReady as error:
                self._logger.debug("compaction stopped: %s", error)
            except (psycopg.Error, OSError) as error:
                self._logger.warning("compaction failed; retrying: %s", describe_error(error))
            except Exception:
                self._logger.exception("compaction failed; retrying")
            if not self._ending:
                await self._pause()

    async def _pause(self) -> None:
        """Wait for the next round: a short while where a stream has run out of patience."""
        await asyncio.sleep(_SHORTEST_PAUSE_SECONDS)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._urgent.wait(), _PAUSE_SECONDS)
        self._urgent.clear()

    async def _round(self) -> None:
        now = time.monotonic()
        rescan = now - self._scanned >= _RESCAN_SECONDS
        self._pending.update(self._waiting.due(now))
        retain_now = not self._policy.is_empty and now - self._retained >= _RETAIN_SECONDS
        if not self._store.is_apart and (self._pending or rescan):
            async with await self._database.connect_when_ready() as connection:
                self._pending = await _worth_it(connection, self._pending)
                if rescan:
                    self._pending = {**await _unfinished(connection), **self._pending}
                    self._scanned = now
                await self._compact_pending(connection)
        if retain_now:
            self._retained = now
            await self._retain()

    async def _compact_pending(self, connection: Connection) -> None:
        """Compact what is pending; a stream that fails is tried again when it grows, or at the next look at all."""
        while self._pending:
            stream_id = next(iter(self._pending))
            try:
                await compact_stream(connection, stream_id, partial=self._pending[stream_id])
            except Exception as error:
                if connection.closed:
                    raise  # that says nothing about the stream, which stays pending
                self._logger.warning("could not make blocks of stream %d: %s", stream_id, describe_error(error))
            del self._pending[stream_id]

    async def _retain(self) -> None:
        """Remove what is too old. In a large store that takes longer than a statement of a write may."""
        async with await self._database.connect_when_ready(timeout_seconds=0) as connection:
            found = await retain(connection, self._store, self._policy, time.time_ns() // 1000)
        if any(found.values()):
            self._logger.info("Removed old data. %s", describe_retained(found))


async def _worth_it(connection: Connection, due: Mapping[int, bool]) -> dict[int, bool]:
    """Those of these streams of which anything can be made, with whether they are idle.

    Asked at once for all: of ten thousand ranks that log once in two minutes all are idle repeatedly.
    """
    idle = [stream_id for stream_id, is_idle in due.items() if is_idle]
    cursor = await connection.execute(
        "select id from lens_stream s where id = any(%s) and"
        f" (rows - blocked_rows >= case when id = any(%s) then {PARTIAL_ROWS} else {BLOCK_ROWS} end"
        " or exists (select from lens_block b where b.stream_id = s.id and b.dirty))".encode(),
        [list(due), idle],
    )
    return {int(row[0]): due[int(row[0])] for row in await cursor.fetchall()}


async def _unfinished(connection: Connection) -> dict[int, bool]:
    """Streams that have rows outside blocks, or blocks to be made anew: what was left when a daemon ended."""
    idle_us = (time.time() - IDLE_SECONDS) * 1_000_000
    cursor = await connection.execute(
        "select id, coalesce(last_seen_us, 0) < %s from lens_stream s where rows - blocked_rows >= %s"
        " or exists (select from lens_block b where b.stream_id = s.id and b.dirty)",
        [int(idle_us), PARTIAL_ROWS],
    )
    return {int(row[0]): bool(row[1]) for row in await cursor.fetchall()}


async def compact_stream(connection: Connection, stream_id: int, *, partial: bool) -> int:
    """Make all blocks of a stream that are due, a last one of fewer rows if `partial`; how many.

    Where this is interrupted the connection is to be closed, which gives the stream's lock back.
    """
    async with only_here(connection, _LOCK + stream_id) as is_ours:
        return await _make_blocks(connection, stream_id, partial=partial) if is_ours else 0


async def _make_blocks(connection: Connection, stream_id: int, *, partial: bool) -> int:
    await connection.execute("update lens_stream set late_step = null where id = %s", [stream_id])
    made = tries = 0
    while tries < _MOST_TRIES:
        range_ = await _next_range(connection, stream_id)
        if range_ is None or (range_.last_step is None and range_.rows < (PARTIAL_ROWS if partial else BLOCK_ROWS)):
            break
        rows, last_step = await _read_range(connection, stream_id, range_)
        if not rows.count:
            break
        block = await asyncio.to_thread(build_block, range_.first_step, last_step, rows)
        if await _replace_block(connection, stream_id, range_, block):
            made += 1
        else:
            tries += 1
    return made


async def _next_range(connection: Connection, stream_id: int) -> _Range | None:
    """The first of the blocks that are to be made anew, else what comes after the last block."""
    cursor = await connection.execute(
        "select s.rows - s.blocked_rows, s.blocked_step, b.first_step, b.last_step from lens_stream s left join lateral"
        "  (select * from lens_block where stream_id = s.id and dirty order by last_step limit 1) b on true"
        " where s.id = %s",
        [stream_id],
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    outside, blocked_step, first_step, last_step = row
    if last_step is not None:
        count = await _fetch_value(
            connection,
            "select count(*) from lens_row where stream_id = %s and row_step between %s and %s",
            [stream_id, first_step, last_step],
        )
        return _Range(first_step, last_step, count)
    if blocked_step == HIGHEST_STEP:
        return None
    return _Range(LOWEST_STEP if blocked_step is None else blocked_step + 1, None, outside)


async def _read_range(connection: Connection, stream_id: int, range_: _Range) -> tuple[Rows, int]:
    """The rows of a range, and the step where their block ends; of one that has grown only the beginning.

    So memory stays bounded. Rows that are written meanwhile are read, or come after all that were read, or leave their
    step in `late_step`.
    """
    rows = Rows()
    is_whole = range_.last_step is not None and range_.rows <= _GROWN_ROWS
    wanted = range_.rows if is_whole else BLOCK_ROWS
    first_step, last_step = range_.first_step, range_.first_step - 1
    while rows.count < wanted and last_step < HIGHEST_STEP:
        most = min(wanted - rows.count, _PIECE_ROWS)
        cursor = await connection.execute(_ROWS, [stream_id, first_step, range_.last_step, most], binary=True)
        ((count, reached, *columns),) = await cursor.fetchall()
        if not count:
            break
        await asyncio.to_thread(rows.append_rows, *columns)
        first_step, last_step = reached + 1, reached
    return rows, range_.last_step if is_whole and range_.last_step is not None else last_step


async def _replace_block(connection: Connection, stream_id: int, range_: _Range, block: Block) -> bool:
    """Put a block in place of what there was of its range; false when rows of it were written meanwhile.

    A block made anew that has grown beyond its size gives up its beginning, and stays to be made anew.
    """
    async with connection.transaction():
        cursor = await connection.execute(
            "select late_step from lens_stream where id = %s for no key update", [stream_id]
        )
        row = await cursor.fetchone()
        if row is None:
            return True
        if row[0] is not None and row[0] <= block.last_step:
            await connection.execute("update lens_stream set late_step = null where id = %s", [stream_id])
            return False
        old_rows = 0
        if range_.last_step is not None and range_.last_step == block.last_step:
            old_rows = await _fetch_value(
                connection,
                "delete from lens_block where stream_id = %s and last_step = %s returning rows",
                [stream_id, range_.last_step],
            )
        elif range_.last_step is not None:
            await connection.execute(
                "update lens_block set first_step = %s where stream_id = %s and last_step = %s",
                [block.last_step + 1, stream_id, range_.last_step],
            )
        await _insert(connection, stream_id, block)
        await connection.execute(
            "update lens_stream set blocked_rows = blocked_rows + %s, blocked_step = greatest(blocked_step, %s)"
            " where id = %s",
            [block.rows - old_rows, block.last_step, stream_id],
        )
    return True


async def _insert(connection: Connection, stream_id: int, block: Block) -> None:
    await connection.execute(
        "insert into lens_block (stream_id, first_step, last_step, rows, ordered, first_iteration, last_iteration,"
        " first_us, last_us, steps, iterations, times) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %b, %b)",
        [stream_id, *block[:-1]],
    )
    async with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(["int8", "text", "int8", "int4", "bytea", "bytea", "bytea", "float8", "bytea"])
        for column in block.columns:
            head = (stream_id, column.metric, block.last_step, column.points)
            await copy.write_row((*head, *column[2:]))


async def _fetch_value(connection: Connection, statement: str, parameters: list[Any]) -> Any:
    row = await (await connection.execute(statement.encode(), parameters)).fetchone()
    return None if row is None else row[0]
