"""State that the spool keeps in memory: each sink's cursor and backlog, and bytes that submissions have reserved.

State of one sink that the spool keeps in memory: its cursor and the backlog after it.

The writer thread changes a state after each commit, the reader thread when it hands records out, so every change
is made under the lock.

Records that were handed out (up to `in_flight_end`) belong to the sender until it reports their outcome: when
the spool is full and an optional sink has to skip, those are not counted as dropped here, because they may just be
arriving.

Bytes of a spool that are reserved for a submission before it is appended; no other submission gets them.

A submission that goes into several spools reserves bytes in all of them first, so none stores what another refuses.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...plugin_api.sink_answers import Position

START = Position(0, 0)


class SpooledBatch(NamedTuple):
    """A batch without its body, which has so many `bytes`, and `stored` bytes as it is in the file."""

    id: int
    created_at: float
    records: int
    bytes: int
    only_sink: str
    stored: int


class Pending(NamedTuple):
    """The backlog of a sink; `oldest_at` is the time of its oldest batch, None when nothing waits."""

    records: int
    bytes: int
    oldest_at: float | None


class Outcome(NamedTuple):
    """Counts of records that a sender finished, by outcome; they add up to the number of records."""

    delivered: int = 0
    filtered: int = 0
    rejected: Mapping[str, int] = {}
    dropped: int = 0


class SinkSnapshot(NamedTuple):
    """Counts since the last snapshot, by (name, reason), and the backlog at the same moment."""

    counts: Mapping[tuple[str, str], int]
    pending: Pending
    dead_letters: int
    dead_letter_reason: str = ""


class SinkState:
    """Cursor and counts of one sink."""

    def __init__(self, sink: str, *, required: bool) -> None:
        self.sink = sink
        self.required = required
        self.cursor = START
        self.in_flight_end: Position | None = None
        self._in_flight_records = self._in_flight_bytes = 0
        self.records = 0
        self.bytes = 0
        self.oldest_at: float | None = None
        self.dead_letters = 0
        self.dead_letter_reason = ""
        self.recovered = 0
        self.damaged_at_start = 0
        self.repairs = 0
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def pending(self) -> Pending:
        """Return the backlog, records in flight included."""
        with self._lock:
            return Pending(self.records, self.bytes, self.oldest_at)

    @property
    def head(self) -> Position:
        """The position after which the sender reads next."""
        with self._lock:
            return self._head()

    def _head(self) -> Position:
        return max(self.cursor, self.in_flight_end or START)

    def untouched(self) -> tuple[int, int]:
        """Records and bytes that wait and were not handed out."""
        with self._lock:
            return self.records - self._in_flight_records, self.bytes - self._in_flight_bytes

    def take_snapshot(self) -> SinkSnapshot:
        """Counts and what waits, at one moment, so that they add up; the counts begin at zero again."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            pending = Pending(self.records, self.bytes, self.oldest_at)
            reason = self.dead_letter_reason if self.dead_letters else ""
            return SinkSnapshot(counts, pending, self.dead_letters, reason)

    def restore_counts(self, cursor: Position, pending: Pending, dead_letters: int) -> None:
        """Take over what the file says when it is opened."""
        with self._lock:
            self.cursor = cursor
            self.records, self.bytes, self.oldest_at = pending
            self.dead_letters = dead_letters
            self.recovered = pending.records + self.damaged_at_start
            self._counts["dropped", "spool_damaged"] = self.damaged_at_start

    def reload(self, untouched: Pending, dead_letters: int) -> None:
        """Take over what a repair has left after the head; what is missing of it is counted as damaged.

        What the sender has in its hands is still accounted for by the sender, whether the file has it or not; what
        was read before the repair is not handed out any more.
        """
        with self._lock:
            self.repairs += 1
            self._recount(untouched)
            self.dead_letters = dead_letters

    def restore_pending(self, untouched: Pending) -> None:
        """The sender has given up what it had and did not account for; the file has this after the cursor.

        It is handed out again, but for what a repair or a full spool has taken from the file meanwhile.
        """
        with self._lock:
            self.in_flight_end = None
            self._in_flight_records = self._in_flight_bytes = 0
            self._recount(untouched)

    def _recount(self, untouched: Pending) -> None:
        pending = untouched.records + self._in_flight_records
        self._counts["dropped", "spool_damaged" if self.repairs else "spool_full"] += max(0, self.records - pending)
        self.records, self.bytes = pending, untouched.bytes + self._in_flight_bytes
        if not self._in_flight_records:
            self.oldest_at = untouched.oldest_at

    def appended(self, batch: SpooledBatch) -> None:
        """A batch was committed."""
        if batch.only_sink not in ("", self.sink):
            return
        with self._lock:
            if self.records == 0:
                self.oldest_at = batch.created_at
            self.records += batch.records
            self.bytes += batch.bytes
            self._counts["accepted", ""] += batch.records

    def hand_out(self, start: Position, end: Position, records: int, size: int, repairs: int = 0) -> bool:
        """The sender gets everything up to `end`; False when the head has moved since `start` was read.

        `repairs` is how often the file had been repaired when it was read: what a repair has lost is counted already.
        """
        with self._lock:
            if self._head() != start or self.repairs != repairs:
                return False
            self.in_flight_end = end
            self._in_flight_records += records
            self._in_flight_bytes += size
            return True

    def settled(
        self, end: Position, records: int, size: int, oldest_at: float | None, dead_letters: int, outcome: Outcome
    ) -> None:
        """Record the outcome of everything up to `end`, which the sender has reported."""
        with self._lock:
            self._counts["delivered", ""] += outcome.delivered
            self._counts["filtered", ""] += outcome.filtered
            self._counts["dropped", "spool_full"] += outcome.dropped
            for reason, count in outcome.rejected.items():
                self._counts["rejected", reason] += count
            self.cursor = max(self.cursor, end)
            self.records -= records
            self.bytes = max(0, self.bytes - size)
            self.oldest_at = oldest_at if self.records else None
            self.dead_letters += dead_letters
            self._in_flight_records = max(0, self._in_flight_records - records)
            self._in_flight_bytes = max(0, self._in_flight_bytes - size)
            if self.in_flight_end is not None and end >= self.in_flight_end:
                self.in_flight_end = None

    def discard_pending(self) -> int:
        """Nothing waits any more (a spool in memory is closed); returns how many records did."""
        with self._lock:
            self._counts["dropped", "memory_spool_closed"] += self.records
            lost, self.records, self.bytes, self.oldest_at = self.records, 0, 0, None
            return lost

    def discarded(self, letters: int) -> None:
        """Dead letters had to make room for newer ones."""
        with self._lock:
            self.dead_letters -= letters
            self._counts["discarded", ""] += letters

    def replayed(self, letters: int) -> None:
        """Dead letters were put back among the batches, or deleted with their workload."""
        with self._lock:
            self.dead_letters -= letters

    def skipped(self, batches: Sequence[SpooledBatch], oldest_at: float | None) -> None:
        """The spool was full: the cursor skips these batches (the oldest ones)."""
        with self._lock:
            first = self.cursor
            in_flight = self.in_flight_end or START
            for batch in batches:
                done = first.offset if batch.id == first.batch else 0
                if batch.id <= in_flight.batch:
                    # A batch that is in flight in part is dropped only in its other part.
                    done = batch.records if batch.id < in_flight.batch else in_flight.offset
                lost = max(0, batch.records - done)
                self._counts["dropped", "spool_full"] += lost
                self.records -= lost
                if lost:
                    self.bytes = max(0, self.bytes - batch.bytes)
                self.cursor = max(self.cursor, Position(batch.id, batch.records))
            self.oldest_at = oldest_at if self.records else None


class Reservations:
    """Counts the bytes that one spool has reserved. The writer thread reserves them, in the order of its requests."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes = 0


class Reservation:
    """A request for `size` bytes, granted or not yet."""

    def __init__(self, reservations: Reservations, size: int) -> None:
        self.size = size
        self._held = 0
        self._reservations = reservations
        self._is_wanted = True

    def hold(self) -> None:
        """Count the bytes as reserved unless the request was released; a second call changes nothing."""
        with self._reservations.lock:
            if self._is_wanted and not self._held:
                self._held = self.size
                self._reservations.bytes += self.size

    def release(self) -> None:
        """Return the bytes when the submission is appended or given up; a second call changes nothing."""
        with self._reservations.lock:
            self._reservations.bytes -= self._held
            self._held = 0
            self._is_wanted = False
