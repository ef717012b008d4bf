"""The spool's file: tables and settings, errors, lock, reserve of space, epochs, queries.

The spool's file: its tables, its settings, and which of SQLite's errors mean what.

One SQLite database per spool, in WAL mode: a commit of batches that returned is on the disk (`threads`). The
numbers of batches only ever grow (AUTOINCREMENT), also across restarts; what sinks that write exactly once know them by
is in `Epoch`.

Space that a full disk leaves to the spool, so that it can delete what was delivered.

Deleting writes too: a page list, and the log has to be copied into the file before its space is free again. So a
file of some megabytes lies beside the spool; it is given up when the disk is full and taken again afterwards, and
nothing new is accepted in between.

One process per spool: a lock file that names its owner.

Epochs: each opening of a spool numbers its batches under an identity of its own.

A sink that keeps its own position knows a spool by that identity. If a data directory is restored from a copy, or
used by two daemons, the batches that are written from then on have numbers which the sink knows from another
history; under another identity they are never taken for those.

Reading the spool's tables. Every function takes the connection of the thread that calls it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...base.errors import SpoolError
from ...model.records import Record, decode_envelope
from ...plugin_api.sink_answers import BatchLimits, Position
from .batches import Chunk, Segment, Stored, choose_batches, unpack
from .sink_state import START, Pending, SpooledBatch

# 2: an envelope may hold the origin for its records. A Lens that knows only 1 would send those without theirs.
# 3: bodies may be packed.
FORMAT_VERSION = 3
MEMORY = ":memory:"

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at REAL NOT NULL,
    records INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    only_sink TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS batches_only_sink ON batches (only_sink, id) WHERE only_sink <> '';
CREATE TABLE IF NOT EXISTS cursors (
    sink TEXT PRIMARY KEY, batch INTEGER NOT NULL, offset INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS epochs (first_batch INTEGER PRIMARY KEY, identity TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at REAL NOT NULL,
    bytes INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS erasures (id INTEGER PRIMARY KEY, last_batch INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS dead_letters_sink ON dead_letters (sink, id);
"""

# The log is reused from its beginning after each checkpoint. Its space is kept, so that a disk that is full does not
# keep a spool from deleting what was delivered.
_SETTINGS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = OFF;
PRAGMA journal_size_limit = 16777216;
PRAGMA busy_timeout = 5000;
PRAGMA cell_size_check = ON;
"""


class SpoolFormatError(Exception):
    """The file was written by a newer Lens."""


def open_connection(path: str) -> sqlite3.Connection:
    """Open a connection for use by one thread at a time; transactions are begun by hand."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
    if path == MEMORY:
        return connection
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.executescript(_SETTINGS)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, spool_id: str = "") -> str:
    """Create what is missing and return the spool's id; raises SpoolFormatError for a newer format.

    What older formats hold can be read as it is.
    """
    connection.executescript(_TABLES)
    found = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    version = int(found.get("format", FORMAT_VERSION))
    if version > FORMAT_VERSION:
        raise SpoolFormatError(f"format {version} is newer than {FORMAT_VERSION}, the newest that this Lens knows")
    if "spool_id" not in found:
        found["spool_id"] = spool_id or str(uuid.uuid4())
        connection.execute("INSERT INTO meta VALUES ('spool_id', ?)", (found["spool_id"],))
    if version < FORMAT_VERSION or "format" not in found:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('format', ?)", (str(FORMAT_VERSION),))
    return str(found["spool_id"])


def quick_check(connection: sqlite3.Connection) -> str:
    """The first fault that SQLite finds in the file, or the empty string."""
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()
    return "" if answer and answer[0] == "ok" else str(answer[0] if answer else "no answer")


def raise_sequence(connection: sqlite3.Connection, at_least: int) -> None:
    """Make the next batch's number larger than `at_least`."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'batches'").fetchone()
    if found is None:
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('batches', ?)", (at_least,))
    elif found[0] < at_least:
        connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'batches'", (at_least,))


def is_disk_full(error: sqlite3.Error) -> bool:
    """No space, a file size limit or a write that the disk refused: what may be better later."""
    text = str(error)
    return isinstance(error, sqlite3.OperationalError) and ("is full" in text or "disk I/O error" in text)


def is_damage(error: sqlite3.Error) -> bool:
    """The file is not what it was when it was written."""
    text = str(error)
    return isinstance(error, sqlite3.DatabaseError) and ("malformed" in text or "not a database" in text)


def size_on_disk(path: Path) -> int:
    """Bytes of the database and its log; 0 when there is none."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


class Reserve:
    """A file of `size` bytes that is only there to be removed."""

    def __init__(self, spool: Path, size: int) -> None:
        self._path = spool.with_name(spool.name + ".reserve")
        self._size = size

    def allocate(self) -> bool:
        """Allocate it; False when the disk has not that much."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
        except OSError:
            self.free()
            return False
        return True

    def free(self) -> None:
        """Give the space to whoever needs it now."""
        self._path.unlink(missing_ok=True)


class SpoolLock:
    """Holds `<spool>.lock` until released; the kernel releases it when the process dies, however it dies."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".lock")
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock; raises SpoolError that names the process which has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise SpoolError(f"the spool {self._path.stem} is in use by another process (pid {owner})") from error
        # A full disk may refuse the pid; the lock itself needs no space.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, because removing it would race with the next owner."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Epoch(NamedTuple):
    """The batches from `first_batch` up to those of the next epoch, and the identity that sinks know them by."""

    first_batch: int
    identity: str


def begin_epoch(connection: sqlite3.Connection, spool_id: str) -> list[Epoch]:
    """Begin a new epoch after all batches; returns those that still have batches, in order, the new one last.

    Batches of a Lens that knew no epochs are known by the spool's own id.
    """
    epochs = [Epoch(*row) for row in connection.execute("SELECT first_batch, identity FROM epochs")]
    oldest = connection.execute("SELECT min(id) FROM batches").fetchone()[0]
    if oldest is not None and not any(epoch.first_batch <= oldest for epoch in epochs):
        epochs.append(Epoch(0, spool_id))
    newest = Epoch(_last_number(connection) + 1, str(uuid.uuid4()))
    used = sorted(epoch for epoch in epochs if epoch.first_batch < newest.first_batch)
    kept = [epoch for epoch, after in pairwise([*used, newest]) if oldest is not None and oldest < after.first_batch]
    write_epochs(connection, [*kept, newest])
    return [*kept, newest]


def write_epochs(connection: sqlite3.Connection, epochs: Sequence[Epoch]) -> None:
    """Replace what the file says about epochs."""
    connection.execute("DELETE FROM epochs")
    connection.executemany("INSERT INTO epochs VALUES (?, ?)", epochs)


def _last_number(connection: sqlite3.Connection) -> int:
    """The highest number that a batch or a cursor of this file ever had."""
    numbers = connection.execute(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'batches'), 0),"
        " coalesce((SELECT max(id) FROM batches), 0), coalesce((SELECT max(batch) FROM cursors), 0)"
    ).fetchone()
    return max(int(number) for number in numbers)


# The fields of a SpooledBatch; to know how long a body is, SQLite does not read it.
_BATCH = "id, created_at, records, bytes, only_sink, length(body)"


def read_chunk(
    connection: sqlite3.Connection, sink: str, start: Position, limits: BatchLimits, epoch_starts: Sequence[int] = ()
) -> Chunk | None:
    """The segments after `start`, whole batches up to the limits, of one epoch, or a part of one that is larger."""
    chosen = choose_batches(_after(connection, sink, start), start, limits, epoch_starts)
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
    """The number of the next batch after `batch` and those of its records that can be read; None at the end."""
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
    """Return the time when the oldest batch that is not after `position` was written."""
    found = connection.execute(
        # The first condition leads to the place: SQLite would look at every batch before it for the second.
        "SELECT created_at FROM batches WHERE id >= ?2 AND only_sink IN ('', ?1)"
        " AND (id > ?2 OR records > ?3) ORDER BY id LIMIT 1",
        (sink, position.batch, position.offset),
    ).fetchone()
    return float(found[0]) if found else None


def pending_of(connection: sqlite3.Connection, sink: str, position: Position) -> Pending:
    """Return the backlog that is not after `position`; looks at every batch, so only at start and after a repair."""
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
