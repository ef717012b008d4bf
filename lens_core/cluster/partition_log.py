"""One partition of a log as one sink's sender reads it: see `delivery.log.SinkLog`.

The position is the sequence in the stream. It is kept in the KV bucket, under a fence, after each batch; a sink that
keeps its own beside its data is asked first, and the bucket gets that now and then. What was read and is not accounted
for waits in memory, bounded in bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

from ..base.errors import LensError, SpoolError
from ..delivery.erasure import Erasure
from ..delivery.log import SinkLog
from ..delivery.processing_marks import ProcessingMarks
from ..delivery.spool.batches import Chunk, DeadLetter, HeldBatch, choose_batches
from ..delivery.spool.file import Epoch
from ..delivery.spool.sink_state import Outcome, Pending, SinkState, SpooledBatch
from ..plugin_api.sink_answers import BatchLimits, Position
from .connection import Fenced, LogMessage
from .erasures import ErasureMarks
from .follower import Follower
from .key_values import KeyValues
from .letters import REASON
from .log_stream import LogStream, token_of
from .messages import ONLY_SINK, OUT, RECORDS, envelope_of
from .positions import KeptPosition, decode_position, position_in
from .tasks import cancel_tasks

MAX_HELD_BYTES = 4 * 1024 * 1024


class PartitionLog(SinkLog):
    """Holds what one sink has to get of one partition, under the lease of number `epoch`.

    `is_kept_by_sink`: the sink has its own position.
    """

    def __init__(
        self,
        stream: LogStream,
        partition: int,
        sink: str,
        epoch: int,
        keys: KeyValues,
        marks: ErasureMarks | None = None,
        *,
        required: bool = True,
        is_kept_by_sink: bool = False,
    ) -> None:
        self.marks = ProcessingMarks(None)
        self._epoch = epoch
        self._stream = stream
        self._partition = partition
        self._sink = sink
        self._keys = keys
        self._marks = marks
        self._key = f"positions.{token_of(stream.pipeline)}.{partition}.{token_of(sink)}"
        self._revision = 0
        self._is_kept_by_sink = is_kept_by_sink
        self._unkept: Position | None = None
        self._state = SinkState(sink, required=required)
        self._held: deque[HeldBatch] = deque()
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._wake = asyncio.Event()
        self._wanted = (1, 1)
        self._follower: Follower | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_durable(self) -> bool:
        """The log is on the servers' disks."""
        return True

    @property
    def erasures(self) -> Sequence[Erasure]:
        """The marks that all daemons share."""
        return self._marks.current if self._marks is not None else ()

    @property
    def epoch(self) -> int:
        """The number of the lease."""
        return self._epoch

    async def find_position(self) -> None:
        """Find where the sink was. Raises Overloaded."""
        entry = await self._keys.read_entry(self._key)
        position = Position(0, 0)
        if entry is not None:
            self._revision = entry.revision
            position = position_in(entry.text, self._stream.mark)
        self._state.restore_counts(position, Pending(0, 0, None), 0)

    async def stop_reading(self) -> None:
        """Read no more."""
        await cancel_tasks([self._reading])

    @property
    def passed(self) -> int:
        """The last sequence that the sink needs no more, as it is committed."""
        if self._state.pending().records or self._follower is None:
            return max(0, self._state.cursor.batch - 1)
        return max(self._follower.after, self._state.cursor.batch - 1)

    @property
    def is_behind(self) -> bool:
        """Whether more waits in the log than was read of it."""
        return self._follower is None or not self._follower.is_at_end

    def hand_over(self) -> None:
        """Give up what was read: the partition's next owner delivers it, so that here it counts as filtered."""
        waiting = self._state.pending()
        given = Outcome(filtered=waiting.records)
        self._state.settled(self._state.cursor, waiting.records, waiting.bytes, None, 0, given)

    def sink_state(self, sink: str) -> SinkState:
        """Counts of the sink."""
        if sink != self._sink:
            raise KeyError(sink)
        return self._state

    @property
    def identity(self) -> str:
        """The identity under which sinks keep their position in this partition."""
        return f"{self._stream.identity}/{self._partition}"

    def identity_at(self, position: Position) -> str:
        """One identity for the whole partition: its sequence never begins again."""
        return self.identity

    def earlier_epochs(self) -> Sequence[Epoch]:
        """The partition as a whole: whoever owned it before may have delivered of it."""
        return [Epoch(0, self.identity)]

    async def skip_to(self, sink: str, position: Position, epoch: Epoch) -> int:
        """Begin where the sink says it is, if that is further than what is known; nothing was read before."""
        if position > self._state.cursor:
            self._state.restore_counts(position, Pending(0, 0, None), self._state.dead_letters)
        return 0

    def wake_event(self, sink: str, records: int = 1, size: int = 1) -> asyncio.Event:
        """An event that is set once so many records, or so many bytes, wait."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._fill_buffer(), name=f"reading {self._key}")
        self._wanted = (records, size)
        self._wake.clear()
        self._notify()
        return self._wake

    def wake_sink(self, sink: str) -> None:
        """Set the event whatever waits."""
        self._wake.set()

    def _notify(self) -> None:
        pending = self._state.pending()
        if pending.records >= self._wanted[0] or (pending.records and pending.bytes >= self._wanted[1]):
            self._wake.set()

    async def _fill_buffer(self) -> None:
        self._follower = Follower(self._stream, self._partition, OUT, max(0, self._state.cursor.batch - 1))
        async with contextlib.aclosing(self._follower.batches()) as batches:
            async for messages in batches:
                for message in messages:
                    self._hold(message)
                self._notify()
                while self._held_bytes >= MAX_HELD_BYTES:
                    self._wake.set()
                    self._room.clear()
                    await self._room.wait()

    def _hold(self, message: LogMessage) -> None:
        only = message.headers.get(ONLY_SINK, "")
        if only not in ("", token_of(self._sink)) or message.headers.get(RECORDS, "0") == "0":
            return
        body, records = envelope_of(message)
        if Position(message.sequence, records) <= self._state.cursor:
            return
        done = self._state.cursor.offset if message.sequence == self._state.cursor.batch else 0
        batch = SpooledBatch(message.sequence, message.stored_at, records, len(body), "", len(message.body))
        self._held.append(HeldBatch(batch, body, None))
        self._held_bytes += len(body)
        self._state.appended(batch._replace(records=records - done))

    async def peek(self, sink: str, limits: BatchLimits) -> Chunk | None:
        """Return the next chunk without handing it out; None when there is none."""
        start = self._state.head
        waiting = {held.batch.id: held for held in self._held if Position(held.batch.id, held.batch.records) > start}
        chosen = choose_batches((held.batch for held in waiting.values()), start, limits)
        if not chosen:
            return None
        segments = [waiting[batch.id].cut_segment(first, last) for batch, first, last in chosen]
        return Chunk(start, Position(segments[-1].batch, segments[-1].last), segments, self._state.repairs)

    def hand_out(self, sink: str, chunk: Chunk) -> bool:
        """Hand out what was peeked at; False when it is not what comes next any more."""
        return self._state.hand_out(chunk.start, chunk.end, chunk.records, chunk.size, chunk.repairs)

    async def return_batches(self, sink: str) -> None:
        """Offer again what was handed out and not accounted for."""
        cursor = self._state.cursor
        left = [held.batch for held in self._held if Position(held.batch.id, held.batch.records) > cursor]
        records = sum(batch.records - (cursor.offset if batch.id == cursor.batch else 0) for batch in left)
        oldest = left[0].created_at if left else None
        self._state.restore_pending(Pending(records, sum(batch.bytes for batch in left), oldest))

    async def advance(
        self,
        sink: str,
        end: Position,
        records: int,
        size: int = 0,
        dead_letters: Sequence[DeadLetter] = (),
        outcome: Outcome | None = None,
    ) -> None:
        """Keep the dead letters, then the position. Raises Overloaded, and SpoolError where another daemon owns it."""
        for number, letter in enumerate(dead_letters):
            await self._keep_letter(letter, end, number)
        self._unkept = end
        if not self._is_kept_by_sink:
            try:
                await self.keep_position()
            except LensError as error:
                raise SpoolError(f"the position of sink {sink} was not kept: {error}") from None
        while self._held and Position(self._held[0].batch.id, self._held[0].batch.records) <= end:
            self._held_bytes -= self._held.popleft().batch.bytes
        self._room.set()
        oldest = self._held[0].batch.created_at if self._held else None
        known = Outcome(delivered=records) if outcome is None else outcome
        self._state.settled(end, records, size, oldest, len(dead_letters), known)

    async def keep_position(self) -> None:
        """Write the position if it has moved since. Raises Fenced after a later lease's write, and Overloaded."""
        end = self._unkept
        if end is not None:
            await self._write_position(end)
            if self._unkept == end:
                self._unkept = None

    async def _write_position(self, end: Position) -> None:
        """Write the position under the lease's number. Raises Fenced after a later lease's write, and Overloaded."""
        text = KeptPosition(end, self._epoch, self._stream.mark).encode()
        try:
            self._revision = await self._keys.write_entry(self._key, text, self._revision)
        except Fenced:
            # Mostly another owner; but it may have been this one, whose write was stored and never answered.
            entry = await self._keys.read_entry(self._key)
            if entry is None or decode_position(entry.text).epoch > self._epoch:
                raise
            self._revision = await self._keys.write_entry(self._key, text, entry.revision)

    async def _keep_letter(self, letter: DeadLetter, end: Position, number: int) -> None:
        identity = f"{self._key}.{end.batch}.{end.offset}.{number}"
        headers = {"Nats-Msg-Id": identity, REASON: " ".join(letter.reason.split())[:500], RECORDS: "1"}
        await self._stream.keep_letter(self._partition, self._sink, letter.body, headers)

    def skip_oldest(self) -> None:
        """Pass the older half of what was read, at least one batch: the log is full, and the sink is optional."""
        half = self._held_bytes / 2
        skipped: list[SpooledBatch] = []
        while self._held and (not skipped or self._held_bytes > half):
            skipped.append(self._held.popleft().batch)
            self._held_bytes -= skipped[-1].bytes
        self._state.skipped(skipped, self._held[0].batch.created_at if self._held else None)
        self._room.set()

    def was_overtaken(self, sink: str, end: Position) -> bool:
        """Whether the log was full, and what the sink was given up to `end` was dropped."""
        return not self._state.required and end <= self._state.cursor
