"""Reading the spool's tables. Every function takes the connection of the thread that calls it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from ...model.records import Record, decode_envelope
from ...plugin_api.sink_answers import BatchLimits, Position
from .chunk import Chunk, Segment, choose
from .packing import Stored, unpack
from .sink_state import START, Pending, SpooledBatch

# The fields of a SpooledBatch; to know how long a body is, SQLite does not read it.
_BATCH = "id, created_at, records, bytes, only_sink, length(body)"


def read_chunk(
    connection: sqlite3.Connection, sink: str, start: Position, limits: BatchLimits, epoch_starts: Sequence[int] = ()
) -> Chunk | None:
    """The segments after `start`, whole batches up to the limits, of one epoch, or a part of one that is larger."""
    chosen = choose(_after(connection, sink, start), start, limits, epoch_starts)
    if not chosen:
        return None
    segments = [_segment(connection, batch.id, first, last) for batch, first, last in chosen]
    return Chunk(start, Position(segments[-1].batch, segments[-1].last), segments)


def _after(connection: sqlite3.Connection, sink: str, start: Position) -> Iterable[SpooledBatch]:
    rows = connection.execute(
        f"SELECT {_BATCH} FROM batches WHERE id >= ? AND only_sink IN ('', ?) ORDER BY id", (start.batch, sink)
    )
    return (SpooledBatch(*row) for row in rows)


def _segment(connection: sqlite3.Connection, batch: int, first: int, last: int) -> Segment:
    records, size, created_at, *stored = connection.execute(
        "SELECT records, bytes, created_at, body, checksum FROM batches WHERE id = ?", (batch,)
    ).fetchone()
    opened = unpack(Stored(*stored))
    # The bytes of a batch that is read in parts are counted once, with its last part.
    return Segment(batch, first, last, records, size if last == records else 0, created_at, *opened)


def records_after(connection: sqlite3.Connection, batch: int) -> tuple[int, list[Record]] | None:
    """The number of the next batch behind `batch` and those of its records that can be read; None at the end."""
    found = connection.execute(
        "SELECT id, body, checksum FROM batches WHERE id > ? ORDER BY id LIMIT 1", (batch,)
    ).fetchone()
    if found is None:
        return None
    number, *stored = found
    opened = unpack(Stored(*stored))
    try:
        return number, list(decode_envelope(opened.body).records) if not opened.fault else []
    except msgspec.DecodeError:
        return number, []


def all_state(connection: sqlite3.Connection) -> dict[str, bytes]:
    """Every key that was written with batches."""
    return dict(connection.execute("SELECT key, value FROM state").fetchall())


def cursor_of(connection: sqlite3.Connection, sink: str) -> Position:
    """Return the cursor of a sink; the beginning if it is new."""
    found = connection.execute("SELECT batch, offset FROM cursors WHERE sink = ?", (sink,)).fetchone()
    return Position(*found) if found else START


def oldest_after(connection: sqlite3.Connection, sink: str, position: Position) -> float | None:
    """Return the time when the oldest batch that is not behind `position` was written."""
    found = connection.execute(
        "SELECT created_at FROM batches WHERE only_sink IN ('', ?)"
        " AND (id > ? OR (id = ? AND records > ?)) ORDER BY id LIMIT 1",
        (sink, position.batch, position.batch, position.offset),
    ).fetchone()
    return float(found[0]) if found else None


def pending_of(connection: sqlite3.Connection, sink: str, position: Position) -> Pending:
    """Return the backlog that is not behind `position`; looks at every batch, so only at start and after a repair."""
    records, size = connection.execute(
        "SELECT coalesce(sum(records - CASE WHEN id = ?2 THEN min(?3, records) ELSE 0 END), 0),"
        " coalesce(sum(CASE WHEN id = ?2 AND records <= ?3 THEN 0 ELSE bytes END), 0)"
        " FROM batches WHERE id >= ?2 AND only_sink IN ('', ?1)",
        (sink, position.batch, position.offset),
    ).fetchone()
    return Pending(int(records), int(size), oldest_after(connection, sink, position))


def records_between(connection: sqlite3.Connection, sink: str, start: Position, end: Position) -> int:
    """Return the number of a sink's records between two positions."""
    return max(0, pending_of(connection, sink, start).records - pending_of(connection, sink, end).records)


def dead_letter_count(connection: sqlite3.Connection, sink: str) -> int:
    """Return the number of refused records of a sink that nobody has replayed."""
    return int(connection.execute("SELECT count(*) FROM dead_letters WHERE sink = ?", (sink,)).fetchone()[0])


def newest_dead_letter_reason(connection: sqlite3.Connection, sink: str) -> str:
    """Why a sink refused the newest of its dead letters; '' when there is none."""
    found = connection.execute(
        "SELECT reason FROM dead_letters WHERE sink = ? ORDER BY id DESC LIMIT 1", (sink,)
    ).fetchone()
    return str(found[0]) if found else ""


def floor(connection: sqlite3.Connection) -> int | None:
    """The oldest batch that some cursor has not passed; None when there is no cursor at all."""
    lowest: int | None = None
    for batch, offset in connection.execute("SELECT batch, offset FROM cursors"):
        found = connection.execute("SELECT records FROM batches WHERE id = ?", (batch,)).fetchone()
        passed = found is None or offset >= found[0]
        own = batch + 1 if passed else batch
        lowest = own if lowest is None else min(lowest, own)
    return lowest


def newest_end(connection: sqlite3.Connection) -> Position:
    """The end of all that the file holds."""
    found = connection.execute("SELECT id, records FROM batches ORDER BY id DESC LIMIT 1").fetchone()
    return Position(*found) if found else START


def oldest_batches(connection: sqlite3.Connection, limit: int) -> list[SpooledBatch]:
    """The batches that a full spool would give up first."""
    rows = connection.execute(f"SELECT {_BATCH} FROM batches ORDER BY id LIMIT ?", (limit,))
    return [SpooledBatch(*row) for row in rows]
