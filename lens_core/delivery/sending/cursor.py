"""Moves a sink's cursor: reads and unpacks what comes next, commits what was sent.

From spooled bytes to the records that a sink wants, each with its place in the spool.

An ordinal counts the records of a chunk, wanted or not, readable or not; places in the spool follow from it.

Reads and unpacks the next batch of a sink; with a backlog, while the sink still has the previous one.

Commits of a sink's cursor: one at a time, while the next batch is on its way to the sink.

After a crash a sink may therefore receive two batches again instead of one, unless it keeps its own position.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

import msgspec

from ...base.backoff import Backoff
from ...base.errors import LensError
from ...model.record_filter import Matcher
from ...model.records import Envelope, Record, decode_envelope
from ...plugin_api.sink_answers import BatchLimits, Position
from ..log import SinkLog
from ..spool.batches import Chunk, DeadLetter, Segment
from ..spool.sink_state import Outcome
from .policy import Part, is_full

_raw = msgspec.msgpack.Decoder(Envelope)
_encoder = msgspec.msgpack.Encoder()


class Unreadable(NamedTuple):
    """Records with the ordinals `first` (inclusive) to `last` (exclusive) that cannot be read; `body` as it is."""

    first: int
    last: int
    reason: str
    body: bytes


class Unpacked:
    """The records of a chunk that a sink wants. `ordinals` is None when they are all there are."""

    def __init__(self, chunk: Chunk, matcher: Matcher) -> None:
        self.chunk = chunk
        self.records: list[Record] = []
        self.ordinals: list[int] | None = None
        self.unreadable: list[Unreadable] = []
        self.total = chunk.records
        self._matcher = matcher
        base = 0
        for segment in chunk.segments:
            self._append_segment(segment, base)
            base += segment.last - segment.first

    def _append_segment(self, segment: Segment, base: int) -> None:
        records, ordinals = self._read_segment(segment, base)
        if ordinals is None and self._matcher.takes_all(records):
            if self.ordinals is not None:
                self.ordinals.extend(range(base, base + len(records)))
            self.records.extend(records)
            return
        places = list(range(base, base + len(records))) if ordinals is None else ordinals
        if self.ordinals is None:
            self.ordinals = list(range(len(self.records)))
        chosen = list(map(self._matcher, records))
        self.ordinals.extend(compress(places, chosen))
        self.records.extend(compress(records, chosen))

    def _read_segment(self, segment: Segment, base: int) -> tuple[list[Record], list[int] | None]:
        """The readable records of a segment, and their ordinals if some could not be read."""
        held = segment.held
        if held is not None and held.records is not None:
            return held.records[segment.first : segment.last], None
        if segment.fault:
            return self._record_loss(segment, base, segment.fault)
        try:
            decoded = decode_envelope(segment.body)
        except msgspec.DecodeError as error:
            return self._record_loss(segment, base, f"the batch cannot be read: {error}")
        records: list[Record] = list(decoded.records)
        if len(records) + len(decoded.rejected) != segment.records:
            return self._record_loss(segment, base, "the batch does not hold as many records as it was written with")
        if not decoded.rejected:
            if held is not None:
                held.keep_records(records)
            return records[segment.first : segment.last], None
        return self._around(segment, base, records, dict(decoded.rejected))

    def _around(
        self, segment: Segment, base: int, records: list[Record], rejected: dict[int, str]
    ) -> tuple[list[Record], list[int]]:
        """Keep the readable records of a segment and note the others, with their bytes."""
        envelope = _raw.decode(segment.body)
        readable = iter(records)
        kept: list[Record] = []
        ordinals: list[int] = []
        for index in range(segment.records):
            record = None if index in rejected else next(readable)
            if not segment.first <= index < segment.last:
                continue
            ordinal = base + index - segment.first
            if record is None:
                alone = msgspec.structs.replace(envelope, records=[envelope.records[index]])
                body = _encoder.encode(alone)
                self.unreadable.append(Unreadable(ordinal, ordinal + 1, rejected[index], body))
            else:
                kept.append(record)
                ordinals.append(ordinal)
        return kept, ordinals

    def _record_loss(self, segment: Segment, base: int, reason: str) -> tuple[list[Record], list[int]]:
        count = segment.last - segment.first
        self.unreadable.append(Unreadable(base, base + count, reason, segment.body))
        return [], []

    @property
    def packed(self) -> bytes | None:
        """All records as one envelope packed by Zstandard, if the spool has them so."""
        if len(self.chunk.segments) != 1 or self.ordinals is not None:
            return None
        segment = self.chunk.segments[0]
        return segment.packed if len(self.records) == segment.records else None

    def end_of(self, part: Part) -> int:
        """The ordinal after a part; what is not wanted and comes after the last part belongs to that one."""
        if part.last >= len(self.records):
            return self.total
        return part.last if self.ordinals is None else self.ordinals[part.last - 1] + 1

    def position(self, ordinal: int) -> Position:
        """The place in the spool after `ordinal` records of the chunk."""
        if ordinal <= 0:
            return self.chunk.start
        for segment in self.chunk.segments:
            count = segment.last - segment.first
            if ordinal <= count:
                return Position(segment.batch, segment.first + ordinal)
            ordinal -= count
        return self.chunk.end

    def finished_bytes(self, first: int, last: int) -> int:
        """Bytes of the batches that end within these ordinals."""
        size = end = 0
        for segment in self.chunk.segments:
            end += segment.last - segment.first
            if first < end <= last:
                size += segment.size
        return size


# A millisecond or two; a thread costs about as much until it has its turn.
DECODE_IN_THREAD_BYTES = 512 * 1024
# Records take some times as much memory as their bytes: a larger batch is not held beside the one that is sent.
MAX_BYTES_AHEAD = 1024 * 1024


class Prefetcher:
    """One sink's view of its spool."""

    def __init__(self, sink: str, spool: SinkLog, matcher: Matcher) -> None:
        self._sink = sink
        self._spool = spool
        self._matcher = matcher
        self._ahead: asyncio.Task[Unpacked | None] | None = None

    def has_full_batch(self, limits: BatchLimits) -> bool:
        """Whether a full batch waits after all that was taken."""
        return is_full(*self._spool.sink_state(self._sink).untouched(), limits)

    async def next_batch(self, limits: BatchLimits) -> Unpacked | None:
        """Return the next batch, now the caller's; None when there is none. Raises SpoolError, Overloaded."""
        while True:
            ahead, self._ahead = self._ahead, None
            unpacked = await (ahead or self._read_batch(limits))
            if unpacked is None or self._spool.hand_out(self._sink, unpacked.chunk):
                return unpacked

    def prefetch_batch(self, limits: BatchLimits) -> None:
        """Begin with what comes after all that was taken, if it is a full batch and not too large."""
        if self._ahead is None and self.has_full_batch(limits) and self._bytes_of_next(limits) <= MAX_BYTES_AHEAD:
            self._ahead = asyncio.create_task(self._read_ahead(limits))

    async def discard(self) -> None:
        """Forget what was read ahead: nobody has taken it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def _bytes_of_next(self, limits: BatchLimits) -> float:
        records, size = self._spool.sink_state(self._sink).untouched()
        return min(size, size * limits.max_records / max(1, records))

    async def _read_ahead(self, limits: BatchLimits) -> Unpacked | None:
        await asyncio.sleep(0)  # the send that begins now goes first: then this happens while the sink waits
        return await self._read_batch(limits)

    async def _read_batch(self, limits: BatchLimits) -> Unpacked | None:
        chunk = await self._spool.peek(self._sink, limits)
        if chunk is None:
            return None
        if _undecoded_bytes(chunk) < DECODE_IN_THREAD_BYTES:
            return Unpacked(chunk, self._matcher)
        return await asyncio.to_thread(Unpacked, chunk, self._matcher)


def _undecoded_bytes(chunk: Chunk) -> int:
    return sum(len(segment.body) for segment in chunk.segments)


logger = logging.getLogger("lens.delivery")

REFUSALS_EVERY_SECONDS = 60.0


class Ack(NamedTuple):
    """The outcome of `records` records up to `end`; batches of `size` bytes end in them."""

    end: Position
    records: int
    size: int
    letters: Sequence[DeadLetter]
    outcome: Outcome


class CursorCommitter:
    """Commits acknowledgements to the spool in order; retries until the spool has stored them, never raises LensError.

    `failed` receives the reason of each failed attempt.
    """

    def __init__(self, sink: str, spool: SinkLog, backoff: Backoff, failed: Callable[[str], None]) -> None:
        self._sink = sink
        self._spool = spool
        self._backoff = backoff
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._last_refusal_at: float | None = None

    async def commit(self, ack: Ack) -> None:
        """Start this commit once the previous one is done."""
        await self.wait()
        self._log_refusal(ack.letters)
        self._task = asyncio.create_task(self._advance(ack))

    def _log_refusal(self, letters: Sequence[DeadLetter]) -> None:
        """Say why records were refused, at most once a minute: a line for each would hide everything else."""
        now = time.monotonic()
        if letters and (self._last_refusal_at is None or now - self._last_refusal_at >= REFUSALS_EVERY_SECONDS):
            self._last_refusal_at = now
            reason = letters[0].reason
            logger.warning("Sink %s refused a record: %s; see lens replay --list", self._sink, reason)

    async def wait(self) -> None:
        """Wait for the commit under way; raise its unexpected error, if any."""
        if self._task is not None:
            # A cancellation of the sender does not undo what its sink has.
            await asyncio.shield(self._task)
            self._task = None

    async def settle(self) -> None:
        """Wait for the commit under way, whatever comes of it; it stays the sender's."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def finish_commit(self) -> None:
        """Wait for the commit under way and log its unexpected error, if any."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if error := self._task.exception():
                logger.error("could not commit cursor for sink %s", self._sink, exc_info=error)
            self._task = None

    async def cancel(self) -> None:
        """Cancel the commit under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _advance(self, ack: Ack) -> None:
        """Retry until the spool has it: stored records are not sent again because a disk is full for a while."""
        while True:
            try:
                await self._spool.advance(self._sink, ack.end, ack.records, ack.size, ack.letters, ack.outcome)
            except LensError as error:
                self._failed(f"the spool: {error}")
                await asyncio.sleep(self._backoff.next_delay())
            else:
                self._backoff.reset()
                return
