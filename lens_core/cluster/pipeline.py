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

import msgspec

from ..base.errors import Overloaded, Unavailable
from ..base.self_metrics import SelfMetrics
from ..delivery.combining import combine_sinks
from ..delivery.erasure import Erasure
from ..delivery.ledger import LedgerStatus
from ..delivery.log import IntakeLog, SpoolStatus
from ..delivery.sending.sender import Sender, SinkSlot, SinkStatus
from ..delivery.spool.batches import NewBatch
from ..delivery.spool.sink_state import Reservation, Reservations
from ..model.processing import Processed, RecordProcessor
from ..model.record_filter import EVERYTHING, RecordFilter
from ..model.records import Record
from ..pipeline.intake import RECORDS_PER_BATCH, Erased, Intake, PipelineStatus, select_records
from ..plugin_api.components import Sink
from ..plugin_api.siblings import Siblings
from .erasures import ErasureMarks, count_waiting, pass_through_owners, read_waiting
from .key_values import KeyValues
from .letters import ClusterLetters
from .log_stream import LogStream
from .messages import IN, MESSAGE_ID, OUT, RECORDS, Part, make_parts, split_records
from .partition import EndProcessor, PartitionWork
from .server_checks import Server

logger = logging.getLogger("lens.cluster")

# Of the time that a deletion may take, the others have this much less, so that their answers come in time.
ANSWER_SECONDS = 1.0


class ErasureQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A deletion, as it is told to the other daemons: forget the workloads, and wait for what is being stored."""

    pipeline: str
    awaited: Sequence[str]
    workload_uids: Sequence[str]
    seconds: float


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
        is_connected = self.stream.connection.is_connected
        return self.stream.refusal or (self.stream.outage if is_connected else "NATS is not connected")

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
        """Marks are made by `ClusterPipeline.erase_records`, which knows the other daemons."""
        raise Unavailable("a log with partitions is not marked by one daemon")

    async def waiting_records(self) -> AsyncIterator[list[Record]]:
        """The readable records of all partitions: what waits for detectors, and what waits for a sink or was just sent.

        Raises Overloaded.
        """
        for kind in (IN, OUT):
            async for _, records in read_waiting(self.stream, kind, {}):
                yield list(records)

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


def _release_nothing(processor: RecordProcessor, *, is_moved: bool) -> None:
    """Processors that hold nothing."""


class ClusterPipeline(Intake):
    """Receives for all partitions; owns and delivers those whose leases this daemon has.

    `end_processor` is told of each processor that has ended; `forget_ended` lets go of what is held of those.
    """

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
        end_processor: EndProcessor = _release_nothing,
        forget_ended: Callable[[], None] = lambda: None,
        read_by_owner: frozenset[type[Record]],
        record_filter: RecordFilter = EVERYTHING,
        siblings: Siblings | None = None,
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
        self.end_processor = end_processor
        self._forget_ended = forget_ended
        self.has_detectors = bool(read_by_owner)
        self.works: dict[int, PartitionWork] = {}
        self.marks = ErasureMarks(keys, stream)
        self._siblings = siblings or Siblings()
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
        """Keep what waits of a deleted workload or run from all sinks, at every daemon, and delete its dead letters.

        Returns when every daemon knows it and its store has answered to what it was sent before. Raises Unavailable
        that names who does not answer; what waits is marked all the same.
        """
        self._ensure_running()
        ends = time.monotonic() + deadline_seconds
        if self.has_detectors:
            await pass_through_owners(self.stream, self._partitions, erasure, deadline_seconds)
        sinks = {slot.name: slot.sink for slot in self.slots}
        waiting, oldest = await count_waiting(self.stream, self.keys, self._partitions, sinks, erasure)
        end = await self.stream.read_last_sequence()
        await self.marks.write_marks(msgspec.structs.replace(erasure, last_batch=end), oldest)
        forgotten = erasure.workload_uids if erasure.run_id is None else ()
        left = max(2 * ANSWER_SECONDS, ends - time.monotonic())
        question = ErasureQuestion(self.name, self.sinks_awaited(store), forgotten, left - ANSWER_SECONDS)
        _, told = await asyncio.gather(
            self.settle_erasure(question),
            self._siblings.ask_siblings(msgspec.msgpack.encode(question), seconds=left),
        )
        if told.silent:
            raise Unavailable(
                f"other daemons may still store what they had: {', '.join(told.silent)}; delete again",
                retry_after_seconds=5,
            )
        return Erased(waiting, await self.dead_letters.erase_letters(erasure))

    async def settle_erasure(self, question: ErasureQuestion) -> None:
        """Know the newest marks, and wait for what is being sent here. Raises Unavailable, Overloaded."""
        self._forget_ended()
        await self.marks.load_marks()
        await self.settle_senders(question.seconds, question.awaited)

    def pipeline_status(self) -> PipelineStatus:
        """For `lens status`: of each sink, what this daemon delivers."""
        statuses: list[SinkStatus] = []
        for slot in self.slots:
            mine = [work.status_of(slot.name) for work in list(self.works.values())]
            statuses.append(
                combine_sinks(
                    slot.name, [one for one in mine if one is not None], self._ledgers_of(slot), required=slot.required
                )
            )
        return self._make_status(statuses)

    def required_sinks(self) -> list[tuple[SinkSlot, SinkStatus]]:
        """The required sinks, each with its status over the partitions that are owned here."""
        statuses = zip(self.slots, self.pipeline_status().sinks, strict=True)
        return [(slot, status) for slot, status in statuses if slot.required]

    def _ledgers_of(self, slot: SinkSlot) -> list[LedgerStatus]:
        """The ledgers of all partitions that were ever owned here."""
        prefix = f"{self.name}/{slot.name}/"
        ledgers = [ledger for name, ledger in self.metrics.ledgers.items() if name.startswith(prefix)]
        return [ledger.ledger_status() for ledger in ledgers]

    async def refresh(self) -> None:
        """Bring what the servers know up to date."""
        before = self.stream.identity, self.stream.input_mark
        try:
            await self.stream.refresh()
            await self.marks.load_marks()
        except Overloaded as error:
            logger.debug("The stream's state is not known. error=%s", error)
        if before != (self.stream.identity, self.stream.input_mark):
            logger.error("A stream of %s was deleted and made anew; what waited in it is lost.", self.stream.name)
            for partition, work in list(self.works.items()):
                await self.begin_partition(partition, work.epoch)

    def lags(self) -> dict[int, int]:
        """Records that were read and wait for a sink, by partition that is owned here."""
        return {partition: work.waiting_records() for partition, work in list(self.works.items())}
