"""A pipeline of several daemons: any of them receives, one owns each partition and delivers it.

receiver ─▶ filter ─┬▶ in ─▶ owner: detectors ─▶ out.owner ─┬▶ sender ─▶ sink
                    └▶ out.rows (what no detector reads) ───┴▶ sender ─▶ sink
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import ClassVar

from ..base.errors import Overloaded, Unavailable
from ..base.self_metrics import SelfMetrics
from ..delivery.erasure import Erasure
from ..delivery.ledger import LedgerStatus
from ..delivery.log import IntakeLog
from ..delivery.sending.sender import Sender, SinkSlot, SinkStatus
from ..delivery.spool.batches import NewBatch
from ..delivery.spool.sink_state import Reservation, Reservations
from ..delivery.spool.spool import SpoolStatus
from ..model.processing import Processed, RecordProcessor
from ..model.record_filter import EVERYTHING, RecordFilter
from ..model.records import Record
from ..pipeline.intake import RECORDS_PER_BATCH, Erased, Intake, PipelineStatus, select_records
from ..plugin_api.components import Sink
from .key_values import KeyValues
from .letters import ClusterLetters
from .log_stream import LogStream
from .messages import MESSAGE_ID, RECORDS, Part, make_parts, split_records
from .partition import PartitionWork, combine_statuses
from .server_checks import Server

logger = logging.getLogger("lens.cluster")

NOT_DELETED = (
    "deleting is not supported with a cluster yet: what waits in the log would come back; stop sending, wait until"
    " nothing waits, and delete with a daemon without `cluster:` on the same database"
)


class ClusterLog(IntakeLog):
    """The writing half of the log, as `delivery.log.IntakeLog`: JetStream says itself whether there is room."""

    def __init__(self, stream: LogStream) -> None:
        self.stream = stream

    @property
    def is_durable(self) -> bool:
        """The log is on the servers' disks."""
        return True

    @property
    def free_bytes(self) -> int:
        """The bytes up to the stream's limit, as last seen."""
        return max(0, self.stream.max_bytes - self.stream.bytes)

    def ensure_room(self) -> None:
        """Nothing is known beforehand: the next message tells."""

    def why_full(self) -> str:
        """Why the last message was refused, or the next one would be."""
        return self.stream.refusal or ("" if self.stream.connection.is_connected else "NATS is not connected")

    async def reserve(self, batches: Sequence[NewBatch]) -> Reservation:
        """No bytes can be kept at the servers; what one pipeline refuses is repeated, and known to the others."""
        return Reservation(Reservations(), 0)

    async def append_all(
        self,
        batches: Sequence[NewBatch],
        *,
        state: Mapping[str, bytes | None] | None = None,
        only_sink: str = "",
        reservation: Reservation | None = None,
    ) -> None:
        """Records go in by `ClusterPipeline.submit`, which knows their partitions."""
        raise Unavailable("whole batches are not appended to a log with partitions")

    async def erase_batches(self, erasure: Erasure) -> None:
        """Refuse: see NOT_DELETED."""
        raise Unavailable(NOT_DELETED)

    async def waiting_records(self) -> AsyncIterator[list[Record]]:
        """Refuse: see NOT_DELETED."""
        raise Unavailable(NOT_DELETED)
        yield []

    def spool_status(self) -> SpoolStatus:
        """For `lens status`: the stream as last seen."""
        return SpoolStatus(
            kind="jetstream",
            path="",
            spool_id=self.stream.identity,
            bytes=self.stream.bytes,
            max_bytes=self.stream.max_bytes,
            file_bytes=self.stream.bytes,
            dead_letters=0,
            dead_letters_discarded=0,
        )


class ClusterPipeline(Intake):
    """Receives for all partitions; owns and delivers those whose leases this daemon has."""

    dead_letters: ClusterLetters
    is_shared: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        stream: LogStream,
        keys: KeyValues,
        servers: dict[str, Server],
        slots: Sequence[SinkSlot],
        *,
        metrics: SelfMetrics,
        make_processor: Callable[[], RecordProcessor | None],
        read_by_owner: frozenset[type[Record]],
        record_filter: RecordFilter = EVERYTHING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            name,
            ClusterLog(stream),
            slots,
            metrics=metrics,
            has_processor=bool(read_by_owner),
            record_filter=record_filter,
            clock=clock,
        )
        self.stream = stream
        self.keys = keys
        self.metrics = metrics
        self.make_processor = make_processor
        self.has_detectors = bool(read_by_owner)
        self.works: dict[int, PartitionWork] = {}
        self.dead_letters = ClusterLetters(stream, [slot.name for slot in slots])
        self._servers = servers
        self._read_by_owner = read_by_owner
        self._partitions = stream.connection.settings.partitions

    @property
    def senders(self) -> Sequence[Sender]:
        """One for each sink and partition that is owned here."""
        return [sender for work in self.works.values() for sender in work.senders]

    async def start(self) -> None:
        """Open the stream; partitions come with their leases. Raises LensError."""
        await self.stream.ensure_streams(self._servers)
        self._open = True

    async def stop(self, deadline_seconds: float = 5.0) -> None:
        """Take nothing more; the partitions were given to others before."""
        self._open = False
        for partition in list(self.works):
            await self.end_partition(partition, deadline_seconds=deadline_seconds)

    async def begin_partition(self, partition: int, epoch: int) -> None:
        """Own a partition from now on."""
        work = self.works[partition] = PartitionWork(self, partition, epoch, self.works.get(partition))
        work.start()

    async def end_partition(self, partition: int, *, deadline_seconds: float) -> None:
        """Own it no more: what is being sent may end within the deadline."""
        work = self.works.get(partition)
        if work is not None:
            await work.stop(deadline_seconds)
            if self.works.get(partition) is work:
                del self.works[partition]

    async def reserve(self, records: Sequence[Record]) -> Reservation:
        """Keep nothing: see `ClusterLog.reserve`. Raises Overloaded while the pipeline is not open."""
        self._ensure_running()
        return await self.log.reserve([])

    async def submit(self, records: Sequence[Record], reservation: Reservation | None = None) -> None:
        """Return when a majority of the servers has all messages on disk. Raises Overloaded.

        What was written before the one that failed is known by its identity when the sender repeats it.
        """
        self._ensure_running()
        wanted = self._select(records)
        sorted_ = split_records(wanted, self._partitions, self._read_by_owner)
        unwanted = len(records) - len(wanted)
        parts: list[Part] = []
        shown: list[Record] = []
        for (partition, kind), some in sorted_.items():
            kept = some if kind == "in" else select_records(self.matcher, some)
            unwanted += len(some) - len(kept)
            shown += kept if kind != "in" else []
            stored = kept if kind == "in" else self._spooled.select(kept)
            for first in range(0, len(stored), RECORDS_PER_BATCH):
                piece = stored[first : first + RECORDS_PER_BATCH]
                parts += make_parts(partition, kind, piece, self.stream.connection.max_payload)
        await self._append_parts(parts)
        if self.tap is not None and shown:
            self.tap.publish(self.name, shown)
        self._count_records(len(records), unwanted, len(records) - unwanted)

    async def _append_parts(self, parts: Sequence[Part]) -> None:
        outcomes = await asyncio.gather(
            *(
                self.stream.append_to(
                    part.partition, part.kind, part.body, {MESSAGE_ID: part.message_id, RECORDS: str(len(part.records))}
                )
                for part in parts
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def keep_processed(self, done: Processed) -> list[Record]:
        """The records of an owner's result that go on, counted and shown to `lens tap`."""
        out = select_records(self.matcher, done.records)
        self.ledger.count("derived", done.derived)
        self.ledger.count("merged", done.merged)
        if self.tap is not None and out:
            self.tap.publish(self.name, out)
        kept: list[Record] = self._spooled.select(out)
        return kept

    async def erase_records(self, erasure: Erasure, deadline_seconds: float, store: Sink | None = None) -> Erased:
        """Refuse: see NOT_DELETED."""
        raise Unavailable(NOT_DELETED)

    def pipeline_status(self) -> PipelineStatus:
        """For `lens status`: of each sink, what this daemon delivers."""
        statuses: list[SinkStatus] = []
        for slot in self.slots:
            mine = [work.status_of(slot.name) for work in list(self.works.values())]
            statuses.append(combine_statuses(slot, [one for one in mine if one is not None], self._ledgers_of(slot)))
        return self._make_status(statuses)

    def _ledgers_of(self, slot: SinkSlot) -> list[LedgerStatus]:
        """The ledgers of all partitions that were ever owned here."""
        prefix = f"{self.name}/{slot.name}/"
        ledgers = [ledger for name, ledger in self.metrics.ledgers.items() if name.startswith(prefix)]
        return [ledger.ledger_status() for ledger in ledgers]

    async def refresh(self) -> None:
        """Bring what the servers know up to date."""
        try:
            await self.stream.refresh()
        except Overloaded as error:
            logger.debug("The stream's state is not known. error=%s", error)

    def lags(self) -> dict[int, int]:
        """Records that were read and wait for a sink, by partition that is owned here."""
        return {partition: work.waiting_records() for partition, work in list(self.works.items())}
