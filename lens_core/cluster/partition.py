"""The work of one partition's owner: its detectors, a sender for each sink, and deletion of what nobody needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from ..base.errors import LensError
from ..base.self_metrics import SelfMetrics
from ..delivery.sending.sender import Sender, SinkSlot, SinkStatus
from ..model.processing import Processed, RecordProcessor
from ..model.records import Record
from .connection import Fenced
from .erasures import ErasureMarks, keeps_position
from .key_values import KeyValues
from .log_stream import LogStream
from .messages import IN, OWNER, ROWS
from .owner import PartitionOwner
from .partition_log import PartitionLog
from .tasks import cancel_tasks

logger = logging.getLogger("lens.cluster")

TRIM_SECONDS = 5.0
CROWDED_TRIM_SECONDS = 0.5
RETRY_SECONDS = 1.0
RELEASE_SECONDS = 3.0


class EndProcessor(Protocol):
    """Called when a processor has ended; `is_moved`: in order, its partition goes to another daemon."""

    def __call__(self, processor: RecordProcessor, *, is_moved: bool) -> None:
        """Release what it holds beside its state."""


class OwnedPipeline(Protocol):
    """The parts of a pipeline that the work of a partition needs; `pipeline.ClusterPipeline`."""

    name: str
    slots: list[SinkSlot]
    stream: LogStream
    keys: KeyValues
    marks: ErasureMarks
    metrics: SelfMetrics
    has_detectors: bool
    make_processor: Callable[[], RecordProcessor | None]
    end_processor: EndProcessor

    def run_processor(self, processor: RecordProcessor, records: Sequence[Record]) -> Processed:
        """The processor's answer; if it fails, the records go on as they came."""

    def keep_processed(self, done: Processed) -> list[Record]:
        """The records of an owner's result that go on, counted and shown to `lens tap`."""


class PartitionWork:
    """Runs from the lease's begin to its end."""

    def __init__(
        self, pipeline: OwnedPipeline, partition: int, epoch: int, previous: PartitionWork | None = None
    ) -> None:
        self.senders: list[Sender] = []
        self.owner: PartitionOwner | None = None
        self.error = ""
        self._pipeline = pipeline
        self._partition = partition
        self.epoch = epoch
        self._logs: list[PartitionLog] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._trimmed: dict[str, int] = {}
        self._previous = previous
        self._ended: asyncio.Task[None] | None = None
        self._processor: RecordProcessor | None = None

    def start(self) -> None:
        """Begin, beside whoever asks."""
        name = f"{self._pipeline.name}/{self._partition}"
        self._tasks = [
            asyncio.create_task(self._deliver(), name=f"delivery of {name}"),
            asyncio.create_task(self._trim_repeatedly(), name=f"trimming of {name}"),
        ]
        if self._pipeline.has_detectors:
            self._tasks.append(asyncio.create_task(self._own(), name=f"owner of {name}"))

    async def stop(self, deadline_seconds: float) -> None:
        """End, once, whoever asks; returns when it has ended."""
        if self._ended is None:
            self._ended = asyncio.create_task(self._stop(deadline_seconds), name=f"end of {self._partition}")
        await asyncio.shield(self._ended)

    async def _stop(self, deadline_seconds: float) -> None:
        """Stop all parts; with time, account for what is being sent and write the state for the next owner."""
        await cancel_tasks(self._tasks)
        for log in self._logs:
            await log.stop_reading()
        await asyncio.gather(*(sender.stop(deadline_seconds) for sender in self.senders))
        for log, sender in self._pairs():
            log.hand_over()
            sender.ledger.close(sender.take_snapshot().pending.records)
        if deadline_seconds > 0:
            try:
                await asyncio.wait_for(self._keep_for_next(), RELEASE_SECONDS)
            except (LensError, TimeoutError, asyncio.TimeoutError) as error:
                logger.debug("No last snapshot or position. partition=%d error=%s", self._partition, error)
        self._end_processor(is_moved=deadline_seconds > 0)

    async def _keep_for_next(self) -> None:
        for log in self._logs:
            await log.keep_position()
        if self.owner is not None:
            await self.owner.write_snapshot()

    def _end_processor(self, *, is_moved: bool) -> None:
        if self._processor is not None:
            self._pipeline.end_processor(self._processor, is_moved=is_moved)
            self._processor = None

    async def _deliver(self) -> None:
        """Start a sender for each sink once its position is known."""
        pipeline = self._pipeline
        await self._wait_for_previous()
        for slot in pipeline.slots:
            log = PartitionLog(
                pipeline.stream,
                self._partition,
                slot.name,
                self.epoch,
                pipeline.keys,
                pipeline.marks,
                required=slot.required,
                is_kept_by_sink=keeps_position(slot.sink),
            )
            while True:
                try:
                    await pipeline.marks.load_marks()
                    await log.find_position()
                    break
                except LensError as error:
                    self.error = str(error)
                    await asyncio.sleep(RETRY_SECONDS)
            sender = Sender(slot, log, pipeline.name, pipeline.metrics, part=str(self._partition))
            self._logs.append(log)
            self.senders.append(sender)
            sender.start()

    async def _wait_for_previous(self) -> None:
        """Wait until this daemon's work under an earlier lease has ended."""
        if self._previous is not None:
            await self._previous.stop(0.0)
            self._previous = None

    async def _own(self) -> None:
        """Run the detectors; begin again when the log could not be read, or somebody had written in between."""
        pipeline = self._pipeline
        await self._wait_for_previous()
        while True:
            self._end_processor(is_moved=False)
            processor = self._processor = await asyncio.to_thread(pipeline.make_processor)
            if processor is None:
                return
            self.owner = PartitionOwner(
                pipeline.stream,
                self._partition,
                self.epoch,
                processor,
                process=pipeline.run_processor,
                keep=pipeline.keep_processed,
            )
            try:
                await self.owner.own_partition()
            except Fenced:
                logger.info("Another daemon wrote partition %s; taking it over anew.", self._partition)
            except LensError as error:
                self.error = str(error)
                logger.warning("Partition %s is not read yet: %s", self._partition, error)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
                logger.exception("The owner of partition %s failed and begins again.", self._partition)
            await asyncio.sleep(RETRY_SECONDS)

    async def _trim_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(CROWDED_TRIM_SECONDS if self._pipeline.stream.is_crowded else TRIM_SECONDS)
            try:
                await self.trim_log()
            except LensError as error:
                logger.debug("Nothing was trimmed. partition=%d error=%s", self._partition, error)

    async def trim_log(self) -> None:
        """Keep positions, and delete what every sink has and no owner needs. Raises Fenced, Overloaded."""
        has_skipped = False
        for log in self._logs:
            await log.keep_position()
        if len(self._logs) == len(self._pipeline.slots) and self._logs:
            has_skipped = self._skip_optional()
            passed = min(log.passed for log in self._logs)
            await self._trim_before(ROWS, passed + 1)
            if self.owner is not None and self.owner.is_loaded:
                await self._trim_before(OWNER, min(passed + 1, self.owner.covered + 1, self.owner.last))
        if self.owner is not None and self.owner.is_loaded:
            sequence, offset = self.owner.input
            await self._trim_before(IN, sequence if offset else sequence + 1)
        if has_skipped:  # so that no more is dropped than makes room
            await self._pipeline.stream.refresh()

    def _skip_optional(self) -> bool:
        """Drop the oldest of what only optional sinks have not passed, if the log is nearly full; whether it is."""
        if not self._pipeline.stream.is_crowded:
            return False
        required = [log.passed for log, sender in self._pairs() if sender.slot.required]
        for log, sender in self._pairs():
            if not sender.slot.required and (not required or log.passed < min(required)):
                log.skip_oldest()
        return True

    async def _trim_before(self, kind: str, before: int) -> None:
        if before > self._trimmed.get(kind, 1):
            await self._pipeline.stream.trim(self._partition, kind, before)
            self._trimmed[kind] = before

    def waiting_records(self) -> int:
        """Records that were read and wait for a sink."""
        return sum(log.sink_state(sender.slot.name).pending().records for log, sender in self._pairs())

    def _pairs(self) -> list[tuple[PartitionLog, Sender]]:
        return list(zip(self._logs, self.senders, strict=True))

    def status_of(self, sink: str) -> SinkStatus | None:
        """The status of a sink's sender here; None until it has started."""
        return next((sender.sink_status() for sender in self.senders if sender.slot.name == sink), None)
