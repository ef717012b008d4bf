"""Life cycle of the spool's file: opening, repair, cleanup, closing; the interface for its writer thread."""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from ...base.errors import Overloaded, SpoolError
from ..erasure import Erasure, read_erasures, write_erasure
from . import file as spool_file
from . import repair as spool_repair
from .batches import WORTH_BYTES
from .file import Epoch, Reserve, SpoolLock, begin_epoch, write_epochs
from .tables import SpoolTables

logger = logging.getLogger("lens.spool")

TIDY_EVERY_SECONDS = 0.5
VACUUM_PAGES_AT_ONCE = 2048
VACUUM_WORTH_PAGES = 1024
MAX_RESERVE_BYTES = 8 * 1024 * 1024


class SpoolEngine(SpoolTables):
    """Works on one spool file; see `Spool` for what its methods mean to others."""

    def __init__(
        self,
        path: Path | None,
        sinks: Mapping[str, bool],
        *,
        max_bytes: int,
        max_dead_letter_bytes: int,
        notify: Callable[[], None],
    ) -> None:
        super().__init__(
            sinks,
            max_bytes=max_bytes,
            max_dead_letter_bytes=max_dead_letter_bytes,
            # In memory nothing is written and copied: packing would only cost.
            pack_from_bytes=WORTH_BYTES if path else math.inf,
        )
        self.path = path
        self.spool_id = ""
        self.epochs: list[Epoch] = []
        self.erasures: list[Erasure] = []
        self.closed_reader: Callable[[], AbstractContextManager[None]] = nullcontext
        self._notify = notify
        self._lock = SpoolLock(path) if path else None
        self._reserve = Reserve(path, min(MAX_RESERVE_BYTES, max_bytes // 8)) if path else None
        self._connection: sqlite3.Connection | None = None
        self._repair_wanted = False
        self._tidied_at = 0.0

    # Opening and closing

    def open(self) -> None:
        """Lock, check, repair if needed, register the sinks and load the books."""
        try:
            if self.path:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._lock:
                self._lock.acquire()
        except OSError as error:
            raise SpoolError(f"the spool {self.path} cannot be opened: {error}") from error
        try:
            self._open_tables()
        except (sqlite3.Error, OSError, spool_file.SpoolFormatError) as error:
            self.close()
            raise SpoolError(f"the spool {self.path or 'in memory'} cannot be opened: {error}") from error

    def _open_tables(self) -> None:
        fault = spool_repair.find_fault(self.path) if self.path else ""
        try:
            self._load_file(fault)
        except sqlite3.Error as error:
            if self.path is None or fault or not spool_file.is_damage(error):
                raise
            if self._connection is not None:
                self._connection.close()
            self._load_file(str(error))

    def _load_file(self, fault: str) -> None:
        self._open_file(fault)
        self._allocate_reserve()
        connection = self._open_connection()
        connection.execute("BEGIN IMMEDIATE")
        self._register(connection)
        self.epochs = begin_epoch(connection, self.spool_id)
        connection.execute("COMMIT")
        self._load_books(connection)
        self.untidy = True

    def _open_file(self, fault: str) -> None:
        if self.path is None:
            self._connection = spool_file.open_connection(spool_file.MEMORY)
        else:
            if fault:
                lost = self._repair_damage(fault)
                for sink_state in self.sink_states.values():
                    sink_state.damaged_at_start = lost.get(sink_state.sink, 0)
            self._connection = spool_file.open_connection(str(self.path))
        self.spool_id = spool_file.prepare(self._connection)

    def _repair_damage(self, fault: str) -> dict[str, int]:
        assert self.path is not None
        salvage = spool_repair.repair_file(self.path)
        logger.error(
            "the spool %s was damaged (%s); kept as %s; %d batches with %d records saved, %d batches lost",
            self.path.name,
            fault,
            salvage.moved_to.name,
            salvage.batches,
            salvage.records,
            salvage.lost_batches,
        )
        return salvage.lost_records

    def _register(self, connection: sqlite3.Connection) -> None:
        """Cursors of sinks that are gone hold nothing any more; new ones begin at the oldest batch."""
        names = list(self.sink_states)
        marks = ",".join("?" * len(names))
        connection.execute(f"DELETE FROM cursors WHERE sink NOT IN ({marks})", names)
        connection.executemany("INSERT OR IGNORE INTO cursors VALUES (?, 0, 0)", [(name,) for name in names])
        orphans = connection.execute(
            f"DELETE FROM batches WHERE only_sink <> '' AND only_sink NOT IN ({marks})", names
        ).rowcount
        if orphans:
            logger.warning("%d replayed batches were for sinks that are not configured any more", orphans)

    def _load_books(self, connection: sqlite3.Connection) -> None:
        self.count_contents(connection)
        self.erasures = read_erasures(connection)
        self.recent.restart(spool_file.newest_end(connection))
        for name, sink_state in self.sink_states.items():
            cursor = spool_file.cursor_of(connection, name)
            sink_state.restore_counts(
                cursor,
                spool_file.pending_of(connection, name, cursor),
                spool_file.dead_letter_count(connection, name),
            )
            sink_state.dead_letter_reason = spool_file.newest_dead_letter_reason(connection, name)

    def close(self) -> None:
        """Clean up and close; never raises, because what is committed is safe already."""
        if self._connection is not None:
            try:
                self._clean_up(self._connection)
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                logger.warning("spool %s: cleanup at the end failed: %s", self.path, error)
            self._connection.close()
            self._connection = None
        if self._lock:
            self._lock.release()

    # Requests of the commit thread

    def connection(self) -> sqlite3.Connection:
        """The writer's connection; the file is repaired first if a reader has found it damaged."""
        if self._repair_wanted:
            self._repair()
        return self._open_connection()

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise SpoolError("the spool is closed")
        return self._connection

    def _repair(self) -> None:
        """Repair the file in place of a restart; if that fails, the next transaction tries again."""
        if self.path is None:
            self._repair_wanted = False
            return
        with self.closed_reader():
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._repair_damage("found at work")
            connection = spool_file.open_connection(str(self.path))
            spool_file.prepare(connection)
            self._connection = connection
        connection.execute("BEGIN IMMEDIATE")
        self._restore_places(connection)
        connection.execute("COMMIT")
        self._repair_wanted = False
        self.count_contents(connection)
        self.recent.restart(spool_file.newest_end(connection))
        for name, sink_state in self.sink_states.items():
            behind = spool_file.pending_of(connection, name, sink_state.head)
            sink_state.reload(behind, spool_file.dead_letter_count(connection, name))

    def _restore_places(self, connection: sqlite3.Connection) -> None:
        """Write what is known of places in the file: a repair may have saved older ones, or none."""
        write_epochs(connection, self.epochs)
        connection.execute("DELETE FROM erasures")
        for erasure in self.erasures:
            write_erasure(connection, erasure)
        self._register(connection)
        for name, sink_state in self.sink_states.items():
            self._move(connection, name, sink_state.cursor)
        spool_file.raise_sequence(
            connection, max([self.last_batch, *(sink_state.head.batch for sink_state in self.sink_states.values())])
        )

    def translate(self, error: Exception) -> Exception:
        """Translate an error of SQLite into the one that callers get."""
        if not isinstance(error, sqlite3.Error):
            return error
        if spool_file.is_disk_full(error):
            self._give_up_reserve(str(error))
            return Overloaded(self.refusal, retry_after_seconds=5.0)
        if spool_file.is_damage(error):
            self._repair_wanted = True
            return Overloaded("the spool was damaged and is being repaired", retry_after_seconds=1.0)
        return SpoolError(f"the spool {self.path or 'in memory'}: {error}")

    def _allocate_reserve(self) -> None:
        if self._reserve is None or self._reserve.allocate():
            self.refusal = ""
        else:
            self._give_up_reserve("there is no space for its reserve")

    def _give_up_reserve(self, why: str) -> None:
        """Nothing new is accepted until there is space again; what was delivered can be deleted."""
        if not self.refusal:
            logger.error("the spool %s cannot be written: %s", self.path, why)
        self.refusal = f"the spool cannot be written: {why}"
        self.untidy = True
        if self._reserve is not None:
            self._reserve.free()

    def committed(self) -> None:
        """Wake the senders."""
        self._notify()

    def idle(self) -> float | None:
        """Delete what every cursor has passed, and give pages back to the disk, a little at a time."""
        if self._connection is None or not self.untidy:
            return None
        wait = self._tidied_at + TIDY_EVERY_SECONDS - time.monotonic()
        if wait > 0:
            return wait
        self._tidied_at = time.monotonic()
        try:
            self.untidy = self._clean_up(self._connection)
            if self.refusal:
                self._allocate_reserve()
        except sqlite3.Error as error:
            self.untidy = bool(self.refusal)
            logger.warning("spool %s: cleanup failed: %s", self.path, self.translate(error))
        return TIDY_EVERY_SECONDS if self.untidy else None

    def _clean_up(self, connection: sqlite3.Connection) -> bool:
        """Returns whether there is more to do."""
        mark = self.mark()
        try:
            connection.execute("BEGIN IMMEDIATE")
            self.purge(connection)
            connection.execute("COMMIT")
        except sqlite3.Error:
            self.restore(mark)
            with suppress(sqlite3.Error):  # after some errors there is nothing to take back any more
                connection.execute("ROLLBACK")
            raise
        if self.erasures:
            self.erasures = read_erasures(connection)
        return self.path is not None and self._shrink(connection)

    def _shrink(self, connection: sqlite3.Connection) -> bool:
        """Give free pages back to the disk if they are many, or if the disk is full; whether there are more."""
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        if self.refusal:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        elif free < VACUUM_WORTH_PAGES or free * 2 < pages:
            return False
        connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES_AT_ONCE})")
        # The file is cut only by this.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return bool(free)
