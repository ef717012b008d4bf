"""Repairs a damaged spool: copies the readable part into a new file and keeps the old one aside."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from . import file as spool_file

logger = logging.getLogger("lens.spool")

_HEADER = "SELECT created_at, records, bytes, checksum, only_sink FROM batches WHERE id = ?"

# A check reads the whole file. In a larger one damage is found when it is read, which repairs it as well.
CHECK_WHOLE_FILE_BYTES = 256 * 1024 * 1024

# A damaged file may have lost its count of batches: new numbers must still be larger than any that a sink has seen.
SEQUENCE_GAP = 1 << 32


class Salvage(NamedTuple):
    """The outcome of a repair. `lost_records` is by sink, as far as the file still says how many there were."""

    moved_to: Path
    batches: int
    records: int
    lost_batches: int
    lost_records: dict[str, int]


def find_fault(path: Path) -> str:
    """Describe the fault of the file; return the empty string for a sound one. A file that is not there is fine."""
    if not path.exists() or path.stat().st_size == 0:
        return ""
    try:
        connection = spool_file.open_connection(str(path))
    except sqlite3.DatabaseError as error:
        if spool_file.is_damage(error):
            return str(error)
        raise
    try:
        fault = spool_file.quick_check(connection) if path.stat().st_size <= CHECK_WHOLE_FILE_BYTES else ""
        if not fault:
            for table in ("meta", "batches", "cursors", "state", "dead_letters"):
                connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
        return fault
    except sqlite3.DatabaseError as error:
        if spool_file.is_damage(error) or "no such table" in str(error):
            return str(error) if _has_tables(connection) else ""
        raise
    finally:
        connection.close()


def _has_tables(connection: sqlite3.Connection) -> bool:
    """Whether anything was ever made in this file: an empty one only needs its tables."""
    try:
        return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.DatabaseError:
        return True


def repair_file(path: Path) -> Salvage:
    """Write a new file with all that can be read of the old one, which is kept as `<name>.damaged-<time>`.

    No connection to the file may be open. Until the new file is complete the old one stays where it is.
    """
    moved_to = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 1000:03d}")
    fresh = path.with_name(f"{path.name}.mending")
    _remove(fresh)
    new, old = spool_file.open_connection(str(fresh)), _open_damaged(path)
    try:
        salvage = _copy(old, new, moved_to)
    finally:
        new.close()  # the last connection: its log is copied into the file and removed
        if old is not None:
            old.close()
    _move_file(path, moved_to)
    fresh.rename(path)
    return salvage


def _move_file(path: Path, to: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(to.with_name(to.name + suffix))


def _remove(path: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _open_damaged(path: Path) -> sqlite3.Connection | None:
    """A connection to what is left; without its log if that is what keeps it from opening."""
    for suffix in ("?mode=rw", "?mode=ro&immutable=1"):
        connection = sqlite3.connect(f"file:{path}{suffix}", uri=True, isolation_level=None)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            logger.warning("%s cannot be read at all: %s", path.name, error)
            connection.close()
        else:
            return connection
    return None


def _copy(old: sqlite3.Connection | None, new: sqlite3.Connection, moved_to: Path) -> Salvage:
    meta = dict(_rows(old, "SELECT key, value FROM meta"))
    spool_file.prepare(new, str(meta.get("spool_id", "")))
    new.execute("BEGIN IMMEDIATE")
    cursors = list(_rows(old, "SELECT sink, batch, offset FROM cursors"))
    new.executemany("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)", cursors)
    epochs = _rows(old, "SELECT first_batch, identity FROM epochs")
    new.executemany("INSERT OR REPLACE INTO epochs VALUES (?, ?)", epochs)
    new.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", _rows(old, "SELECT key, value FROM state"))
    erasures = _rows(old, "SELECT id, last_batch, body FROM erasures")
    new.executemany("INSERT OR REPLACE INTO erasures VALUES (?, ?, ?)", erasures)
    letters = "SELECT id, sink, reason, created_at, bytes, body FROM dead_letters"
    new.executemany("INSERT OR IGNORE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?)", _rows(old, letters))
    batches, records, last, unreadable = _copy_batches(old, new, cursors)
    sequence = [int(row[0]) for row in _rows(old, "SELECT seq FROM sqlite_sequence WHERE name = 'batches'")]
    seen = max([last, *sequence, *(int(row[1]) for row in cursors)])
    spool_file.raise_sequence(new, seen if sequence else seen + SEQUENCE_GAP)
    new.execute("COMMIT")
    return Salvage(moved_to, batches, records, len(unreadable), _lost_records(unreadable, cursors))


def _copy_batches(
    old: sqlite3.Connection | None, new: sqlite3.Connection, cursors: list[tuple[Any, ...]]
) -> tuple[int, int, int, list[tuple[int, int, str]]]:
    """Batch by batch, by number: a page that cannot be read costs only the batches that lie on it."""
    batches = records = last = 0
    unreadable: list[tuple[int, int, str]] = []
    for number in _batch_numbers(old, cursors):
        last = max(last, number)
        header = next(_rows(old, _HEADER, number), None)
        body = next(_rows(old, "SELECT body FROM batches WHERE id = ?", number), None)
        if header is None and body is None and old is not None and _is_absent(old, number):
            continue
        if header is not None and body is not None and _insert(new, (number, *header, body[0])):
            batches, records = batches + 1, records + int(header[1])
        else:
            unreadable.append((number, int(header[1]) if header else 0, str(header[4]) if header else ""))
    return batches, records, last, unreadable


def _insert(new: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
    """Copy a batch; False when its fields are not what they should be, or when the disk is full."""
    try:
        return new.execute("INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", row).rowcount == 1
    except sqlite3.Error as error:
        logger.warning("a batch of a damaged spool could not be copied: %s", error)
        return False


def _batch_numbers(old: sqlite3.Connection | None, cursors: list[tuple[Any, ...]]) -> list[int]:
    """The numbers of all batches there may be: what a scan finds from both ends, and everything between."""
    found: set[int] = set()
    for order in ("ASC", "DESC"):
        with contextlib.suppress(sqlite3.DatabaseError):  # a scan ends at the first page that cannot be read
            found.update(int(row[0]) for row in _scan(old, f"SELECT id FROM batches ORDER BY id {order}"))
    if not found:
        return []
    floor = min([int(row[1]) for row in cursors] or [0])
    return list(range(max(min(found), floor), max(found) + 1))


def _is_absent(old: sqlite3.Connection, number: int) -> bool:
    """Whether the file says clearly that there is no such batch."""
    try:
        return old.execute("SELECT 1 FROM batches WHERE id = ?", (number,)).fetchone() is None
    except sqlite3.DatabaseError:
        return False


def _lost_records(unreadable: list[tuple[int, int, str]], cursors: list[tuple[Any, ...]]) -> dict[str, int]:
    lost: dict[str, int] = {}
    for sink, batch, _ in cursors:
        mine = (count for number, count, only in unreadable if number > batch and only in ("", sink))
        lost[str(sink)] = sum(mine)
    return lost


def _scan(old: sqlite3.Connection | None, query: str) -> Iterator[tuple[Any, ...]]:
    if old is not None:
        yield from old.execute(query)


def _rows(old: sqlite3.Connection | None, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
    """Rows until the end, or until the first that cannot be read."""
    if old is None:
        return
    try:
        yield from old.execute(query, values)
    except sqlite3.DatabaseError as error:
        logger.warning("part of a damaged spool cannot be read: %s", error)
