"""Batches, as a sink receives them, and the answers that it can give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from ..model.records import Record


class Position(NamedTuple):
    """A place in a spool: `offset` records of batch number `batch` are done, and all batches before it."""

    batch: int
    offset: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one spool in their order, from `start` (exclusive) to `end` (inclusive).

    `spool_id` is how a sink that keeps its own position knows the spool; each start of a daemon gives its batches
    another. `packed` (since API 1.2) are the same records as an envelope in the content encoding `zstd`, where the
    spool has them so; None where they would have to be packed for it. `epoch` (since API 1.3) grows with each daemon
    that takes the delivery of this spool over from another, which may still be alive; 0 where only one daemon reads it.
    """

    records: Sequence[Record]
    start: Position
    end: Position
    spool_id: str
    pipeline: str
    sink: str
    attempt: int = 1
    packed: bytes | None = None
    epoch: int = 0


class Delivered(msgspec.Struct, frozen=True):
    """Everything is stored for good; `filtered` of the records were not for this sink."""

    filtered: int = 0


class Retry(msgspec.Struct, frozen=True):
    """Nothing is known to be stored; the same batch comes again, not before `after_seconds` if that is given.

    `timed_out`: the other side did not manage it in time, so that smaller batches are tried. Since API 1.3.
    """

    reason: str
    after_seconds: float | None = None
    timed_out: bool = False


class Rejected(msgspec.Struct, frozen=True):
    """The records at these indexes will never be taken (index to reason); all others are stored for good.

    Of a record that was stored in part, `parts` has what was not: that becomes the dead letter, instead of the whole.
    """

    items: Mapping[int, str]
    filtered: int = 0
    parts: Mapping[int, Record] = {}


class Poisoned(msgspec.Struct, frozen=True):
    """Something in the batch will never be taken and nothing was stored; the delivery finds out what, by halves."""

    reason: str


Answer: TypeAlias = Delivered | Retry | Rejected | Poisoned


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a sink's batch: records, bytes (encoded, not packed), and the age of its oldest record."""

    max_records: Annotated[int, Meta(ge=1, description="so many records make a batch")] = 10_000
    max_bytes: Annotated[int, Meta(ge=1, description="so many bytes make a batch, encoded, not packed")] = (
        8 * 1024 * 1024
    )
    max_wait_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="a batch that is not full is sent when its oldest record waits so long")
    ] = 0.2
