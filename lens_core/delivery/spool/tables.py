"""The writer's changes to the spool's tables: appending, advancing, making room.

The methods that take a connection run inside a transaction. `live_bytes` follows that transaction; the books,
which others see, change only in the `after_…` methods, which are called once the commit is done.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...plugin_api.sink_answers import Position
from . import file as spool_file
from .batches import DeadLetter, NewBatch, RecentBatches, Stored, pack
from .sink_state import Outcome, Reservation, Reservations, SinkState, SpooledBatch

# The overhead of a batch beyond its stored body: its row, the slack of its page.
BATCH_OVERHEAD_BYTES = 64
FULL_HINT_SECONDS = 0.25
OLDEST_AT_ONCE = 64
FULL = "the spool is full because of a required sink"


class Skip(NamedTuple):
    """The batches that a full spool took from an optional sink."""

    sink: str
    batches: list[SpooledBatch]
    oldest_at: float | None


class Appended(NamedTuple):
    """The result of an append: the batches, their bodies, and those packed; `reason` says why it was refused."""

    batches: Sequence[tuple[SpooledBatch, bytes, bytes | None]]
    skips: Sequence[Skip]
    reason: str = ""


class Advanced(NamedTuple):
    """The result of an advance; `discarded` dead letters (by sink) had to make room for new ones."""

    sink: str
    end: Position
    records: int
    size: int
    oldest_at: float | None
    dead_letters: int
    discarded: Mapping[str, int]
    outcome: Outcome
    newest_reason: str = ""


def size_of(bodies: Iterable[bytes]) -> int:
    """Return the bytes that batches with these bodies take of a spool's limit."""
    return sum(len(body) + BATCH_OVERHEAD_BYTES for body in bodies)


class SpoolTables:
    """The changing half of the spool's engine."""

    def __init__(
        self, sinks: Mapping[str, bool], *, max_bytes: int, max_dead_letter_bytes: int, pack_from_bytes: float
    ) -> None:
        self.sink_states = {sink: SinkState(sink, required=required) for sink, required in sinks.items()}
        self.recent = RecentBatches()
        self.reservations = Reservations()
        self.live_bytes = 0
        self.last_batch = 0  # of this opening
        self.dead_letter_bytes = 0
        self.dead_letters_discarded = 0
        self.full_until = 0.0
        self.is_full = False
        self.untidy = False
        self.refusal = ""
        self._max_bytes = max_bytes
        self._max_dead_letter_bytes = max_dead_letter_bytes
        self._pack_from_bytes = pack_from_bytes

    def count_contents(self, connection: sqlite3.Connection) -> None:
        """Count what the file holds; looks at every batch."""
        self.live_bytes = connection.execute(
            "SELECT coalesce(sum(length(body) + ?), 0) FROM batches", (BATCH_OVERHEAD_BYTES,)
        ).fetchone()[0]
        self.dead_letter_bytes = connection.execute("SELECT coalesce(sum(bytes), 0) FROM dead_letters").fetchone()[0]

    def mark(self) -> tuple[int, int]:
        """Return a mark to which the counts can be restored if the transaction is rolled back."""
        return self.live_bytes, self.dead_letter_bytes

    def restore(self, mark: tuple[int, int]) -> None:
        """The transaction was taken back."""
        self.live_bytes, self.dead_letter_bytes = mark

    def append_batches(
        self,
        connection: sqlite3.Connection,
        batches: Sequence[NewBatch],
        state: Mapping[str, bytes | None],
        only_sink: str,
        now: float,
        reservation: Reservation | None = None,
    ) -> Appended:
        """Write batches and state, or say why not; `reservation` holds their bytes."""
        if reservation is not None:
            reservation.release()
        stored = [pack(batch.body, self._pack_from_bytes) for batch in batches]
        need = size_of(one.body for one in stored)
        made = self._make_room(connection, need)
        if made.reason:
            return made
        written = [
            (self._insert(connection, batch, one, only_sink, now), batch.body, one.packed)
            for batch, one in zip(batches, stored, strict=True)
        ]
        self.live_bytes += need
        for key, value in state.items():
            if value is None:
                connection.execute("DELETE FROM state WHERE key = ?", (key,))
            else:
                connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))
        return Appended(written, made.skips)

    def reserve(self, connection: sqlite3.Connection, reservation: Reservation) -> Appended:
        """Promise room, or say why not."""
        made = self._make_room(connection, reservation.size)
        if not made.reason:
            reservation.hold()
        return made

    def _make_room(self, connection: sqlite3.Connection, need: int) -> Appended:
        """See to it that so many bytes have room, or say why not; what only optional sinks want may have to go."""
        if self.refusal:
            return Appended([], [], self.refusal)
        skips: list[Skip] | None = []
        kept = self.reservations.bytes
        if need and self.live_bytes + need + kept > self._max_bytes:
            skips = self._give_room(connection, need, kept)
        if skips is None:
            self.full_until = time.monotonic() + FULL_HINT_SECONDS
            self.is_full = True
            return Appended([], [], FULL)
        self.full_until = 0.0
        if need:
            self.is_full = False
        return Appended([], skips)

    def _insert(
        self, connection: sqlite3.Connection, batch: NewBatch, stored: Stored, only_sink: str, now: float
    ) -> SpooledBatch:
        cursor = connection.execute(
            "INSERT INTO batches (created_at, records, bytes, checksum, only_sink, body) VALUES (?, ?, ?, ?, ?, ?)",
            (now, batch.records, len(batch.body), stored.checksum, only_sink, stored.body),
        )
        number = self.last_batch = cursor.lastrowid or 0
        return SpooledBatch(number, now, batch.records, len(batch.body), only_sink, len(stored.body))

    def after_append(self, done: Appended) -> None:
        """The append is durable."""
        for skip in done.skips:
            self.sink_states[skip.sink].skipped(skip.batches, skip.oldest_at)
        for batch, body, packed in done.batches:
            self.recent.append_batch(batch, body, packed)
            for sink_state in self.sink_states.values():
                sink_state.appended(batch)

    def advance_cursor(
        self,
        connection: sqlite3.Connection,
        sink: str,
        end: Position,
        records: int,
        size: int,
        dead_letters: Sequence[DeadLetter],
        outcome: Outcome,
        now: float,
    ) -> Advanced:
        """Move a cursor forward and keep what the sink refused."""
        cursor = end if self._move(connection, sink, end) else spool_file.cursor_of(connection, sink)
        for letter in dead_letters:
            connection.execute(
                "INSERT INTO dead_letters (sink, reason, created_at, bytes, body) VALUES (?, ?, ?, ?, ?)",
                (sink, letter.reason, now, len(letter.body), letter.body),
            )
            self.dead_letter_bytes += len(letter.body)
        discarded = self._bound_dead_letters(connection) if dead_letters else {}
        oldest_at = spool_file.oldest_after(connection, sink, cursor)
        self.untidy = True
        reason = dead_letters[-1].reason if dead_letters else ""
        return Advanced(sink, end, records, size, oldest_at, len(dead_letters), discarded, outcome, reason)

    def after_advance(self, done: Advanced) -> None:
        """The advance is durable."""
        self.full_until = 0.0
        self.is_full = False
        self.sink_states[done.sink].settled(
            done.end, done.records, done.size, done.oldest_at, done.dead_letters, done.outcome
        )
        if done.dead_letters:
            self.sink_states[done.sink].dead_letter_reason = done.newest_reason
        for sink, count in done.discarded.items():
            self.dead_letters_discarded += count
            if sink in self.sink_states:
                self.sink_states[sink].discarded(count)

    @staticmethod
    def _move(connection: sqlite3.Connection, sink: str, end: Position) -> bool:
        """Move a cursor forward; False when it is there or further already."""
        moved = connection.execute(
            "UPDATE cursors SET batch = ?1, offset = ?2 WHERE sink = ?3 AND (batch, offset) < (?1, ?2)",
            (end.batch, end.offset, sink),
        )
        return moved.rowcount == 1

    def _bound_dead_letters(self, connection: sqlite3.Connection) -> dict[str, int]:
        discarded: dict[str, int] = {}
        while self.dead_letter_bytes > self._max_dead_letter_bytes:
            found = connection.execute("SELECT id, sink, bytes FROM dead_letters ORDER BY id LIMIT 1").fetchone()
            if found is None:
                break
            connection.execute("DELETE FROM dead_letters WHERE id = ?", (found[0],))
            self.dead_letter_bytes -= found[2]
            discarded[found[1]] = discarded.get(found[1], 0) + 1
        return discarded

    def skip_to(self, connection: sqlite3.Connection, sink: str, position: Position) -> Advanced:
        """A sink has stored more than its cursor says: believe the sink."""
        start = spool_file.cursor_of(connection, sink)
        before, after = (spool_file.pending_of(connection, sink, place) for place in (start, max(start, position)))
        self._move(connection, sink, position)
        records = before.records - after.records
        done = Outcome(delivered=records)
        return Advanced(sink, position, records, before.bytes - after.bytes, after.oldest_at, 0, {}, done)

    def purge(self, connection: sqlite3.Connection) -> None:
        """Delete the batches that every cursor has passed."""
        floor = spool_file.floor(connection)
        passed = "id < ?" if floor is not None else "? IS NULL"
        self._delete(connection, passed, floor)
        for sink in self.sink_states:
            cursor = spool_file.cursor_of(connection, sink)
            self._delete(
                connection,
                "only_sink = ? AND (id < ? OR (id = ? AND records <= ?))",
                sink,
                cursor.batch,
                cursor.batch,
                cursor.offset,
            )

    def _delete(self, connection: sqlite3.Connection, where: str, *values: object) -> None:
        freed, size = connection.execute(
            f"SELECT count(*), coalesce(sum(length(body)), 0) FROM batches WHERE {where}", values
        ).fetchone()
        if freed:
            connection.execute(f"DELETE FROM batches WHERE {where}", values)
            self.live_bytes -= size + freed * BATCH_OVERHEAD_BYTES

    def _give_room(self, connection: sqlite3.Connection, need: int, kept: int) -> list[Skip] | None:
        """Delete what was passed, then what only optional sinks still want; None when that is not enough."""
        self.purge(connection)
        cursors = {sink: spool_file.cursor_of(connection, sink) for sink in self.sink_states}
        victims: list[SpooledBatch] = []
        free = self._max_bytes - self.live_bytes - kept
        limit = OLDEST_AT_ONCE
        while free < need:
            oldest = spool_file.oldest_batches(connection, limit)[len(victims) :]
            if not oldest and kept:
                return None
            if not oldest:
                break  # an empty spool takes a batch of any size, if nobody else was promised room
            for batch in oldest:
                if any(self.sink_states[sink].required for sink in self._wanting(batch, cursors)):
                    return None
                victims.append(batch)
                free += batch.stored + BATCH_OVERHEAD_BYTES
                if free >= need:
                    break
            limit *= 2
        return self._give_up(connection, victims, cursors)

    def _wanting(self, batch: SpooledBatch, cursors: Mapping[str, Position]) -> list[str]:
        end = Position(batch.id, batch.records)
        names = [batch.only_sink] if batch.only_sink else list(self.sink_states)
        return [sink for sink in names if sink in cursors and cursors[sink] < end]

    def _give_up(
        self, connection: sqlite3.Connection, victims: Sequence[SpooledBatch], cursors: Mapping[str, Position]
    ) -> list[Skip]:
        if not victims:
            return []
        end = Position(victims[-1].id, victims[-1].records)
        skips = []
        for sink in self.sink_states:
            lost = [batch for batch in victims if sink in self._wanting(batch, cursors)]
            if lost:
                self._move(connection, sink, end)
                skips.append(Skip(sink, lost, spool_file.oldest_after(connection, sink, end)))
        self._delete(connection, "id <= ?", end.batch)
        return skips
