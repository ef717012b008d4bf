"""The log between intake and sinks, as a protocol: what a pipeline and its senders ask of a spool.

`spool/` implements it with SQLite for one daemon, `lens_core/cluster/` with JetStream for several.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec

from ..model.records import Record
from ..plugin_api.sink_answers import BatchLimits, Position
from .erasure import Erasure
from .processing_marks import ProcessingMarks
from .spool.batches import Chunk, DeadLetter, NewBatch
from .spool.file import Epoch
from .spool.sink_state import Outcome, Reservation, SinkState


class SpoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a spool: bytes of its batches, as stored; its limit; what the file takes on the disk."""

    kind: str
    path: str
    spool_id: str
    bytes: int
    max_bytes: int
    file_bytes: int
    dead_letters: int
    dead_letters_discarded: int


class SinkLog(Protocol):
    """The reading half: a sender takes chunks in their order and reports the outcome of each record."""

    marks: ProcessingMarks

    @property
    def is_durable(self) -> bool:
        """Whether what it holds survives the process."""
        ...

    @property
    def erasures(self) -> Sequence[Erasure]:
        """The deleted workloads and runs of which records may still wait."""
        ...

    @property
    def epoch(self) -> int:
        """The number of the lease under which it is read, growing with each owner; 0 where nobody else can read it."""
        ...

    def sink_state(self, sink: str) -> SinkState:
        """Counts of a sink; raises KeyError for one that was not registered."""
        ...

    def identity_at(self, position: Position) -> str:
        """The identity that sinks know the batch at this position by."""
        ...

    def earlier_epochs(self) -> Sequence[Epoch]:
        """The epochs of which a sink may have batches already, the oldest first."""
        ...

    def wake_event(self, sink: str, records: int = 1, size: int = 1) -> asyncio.Event:
        """An event that is set once so many records, or so many bytes, wait for a sink."""
        ...

    def wake_sink(self, sink: str) -> None:
        """Set a sink's event whatever waits for it."""
        ...

    async def peek(self, sink: str, limits: BatchLimits) -> Chunk | None:
        """Return the next chunk of a sink without handing it out; None when there is none."""
        ...

    def hand_out(self, sink: str, chunk: Chunk) -> bool:
        """Hand out what was peeked at; False when it is not what comes next any more."""
        ...

    async def return_batches(self, sink: str) -> None:
        """Offer a sink again the records that were handed out and not accounted for. Raises LensError."""
        ...

    async def advance(
        self,
        sink: str,
        end: Position,
        records: int,
        size: int = 0,
        dead_letters: Sequence[DeadLetter] = (),
        outcome: Outcome | None = None,
    ) -> None:
        """Everything up to `end` is done: `records` of them with this outcome. Raises LensError."""
        ...

    def was_overtaken(self, sink: str, end: Position) -> bool:
        """Whether all that was handed out up to `end` need not be sent again."""
        ...

    async def skip_to(self, sink: str, position: Position, epoch: Epoch) -> int:
        """Move a sink's cursor forward to where the sink says it is; returns how many records that passes."""
        ...


class IntakeLog(Protocol):
    """The writing half: a pipeline appends batches, with the state that its detectors changed."""

    @property
    def is_durable(self) -> bool:
        """Whether what it holds survives the process."""
        ...

    @property
    def free_bytes(self) -> int:
        """The bytes that it may still hold before it is full."""
        ...

    def ensure_room(self) -> None:
        """Raise Overloaded if an append would certainly be refused."""
        ...

    def why_full(self) -> str:
        """Why the last append was refused; '' while appends are taken."""
        ...

    async def reserve(self, batches: Sequence[NewBatch]) -> Reservation:
        """Keep room for batches that come next; raises Overloaded if they would be refused now."""
        ...

    async def append_all(
        self,
        batches: Sequence[NewBatch],
        *,
        state: Mapping[str, bytes | None] | None = None,
        only_sink: str = "",
        reservation: Reservation | None = None,
    ) -> None:
        """Write batches and state in one step; returns when they are durable. Raises Overloaded."""
        ...

    async def erase_batches(self, erasure: Erasure) -> None:
        """Mark what waits now of a deleted workload or run; it is not sent any more."""
        ...

    def waiting_records(self) -> AsyncIterator[list[Record]]:
        """The readable records that some sink has not passed, batch by batch."""
        ...

    def spool_status(self) -> SpoolStatus:
        """For `lens status`."""
        ...
