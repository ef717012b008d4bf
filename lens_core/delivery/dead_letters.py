"""Records that a sink refused for good: kept with the reason, listed, sent again when somebody asks."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ..base.errors import LensError, Overloaded
from ..model.records import NOWHERE, Envelope, decode_envelope
from .erasure import Erasure
from .spool.batches import NewBatch
from .spool.spool import Spool
from .spool.tables import Appended

REPLAY_AT_ONCE = 1000

_raw = msgspec.msgpack.Decoder(Envelope)
_encoder = msgspec.msgpack.Encoder()


class DeadLetterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A refused record; `record` as it was written, None where that cannot be read."""

    id: int
    sink: str
    reason: str
    created_at: float
    bytes: int
    record: Any = None


class DeadLetterReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for which a sink refused records: how many of them are kept, and the times of the first and the last."""

    sink: str
    reason: str
    records: int
    bytes: int
    first_at: float
    last_at: float


class _Replayed(NamedTuple):
    appended: Appended
    records: int
    letters: int
    last_id: int
    bytes: int


class DeadLetters:
    """The dead letters of one spool."""

    def __init__(self, spool: Spool, *, clock: Callable[[], float] = time.time) -> None:
        self._spool = spool
        self._clock = clock

    def count_letters(self, sink: str = "") -> int:
        """Return the number of dead letters of a sink, or of all sinks."""
        sink_states = self._spool.engine.sink_states
        return (
            sink_states[sink].dead_letters
            if sink
            else sum(sink_state.dead_letters for sink_state in sink_states.values())
        )

    async def entries(self, sink: str = "", *, limit: int = 100, after_id: int = 0) -> list[DeadLetterEntry]:
        """The oldest ones after `after_id`; `sink` '' means all sinks, those that were removed included."""

        def select_letters(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return connection.execute(
                "SELECT id, sink, reason, created_at, bytes, body FROM dead_letters"
                " WHERE id > ? AND (? = '' OR sink = ?) ORDER BY id LIMIT ?",
                (after_id, sink, sink, limit),
            ).fetchall()

        rows = await self._spool.run_in_reader(select_letters)
        return [
            DeadLetterEntry(
                id=row[0], sink=row[1], reason=row[2], created_at=row[3], bytes=row[4], record=_peek(row[5])
            )
            for row in rows
        ]

    async def reasons(self, sink: str = "", *, limit: int = 100) -> list[DeadLetterReason]:
        """List why records were refused, the reason of the newest first; `sink` '' means all, removed ones included."""

        def select_reasons(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return connection.execute(
                "SELECT sink, reason, count(*), sum(bytes), min(created_at), max(created_at) FROM dead_letters"
                " WHERE ?1 = '' OR sink = ?1 GROUP BY sink, reason ORDER BY max(id) DESC LIMIT ?2",
                (sink, limit),
            ).fetchall()

        return [
            DeadLetterReason(sink=row[0], reason=row[1], records=row[2], bytes=row[3], first_at=row[4], last_at=row[5])
            for row in await self._spool.run_in_reader(select_reasons)
        ]

    async def replay_letters(self, sink: str) -> int:
        """Put a sink's dead letters back into its spool, for that sink alone; returns how many records.

        What cannot be read stays. Each step is one transaction. Raises LensError for a sink that this pipeline does
        not have, Overloaded when the spool is full.
        """
        if sink not in self._spool.engine.sink_states:
            raise LensError(f"there is no sink {sink!r} in this pipeline to replay to")
        last_id = records = 0
        newest = await self._spool.run_in_reader(lambda connection: _newest_id(connection, sink))
        while last_id < newest:
            done = await self._replay_step(sink, last_id, newest)
            if done.appended.reason:
                raise Overloaded(f"{records} records replayed, then: {done.appended.reason}", retry_after_seconds=2.0)
            records, last_id = records + done.records, done.last_id
        return records

    async def _replay_step(self, sink: str, last_id: int, newest: int) -> _Replayed:
        engine, now = self._spool.engine, self._clock()

        def replay_letters(connection: sqlite3.Connection) -> _Replayed:
            rows = connection.execute(
                "SELECT id, body, bytes FROM dead_letters WHERE sink = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?",
                (sink, last_id, newest, REPLAY_AT_ONCE),
            ).fetchall()
            read = [(row[0], row[2], envelope) for row in rows if (envelope := _decode_envelope(row[1])) is not None]
            end = rows[-1][0] if rows else newest
            if not read:
                return _Replayed(Appended([], []), 0, 0, end, 0)
            batches = _combine([envelope for _, _, envelope in read])
            appended = engine.append_batches(connection, batches, {}, sink, now)
            if appended.reason:
                return _Replayed(appended, 0, 0, last_id, 0)
            connection.executemany("DELETE FROM dead_letters WHERE id = ?", [(number,) for number, _, _ in read])
            size = sum(size for _, size, _ in read)
            engine.dead_letter_bytes -= size
            return _Replayed(appended, sum(batch.records for batch in batches), len(read), end, size)

        def after(done: _Replayed) -> None:
            engine.after_append(done.appended)
            engine.sink_states[sink].replayed(done.letters)

        return await self._spool.run_in_writer(replay_letters, after)

    async def erase_letters(self, erasure: Erasure) -> int:
        """Delete the dead letters of a deleted workload or run, whichever sink refused them; returns how many."""
        newest = await self._spool.run_in_reader(_newest_id)
        last_id = count = 0
        while last_id < newest:
            last_id, erased = await self._erase_some(erasure, last_id, newest)
            count += erased
        return count

    async def _erase_some(self, erasure: Erasure, last_id: int, newest: int) -> tuple[int, int]:
        engine = self._spool.engine

        def work(connection: sqlite3.Connection) -> tuple[int, Counter[str]]:
            rows = connection.execute(
                "SELECT id, sink, bytes, body FROM dead_letters WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
                (last_id, newest, REPLAY_AT_ONCE),
            ).fetchall()
            covered = [row for row in rows if _is_covered(row[3], erasure)]
            connection.executemany("DELETE FROM dead_letters WHERE id = ?", [(row[0],) for row in covered])
            engine.dead_letter_bytes -= sum(row[2] for row in covered)
            return rows[-1][0] if rows else newest, Counter(row[1] for row in covered)

        def after(done: tuple[int, Counter[str]]) -> None:
            for sink, letters in done[1].items():
                if sink in engine.sink_states:
                    engine.sink_states[sink].replayed(letters)

        end, erased = await self._spool.run_in_writer(work, after)
        return end, erased.total()


def _is_covered(body: bytes, erasure: Erasure) -> bool:
    try:
        records = decode_envelope(body).records
    except msgspec.DecodeError:
        return False
    return bool(records) and all(erasure.covers(record) for record in records)


def _newest_id(connection: sqlite3.Connection, sink: str = "") -> int:
    found = connection.execute("SELECT max(id) FROM dead_letters WHERE ?1 = '' OR sink = ?1", (sink,)).fetchone()
    return int(found[0] or 0)


def _decode_envelope(body: bytes) -> Envelope | None:
    try:
        return _raw.decode(body)
    except msgspec.DecodeError:
        return None


def _peek(body: bytes) -> Any:
    envelope = _decode_envelope(body)
    if envelope is None or not envelope.records:
        return None
    record = msgspec.msgpack.decode(envelope.records[0])
    if envelope.origin is not NOWHERE and isinstance(record, dict):
        record.setdefault("origin", msgspec.to_builtins(envelope.origin))
    return record


def _combine(envelopes: Sequence[Envelope]) -> list[NewBatch]:
    """One batch of all those in a row that have the same origin for their records."""
    return [_joined(list(alike)) for _, alike in groupby(envelopes, key=attrgetter("origin"))]


def _joined(envelopes: Sequence[Envelope]) -> NewBatch:
    """One envelope of them all; the time of the oldest holds."""
    records = [record for envelope in envelopes for record in envelope.records]
    first = envelopes[0]
    times = [envelope.received_at for envelope in envelopes if envelope.received_at is not None]
    whole = msgspec.structs.replace(first, records=records, received_at=min(times, default=None))
    return NewBatch(_encoder.encode(whole), len(records))
