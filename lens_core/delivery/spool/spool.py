"""The spool: one log per pipeline and one cursor per sink, on disk or in memory.

A batch is written once, synced once (together with whatever else waits at that moment) and deleted when every
sink's cursor has passed it. Nothing here blocks the event loop: all SQLite work on a file is done by a writer thread
and a reader thread; a spool in memory waits for no disk and works in the loop. What the promise is: `append` returns
when the batch and the state that goes with it are durable.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...base.errors import Overloaded
from ...model.records import Record
from ...plugin_api.sink_answers import BatchLimits, Position
from ..erasure import Erasure, begin_erasure
from ..log import IntakeLog, SinkLog, SpoolStatus
from ..processing_marks import ProcessingMarks
from . import file as spool_file
from . import tables as spool_tables
from .batches import Chunk, DeadLetter, NewBatch
from .engine import SpoolEngine
from .file import Epoch
from .sink_state import Outcome, Pending, Reservation, SinkState
from .threads import CommitLoop, CommitThread, GroupCommitter, SpoolReader

T = TypeVar("T")

logger = logging.getLogger("lens.spool")

MAX_QUEUED_BYTES = 64 * 1024 * 1024
DEFAULT_MAX_BYTES = 1024 * 1024 * 1024


class _Waiter:
    """A sender that waits until there is enough to send."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.records = self.size = 1


class Spool(SinkLog, IntakeLog):
    """The log of one pipeline. `path` None keeps it in memory: quick, and lost with the process.

    `max_bytes` limits the bodies of the batches that wait, as they are stored; `max_dead_letter_bytes` those of the
    dead letters, whose oldest make room for new ones.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_dead_letter_bytes: int | None = None,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._clock = clock
        self._max_queued_bytes = max_queued_bytes
        self._max_dead_letter_bytes = max_bytes // 4 if max_dead_letter_bytes is None else max_dead_letter_bytes
        self._engine: SpoolEngine | None = None
        self._writer: GroupCommitter | None = None
        self._reader: SpoolReader | None = None
        self._waiters: dict[str, _Waiter] = {}
        self.marks = ProcessingMarks(path)

    async def open(self, sinks: Mapping[str, bool]) -> None:
        """Open or create it for these sinks (name to whether it is required); repairs a damaged file.

        Raises SpoolError when another process has it, when it cannot be written or when a newer Lens wrote it.
        """
        loop = asyncio.get_running_loop()
        self._waiters = {sink: _Waiter() for sink in sinks}
        engine = SpoolEngine(
            self.path,
            sinks,
            max_bytes=self.max_bytes,
            max_dead_letter_bytes=self._max_dead_letter_bytes,
            notify=self._notify,
        )
        await asyncio.to_thread(engine.open)
        self._engine = engine
        self.marks.load_marks(engine.spool_id, sinks)
        if self.path is None:
            self._writer = CommitLoop(loop, engine)
        else:
            self._writer = writer = CommitThread(f"spool-writer-{self.path.name}", loop, engine)
            self._reader = SpoolReader(self.path, partial(_translate_reading, writer, engine))
            engine.closed_reader = self._reader.closed

    async def close(self) -> None:
        """Finish what is queued, clean up and close the file."""
        if self._engine is None or self._writer is None:
            return
        if self._reader is not None:
            await self._reader.stop()
        await self._writer.stop()
        await asyncio.to_thread(self._engine.close)
        self.marks.close()
        self._engine = self._writer = self._reader = None

    @property
    def engine(self) -> SpoolEngine:
        """The engine that works on the file; raises Overloaded while the spool is not open."""
        if self._engine is None:
            raise Overloaded("the spool is not open")
        return self._engine

    @property
    def spool_id(self) -> str:
        """The identity of this file, for people; sinks know its batches by the identities of their epochs."""
        return self.engine.spool_id

    def identity_at(self, position: Position) -> str:
        """The identity that sinks know the batch at this position by."""
        return next(
            (epoch.identity for epoch in reversed(self.engine.epochs) if epoch.first_batch <= position.batch),
            self.engine.spool_id,
        )

    def earlier_epochs(self) -> list[Epoch]:
        """The epochs before this opening whose batches a sink may have already, the oldest first."""
        return self.engine.epochs[:-1]

    @property
    def is_durable(self) -> bool:
        """Whether what it holds survives the process."""
        return self.path is not None

    @property
    def epoch(self) -> int:
        """0: nobody else reads the file, so that a sink need not tell owners apart."""
        return 0

    def sink_state(self, sink: str) -> SinkState:
        """Counts of a sink; raises KeyError for one that was not registered."""
        return self.engine.sink_states[sink]

    @property
    def free_bytes(self) -> int:
        """The bytes that it may still hold before older batches have to go."""
        return self.max_bytes - self.engine.live_bytes - self._committer().queued_bytes - self.engine.reservations.bytes

    def pending(self, sink: str) -> Pending:
        """Return the backlog of a sink."""
        return self.engine.sink_states[sink].pending()

    def wake_event(self, sink: str, records: int = 1, size: int = 1) -> asyncio.Event:
        """An event that is set once so many records, or so many bytes, wait for a sink."""
        waiter = self._waiters[sink]
        waiter.records, waiter.size = records, size
        waiter.event.clear()
        self._notify()
        return waiter.event

    def wake_sink(self, sink: str) -> None:
        """Set a sink's event whatever waits for it."""
        self._waiters[sink].event.set()

    def _notify(self) -> None:
        for sink, waiter in self._waiters.items():
            pending = self.engine.sink_states[sink].pending()
            if pending.records >= waiter.records or (pending.records and pending.bytes >= waiter.size):
                waiter.event.set()

    def ensure_room(self) -> None:
        """Raise Overloaded if an append would certainly be refused; cheap, and no promise that it will not be."""
        engine = self.engine
        if self._committer().queued_bytes >= self._max_queued_bytes:
            raise Overloaded("too many bytes are on their way into the spool")
        if engine.refusal:
            raise Overloaded(engine.refusal, retry_after_seconds=5.0)
        if engine.full_until > time.monotonic():
            raise Overloaded("the spool is full because of a required sink", retry_after_seconds=2.0)

    def why_full(self) -> str:
        """Why the last append was refused, until a sink has made room; '' while appends are taken."""
        engine = self.engine
        return engine.refusal or (spool_tables.FULL if engine.is_full else "")

    async def reserve(self, batches: Sequence[NewBatch]) -> Reservation:
        """Keep room for batches that come next; raises Overloaded if they would be refused now."""
        engine = self.engine
        # A packed body is smaller, mostly; by how much is not known yet.
        reservation = Reservation(engine.reservations, spool_tables.size_of(batch.body for batch in batches))
        try:
            refusal = await self._committer().submit(
                lambda connection: engine.reserve(connection, reservation), engine.after_append
            )
            if refusal.reason:
                raise Overloaded(refusal.reason, retry_after_seconds=2.0)
        except BaseException:
            reservation.release()
            raise
        return reservation

    async def append(
        self,
        body: bytes,
        records: int,
        *,
        state: Mapping[str, bytes | None] | None = None,
        only_sink: str = "",
    ) -> None:
        """Write one batch; returns when it is durable. See `append_all`."""
        await self.append_all([NewBatch(body, records)], state=state, only_sink=only_sink)

    async def append_all(
        self,
        batches: Sequence[NewBatch],
        *,
        state: Mapping[str, bytes | None] | None = None,
        only_sink: str = "",
        reservation: Reservation | None = None,
    ) -> None:
        """Write batches and state (None deletes a key) in one transaction; returns when they are durable.

        Raises Overloaded when there is no room because of a required sink, or because the disk is full: nothing was
        written then. `reservation` holds the batches' bytes.
        """
        size = sum(len(batch.body) for batch in batches)
        writer = self._committer()
        is_crowded = writer.queued_bytes + size > self._max_queued_bytes and writer.queued_bytes > 0
        if batches and is_crowded and reservation is None:
            raise Overloaded("too many bytes are on their way into the spool")
        engine, now = self.engine, self._clock()
        refusal = await writer.submit(
            lambda connection: engine.append_batches(connection, batches, state or {}, only_sink, now, reservation),
            engine.after_append,
            size,
        )
        if refusal.reason:
            raise Overloaded(refusal.reason, retry_after_seconds=2.0)

    async def read_chunk(self, sink: str, limits: BatchLimits) -> Chunk | None:
        """Return the next chunk of a sink, after all that it has already, within the limits; None when there is none.

        Whole batches, at least one of them, unless a single batch has more than `max_records`. The records are the
        caller's until `advance` records their outcome.
        """
        while True:
            chunk = await self.peek(sink, limits)
            if chunk is None or self.hand_out(sink, chunk):
                return chunk

    async def peek(self, sink: str, limits: BatchLimits) -> Chunk | None:
        """Return the chunk that `read_chunk` would return, without handing it out."""
        engine = self.engine
        repairs, start = engine.sink_states[sink].repairs, engine.sink_states[sink].head
        chunk = engine.recent.chunk(sink, start, limits) or await self.run_in_reader(
            partial(
                spool_file.read_chunk,
                sink=sink,
                start=start,
                limits=limits,
                epoch_starts=[epoch.first_batch for epoch in engine.epochs],
            )
        )
        return chunk._replace(repairs=repairs) if chunk else None

    def hand_out(self, sink: str, chunk: Chunk) -> bool:
        """Hand out what was peeked at; False when it is not what comes next any more."""
        engine = self.engine
        if not engine.sink_states[sink].hand_out(chunk.start, chunk.end, chunk.records, chunk.size, chunk.repairs):
            return False
        engine.recent.drop_passed(min(sink_state.head for sink_state in engine.sink_states.values()))
        return True

    async def return_batches(self, sink: str) -> None:
        """Offer a sink again the records that were handed out and not accounted for. Raises SpoolError, Overloaded."""
        engine = self.engine

        def count(connection: sqlite3.Connection) -> Pending:
            cursor = spool_file.cursor_of(connection, sink)
            return spool_file.pending_of(connection, sink, cursor)

        await self._committer().submit(count, engine.sink_states[sink].restore_pending)

    async def advance(
        self,
        sink: str,
        end: Position,
        records: int,
        size: int = 0,
        dead_letters: Sequence[DeadLetter] = (),
        outcome: Outcome | None = None,
    ) -> None:
        """Everything up to `end` is done: `records` of them with this outcome (None: delivered), in one transaction."""
        engine, now = self.engine, self._clock()
        known = Outcome(delivered=records) if outcome is None else outcome
        await self._committer().submit(
            lambda connection: engine.advance_cursor(connection, sink, end, records, size, dead_letters, known, now),
            engine.after_advance,
            repeatable=True,  # a sink that is given a batch again is part of the promise
        )

    def was_overtaken(self, sink: str, end: Position) -> bool:
        """Whether a full spool has skipped all that was handed out up to `end`: it need not be sent again."""
        return self.engine.sink_states[sink].cursor >= end

    async def state(self) -> dict[str, bytes]:
        """All state that was written with batches."""
        return await self.run_in_reader(spool_file.all_state)

    async def skip_to(self, sink: str, position: Position, epoch: Epoch) -> int:
        """Move a sink's cursor forward to where the sink says it is; returns how many records that passes.

        The position is one of the epoch's: batches of later epochs are not passed, however far the sink is.
        """
        engine = self.engine
        end = next(after.first_batch for after in engine.epochs if after.first_batch > epoch.first_batch)
        if position.batch >= end:
            logger.warning(
                "Sink %s is ahead of the spool: this data directory is an older copy. Records "
                "accepted since then are still delivered.",
                sink,
            )
        there = min(position, Position(end, 0))
        done = await self._committer().submit(
            lambda connection: engine.skip_to(connection, sink, there), engine.after_advance
        )
        return done.records

    @property
    def erasures(self) -> Sequence[Erasure]:
        """The deleted workloads and runs of which records may still wait."""
        return self.engine.erasures

    async def erase_batches(self, erasure: Erasure) -> None:
        """Mark what waits now of a deleted workload or run; it is not sent any more."""
        engine = self.engine

        def remember(marked: Erasure) -> None:
            engine.erasures = [*engine.erasures, marked]

        await self._committer().submit(lambda connection: begin_erasure(connection, erasure), remember)

    async def waiting_records(self) -> AsyncIterator[list[Record]]:
        """The readable records in batches that some sink has not passed, batch by batch."""
        after = (await self.run_in_reader(spool_file.floor) or 0) - 1
        while found := await self.run_in_reader(partial(spool_file.records_after, batch=after)):
            after, records = found
            yield records

    async def run_in_writer(
        self, work: Callable[[sqlite3.Connection], T], after: Callable[[T], None] | None = None
    ) -> T:
        """Run work on the tables in the writer's next transaction."""
        return await self._committer().submit(work, after)

    async def run_in_reader(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work that only reads, beside the writer where there is a file."""
        if self._reader is None:
            return await self._committer().submit(work)  # a database in memory has one connection
        return await self._reader.run_work(work)

    def _committer(self) -> GroupCommitter:
        if self._writer is None:
            raise Overloaded("the spool is not open")
        return self._writer

    def spool_status(self) -> SpoolStatus:
        """For `lens status`."""
        engine = self.engine
        return SpoolStatus(
            kind="disk" if self.path else "memory",
            path=str(self.path) if self.path else "",
            spool_id=engine.spool_id,
            bytes=engine.live_bytes,
            max_bytes=self.max_bytes,
            file_bytes=spool_file.size_on_disk(self.path) if self.path else engine.live_bytes,
            dead_letters=sum(sink_state.dead_letters for sink_state in engine.sink_states.values()),
            dead_letters_discarded=engine.dead_letters_discarded,
        )


__all__ = ["Chunk", "DeadLetter", "NewBatch", "Pending", "Spool"]


def _translate_reading(writer: CommitThread, engine: SpoolEngine, error: Exception) -> Exception:
    """Tell a reader what its error means, and have the writer repair a damaged file."""
    told = engine.translate(error)
    writer.poke()
    return told
