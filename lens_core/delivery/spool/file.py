"""The spool's file: its tables, its settings, and which of SQLite's errors mean what.

One SQLite database per spool, in WAL mode: a commit of batches that returned is on the disk (`group_commit`). The
numbers of batches only ever grow (AUTOINCREMENT), also across restarts; what sinks that write exactly once know them by
is in `epochs`.
"""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path

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


def connect(path: str) -> sqlite3.Connection:
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
