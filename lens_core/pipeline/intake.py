"""The common part of pipelines, whatever log they write: which records get in, and how they are counted."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from ..base.errors import Overloaded, Unavailable
from ..base.self_metrics import SelfMetrics
from ..delivery.erasure import Erasure
from ..delivery.ledger import Ledger, LedgerStatus
from ..delivery.log import IntakeLog, SpoolStatus
from ..delivery.sending.sender import Sender, SinkSlot, SinkStatus, describe_error
from ..delivery.spool.batches import NewBatch
from ..delivery.spool.sink_state import Reservation
from ..model.processing import Processed, RecordProcessor
from ..model.record_filter import EVERYTHING, Matcher, RecordFilter
from ..model.records import Record, encode_envelope
from ..plugin_api.components import Sink
from .tap import Tap

logger = logging.getLogger("lens.pipeline")

# A batch of a log has at most so many records; more than that is encoded in a thread, batch by batch.
RECORDS_PER_BATCH = 2000


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline: its spool and its sinks."""

    name: str
    spool: SpoolStatus
    sinks: Sequence[SinkStatus]
    ledger: LedgerStatus
    accepted_per_second: float
    processor_errors: int
    last_processor_error: str


class Erased(NamedTuple):
    """The records of a deleted workload or run that waited in a pipeline's spool, and that were its dead letters."""

    waiting: int
    dead_letters: int


class LetterBox(Protocol):
    """The dead letters of a pipeline, as the API shows and replays them."""

    async def reasons(self, sink: str = "", *, limit: int = 100) -> Sequence[Any]:
        """The reasons for which a sink (or any) refused records, with how many each."""
        ...

    async def replay_letters(self, sink: str) -> int:
        """Send the dead letters of a sink again; returns the number of records."""
        ...


class Intake(ABC):
    """Filters and counts records under a pipeline's name; how they are stored is a subclass's affair."""

    dead_letters: LetterBox
    # Whether other daemons write and read the same log.
    is_shared: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        log: IntakeLog,
        slots: Sequence[SinkSlot],
        *,
        metrics: SelfMetrics,
        has_processor: bool,
        record_filter: RecordFilter = EVERYTHING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.log = log
        self.slots = list(slots)
        self.ledger = Ledger.for_component(f"pipeline/{name}", metrics, rated="accepted", drops=("spool_full",))
        self.matcher = Matcher(record_filter)
        # Detectors see what a filter of kinds would drop: a step that is wanted may come out of a line that is not.
        self.entrance = Matcher(RecordFilter(labels=record_filter.labels)) if has_processor else self.matcher
        self.processor_errors = 0
        self.last_processor_error = ""
        self.tap: Tap | None = None
        self._metrics = metrics
        self._clock = clock
        self._wanted_kinds = {kind for slot in slots for kind in Matcher(slot.filter, tuple(slot.sink.accepts)).kinds}
        self._spooled = Matcher(EVERYTHING, tuple(self._wanted_kinds) if slots else (Record,))
        self._open = False

    @property
    @abstractmethod
    def senders(self) -> Sequence[Sender]:
        """The senders that deliver here now."""

    @property
    def is_required(self) -> bool:
        """Whether any of its sinks must get everything."""
        return any(slot.required for slot in self.slots)

    def wants(self, kind: type[Record]) -> bool:
        """Whether records of this kind get in and any sink takes them."""
        return kind in self.matcher.kinds and kind in self._wanted_kinds

    def can_take(self, kind: type[Record]) -> bool:
        """Whether any sink takes records of this kind, but for what filters say."""
        return any(kind in slot.sink.accepts for slot in self.slots)

    @abstractmethod
    async def start(self) -> None:
        """Open the log and begin to deliver; raises LensError."""

    @abstractmethod
    async def stop(self, deadline_seconds: float = 5.0) -> None:
        """Take nothing more and deliver what can be delivered within the deadline."""

    @abstractmethod
    async def reserve(self, records: Sequence[Record]) -> Reservation:
        """Keep room for these. Raises Overloaded if there is none."""

    @abstractmethod
    async def submit(self, records: Sequence[Record], reservation: Reservation | None = None) -> None:
        """Return when the log holds the records. Raises Overloaded when it cannot take them now."""

    def sinks_awaited(self, store: Sink | None) -> list[str]:
        """The names of the sinks whose answer a deletion awaits: the store's, every one's without a store."""
        return [slot.name for slot in self.slots if store is None or slot.sink is store]

    @abstractmethod
    async def erase_records(self, erasure: Erasure, deadline_seconds: float, store: Sink | None = None) -> Erased:
        """Keep what waits of a deleted workload or run from all sinks. Raises Unavailable."""

    @abstractmethod
    def pipeline_status(self) -> PipelineStatus:
        """For `lens status`; brings ledgers and gauges up to date."""

    def refresh_metrics(self) -> None:
        """Bring the gauges up to date; before they are read."""
        if self._open:
            self.pipeline_status()

    def ensure_room(self) -> None:
        """Raise Overloaded if a submission would certainly be refused."""
        self._ensure_running()
        self.log.ensure_room()

    def _ensure_running(self) -> None:
        if not self._open:
            raise Overloaded("the pipeline is not running")

    def run_processor(self, processor: RecordProcessor, records: Sequence[Record]) -> Processed:
        """The processor's answer; if it fails, the records go on as they came."""
        try:
            return processor.process(records)
        except Exception as error:
            self.processor_errors += 1
            self.last_processor_error = describe_error(error)
            logger.exception("pipeline %s: a processor failed", self.name)
            processor.rollback()
            return Processed(records=records)

    def count_lost(self, records: Sequence[Record], reason: str) -> None:
        """Count records that this pipeline could not take and that nobody has to keep for it."""
        wanted = len(self._select(records))
        logger.debug("pipeline %s has only optional sinks and drops records: %s", self.name, reason)
        self.ledger.count("received", len(records))
        self.ledger.count("filtered", len(records) - wanted)
        self.ledger.drop("spool_full", wanted)

    async def settle_senders(self, deadline_seconds: float, awaited: Collection[str]) -> None:
        """Return when what sinks have answered is committed, and what is being sent to those that are `awaited`.

        Raises Unavailable when that does not come within the deadline.
        """
        settling = [
            asyncio.ensure_future(sender.settle(waits_for_answer=sender.slot.name in awaited))
            for sender in self.senders
        ]
        if settling:
            _, late = await asyncio.wait(settling, timeout=deadline_seconds)
            for task in late:
                task.cancel()
            if late:
                raise Unavailable("a sink is still storing what was sent before; delete again", retry_after_seconds=5)

    def _select(self, records: Sequence[Record]) -> list[Record]:
        return select_records(self.entrance, records)

    def _count_records(self, received: int, filtered: int, accepted: int) -> None:
        self.ledger.count("received", received)
        self.ledger.count("filtered", filtered)
        self.ledger.count("accepted", accepted)

    def _make_status(self, sinks: Sequence[SinkStatus]) -> PipelineStatus:
        spool = self.log.spool_status()
        self._metrics.spool_bytes.labels(pipeline=self.name).set(spool.bytes)
        return PipelineStatus(
            name=self.name,
            spool=spool,
            sinks=sinks,
            ledger=self.ledger.ledger_status(),
            accepted_per_second=self.ledger.rate.per_second(),
            processor_errors=self.processor_errors,
            last_processor_error=self.last_processor_error,
        )


def select_records(matcher: Matcher, records: Sequence[Record]) -> list[Record]:
    """The records that a matcher lets through."""
    return matcher.select(list(records))


def encode_batches(records: Sequence[Record], received_at: float) -> list[NewBatch]:
    """Encode records as envelopes of at most `RECORDS_PER_BATCH`."""
    pieces = (records[first : first + RECORDS_PER_BATCH] for first in range(0, len(records), RECORDS_PER_BATCH))
    return [NewBatch(encode_envelope(piece, received_at), len(piece)) for piece in pieces]
