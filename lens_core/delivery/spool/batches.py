"""Batches on their way into a spool and out of it: packed, cut into chunks, the newest kept in memory.

Bodies as they lie in the spool: packed by Zstandard, where that makes them smaller.

Rows of one run repeat names and digits: packed, a thousand of them take a fifth of the bytes (a tenth if their values
are regular, a fourth if they are noise). All that is stored is written, synced, copied from the log into the file and
deleted again; packing costs less than doing that with the rest.

Batches on their way into a spool and out of it: what is written, and what a sink gets next of it.

The newest batches of a spool, still in memory: a sender that keeps up asks the disk for nothing.

The spool's file stays the truth: a batch comes here only after its commit, as the bytes that were committed, and is
decoded from them by the first sink that takes it, for all of them, so that a sink gets the same records as after a
restart. What is not here any more is read from the file.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from threading import Lock
from typing import NamedTuple

from ...base.compression import compress, unpack_zstd
from ...base.errors import BadRequest
from ...model.records import Record
from ...plugin_api.sink_answers import BatchLimits, Position
from .sink_state import START, SpooledBatch

# A body below that fits into a page of the file anyway.
WORTH_BYTES = 1024
# The first bytes of a packed body (RFC 8878, 3.1.1); an envelope begins with a map of MessagePack.
_MAGIC = b"\x28\xb5\x2f\xfd"


class Stored(NamedTuple):
    """A body as the spool's file holds it, and what tells whether the disk has changed it."""

    body: bytes
    checksum: int

    @property
    def packed(self) -> bytes | None:
        """The body, if it is packed."""
        return self.body if self.body.startswith(_MAGIC) else None


class Opened(NamedTuple):
    """A body as it was before it was stored; if that cannot be had, what is there, and the `fault`.

    `packed` is the same body by Zstandard, if it was stored so.
    """

    body: bytes
    fault: str = ""
    packed: bytes | None = None


def pack(body: bytes, worth_bytes: float = WORTH_BYTES) -> Stored:
    """A body for the file, packed if it has so many bytes."""
    stored = compress(body, "zstd") if len(body) >= worth_bytes else body
    if len(stored) >= len(body):
        # No envelope looks packed; what does all the same is packed, so that it comes back as it was.
        stored = compress(body, "zstd") if body.startswith(_MAGIC) else body
    return Stored(stored, zlib.crc32(stored))


def unpack(stored: Stored) -> Opened:
    """Return the body that was given to `pack`. Older files hold bodies that are not packed."""
    body = stored.body
    if zlib.crc32(body) != stored.checksum:
        return Opened(body, "the batch has changed on the disk (wrong checksum)")
    if stored.packed is None:
        return Opened(body)
    try:
        return Opened(unpack_zstd(body), packed=body)
    except BadRequest as error:
        return Opened(body, f"the batch cannot be unpacked: {error}")


class NewBatch(NamedTuple):
    """An encoded envelope and how many records it holds."""

    body: bytes
    records: int


class DeadLetter(NamedTuple):
    """One record that a sink will never take, as an envelope, and why."""

    reason: str
    body: bytes


class HeldBatch:
    """One batch: its body until somebody has decoded it, then its records, which nobody may change; packed as well."""

    __slots__ = ("batch", "body", "packed", "records")

    def __init__(self, batch: SpooledBatch, body: bytes, packed: bytes | None) -> None:
        self.batch = batch
        self.body = body
        self.packed = packed
        self.records: list[Record] | None = None

    def keep_records(self, records: list[Record]) -> None:
        """All records of the body; from now on they stand for it. Segments that were cut before have the body."""
        self.records = records
        self.body = b""

    def cut_segment(self, first: int, last: int) -> Segment:
        """A part of the batch, as the file would give it."""
        batch = self.batch
        size = batch.bytes if last == batch.records else 0
        return Segment(
            batch.id, first, last, batch.records, size, batch.created_at, self.body, packed=self.packed, held=self
        )


class Segment(NamedTuple):
    """Records `first` (inclusive) to `last` (exclusive) of one batch; `held` if it was not read from the file.

    `fault` says why `body` is not what was written; `packed` is the whole batch's body as it is stored, if packed.
    """

    batch: int
    first: int
    last: int
    records: int
    size: int
    created_at: float
    body: bytes
    fault: str = ""
    packed: bytes | None = None
    held: HeldBatch | None = None


class Chunk(NamedTuple):
    """The next records of a sink: segments in their order, read when the spool had been repaired so often."""

    start: Position
    end: Position
    segments: list[Segment]
    repairs: int = 0

    @property
    def records(self) -> int:
        """The number of records, readable or not."""
        return sum(segment.last - segment.first for segment in self.segments)

    @property
    def size(self) -> int:
        """Bytes of the batches that end in it."""
        return sum(segment.size for segment in self.segments)


def choose_batches(
    batches: Iterable[SpooledBatch], start: Position, limits: BatchLimits, epoch_starts: Sequence[int] = ()
) -> list[tuple[SpooledBatch, int, int]]:
    """Choose the batches of a chunk, each with its first (inclusive) and last (exclusive) record.

    A chunk ends before the next of the numbers `epoch_starts`, because a sink knows each epoch by another identity.
    """
    wanted: list[tuple[SpooledBatch, int, int]] = []
    records = size = 0
    for batch in batches:
        first = start.offset if batch.id == start.batch else 0
        left = batch.records - first
        if left <= 0:
            continue
        if wanted and (records + left > limits.max_records or size + batch.bytes > limits.max_bytes):
            break
        if wanted and bisect_right(epoch_starts, batch.id) != bisect_right(epoch_starts, wanted[0][0].id):
            break
        last = first + min(left, max(1, limits.max_records))
        wanted.append((batch, first, last))
        records, size = records + last - first, size + batch.bytes
        if records >= limits.max_records or size >= limits.max_bytes:
            break
    return wanted


# Sinks of unequal speed drift apart by some megabytes under load; records take about four times as much as bodies.
MAX_BYTES = 8 * 1024 * 1024


class RecentBatches:
    """Batches in their order without a gap, the newest last; the oldest make room, by the bytes of their bodies.

    The writer's thread adds, the event loop takes and releases.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: deque[HeldBatch] = deque()
        self._bytes = 0
        # Everything in the spool that comes after this place is here.
        self._since = START
        self._lock = Lock()

    def restart(self, since: Position) -> None:
        """Forget everything; what the file holds ends at `since`."""
        with self._lock:
            self._held.clear()
            self._bytes = 0
            self._since = since

    def append_batch(self, batch: SpooledBatch, body: bytes, packed: bytes | None = None) -> None:
        """A batch was committed."""
        with self._lock:
            self._held.append(HeldBatch(batch, body, packed))
            self._bytes += _memory_of(self._held[-1])
            while self._bytes > self._max_bytes:
                self._drop_oldest()

    def drop_passed(self, passed: Position) -> None:
        """Every sink has taken everything up to `passed`."""
        with self._lock:
            while self._held and _end_position(self._held[0]) <= passed:
                self._drop_oldest()

    def chunk(self, sink: str, start: Position, limits: BatchLimits) -> Chunk | None:
        """Return the next records of a sink after `start`, as `read_chunk`; None when the file has to be read."""
        with self._lock:
            if start < self._since:
                return None
            held = {one.batch.id: one for one in dropwhile(lambda one: _end_position(one) <= start, self._held)}
        chosen = choose_batches(_of_sink(sink, held.values()), start, limits)
        if not chosen:
            return None
        segments = [held[batch.id].cut_segment(first, last) for batch, first, last in chosen]
        return Chunk(start, Position(segments[-1].batch, segments[-1].last), segments)

    def _drop_oldest(self) -> None:
        oldest = self._held.popleft()
        self._bytes -= _memory_of(oldest)
        self._since = _end_position(oldest)


def _memory_of(held: HeldBatch) -> int:
    return held.batch.bytes + len(held.packed or b"")


def _end_position(held: HeldBatch) -> Position:
    return Position(held.batch.id, held.batch.records)


def _of_sink(sink: str, held: Iterable[HeldBatch]) -> Iterable[SpooledBatch]:
    return (one.batch for one in held if one.batch.only_sink in ("", sink))
