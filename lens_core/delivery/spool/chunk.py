"""Batches on their way into a spool and out of it: what is written, and what a sink gets next of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...model.records import Record
from ...plugin_api.sink_answers import BatchLimits, Position
from .sink_state import SpooledBatch


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

    def keep(self, records: list[Record]) -> None:
        """All records of the body; from now on they stand for it. Segments that were cut before have the body."""
        self.records = records
        self.body = b""

    def cut(self, first: int, last: int) -> Segment:
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
    """The next records of a sink: segments in their order, read when the spool had been mended so often."""

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


def choose(
    batches: Iterable[SpooledBatch], start: Position, limits: BatchLimits, epoch_starts: Sequence[int] = ()
) -> list[tuple[SpooledBatch, int, int]]:
    """Which of the batches make a chunk, each with its first (inclusive) and last (exclusive) record.

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
