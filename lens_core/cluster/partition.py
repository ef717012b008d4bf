"""The work of one partition's owner: its detectors, a sender for each sink, and deletion of what nobody needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base.errors import LensError
from ..delivery.ledger import LedgerStatus
from ..delivery.sending.sender import Sender, SinkSlot, SinkStatus
from .connection import Fenced
from .messages import IN, OWNER, ROWS
from .owner import PartitionOwner
from .partition_log import PartitionLog
from .tasks import cancel_tasks

if TYPE_CHECKING:
    from .pipeline import ClusterPipeline

logger = logging.getLogger("lens.cluster")

TRIM_SECONDS = 5.0
RETRY_SECONDS = 1.0
RELEASE_SECONDS = 3.0


class PartitionWork:
    """Runs from the lease's begin to its end."""

    def __init__(
        self, pipeline: ClusterPipeline, partition: int, epoch: int, previous: PartitionWork | None = None
    ) -> None:
        self.senders: list[Sender] = []
        self.owner: PartitionOwner | None = None
        self.error = ""
        self._pipeline = pipeline
        self._partition = partition
        self._epoch = epoch
        self._logs: list[PartitionLog] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._trimmed: dict[str, int] = {}
        self._previous = previous
        self._ended: asyncio.Task[None] | None = None

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
        if self.owner is not None and deadline_seconds > 0:
            try:
                await asyncio.wait_for(self.owner.write_snapshot(), RELEASE_SECONDS)
            except (LensError, TimeoutError, asyncio.TimeoutError) as error:
                logger.debug("No last snapshot. partition=%d error=%s", self._partition, error)

    async def _deliver(self) -> None:
        """Start a sender for each sink once its position is known."""
        pipeline = self._pipeline
        await self._wait_for_previous()
        for slot in pipeline.slots:
            log = PartitionLog(pipeline.stream, self._partition, slot.name, self._epoch, pipeline.keys)
            while True:
                try:
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
            processor = await asyncio.to_thread(pipeline.make_processor)
            if processor is None:
                return
            self.owner = PartitionOwner(
                pipeline.stream,
                self._partition,
                self._epoch,
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
            await asyncio.sleep(TRIM_SECONDS)
            try:
                await self.trim_log()
            except LensError as error:
                logger.debug("Nothing was trimmed. partition=%d error=%s", self._partition, error)

    async def trim_log(self) -> None:
        """Delete what every sink has and no owner needs. Raises Overloaded."""
        if len(self._logs) == len(self._pipeline.slots) and self._logs:
            passed = min(log.passed for log in self._logs)
            await self._trim_before(ROWS, passed + 1)
            if self.owner is not None and self.owner.is_loaded:
                await self._trim_before(OWNER, min(passed + 1, self.owner.covered + 1, self.owner.last))
        if self.owner is not None and self.owner.is_loaded:
            sequence, offset = self.owner.input
            await self._trim_before(IN, sequence if offset else sequence + 1)

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


_WORST = ("starting", "stopped", "idle", "sending", "retrying", "failing")


def combine_statuses(slot: SinkSlot, statuses: Sequence[SinkStatus], ledgers: Sequence[LedgerStatus]) -> SinkStatus:
    """The status of a sink over all partitions that are owned here: sums, and the worst state."""
    failed = max(statuses, key=lambda one: one.last_error_at or 0.0, default=None)
    successes = [one.last_success_at for one in statuses if one.last_success_at is not None]
    return SinkStatus(
        name=slot.name,
        required=slot.required,
        state=max((one.state for one in statuses), key=_WORST.index, default="idle"),
        pending_records=sum(one.pending_records for one in statuses),
        pending_bytes=sum(one.pending_bytes for one in statuses),
        lag_seconds=max((one.lag_seconds for one in statuses), default=0.0),
        delivered_per_second=sum(one.delivered_per_second for one in statuses),
        retries=sum(one.retries for one in statuses),
        failures_in_a_row=max((one.failures_in_a_row for one in statuses), default=0),
        last_error=failed.last_error if failed is not None else "",
        last_error_at=failed.last_error_at if failed is not None else None,
        last_success_at=max(successes, default=None),
        dead_letters=sum(one.dead_letters for one in statuses),
        ledger=_combine_ledgers(slot.name, ledgers),
        dead_letter_reason=next((one.dead_letter_reason for one in statuses if one.dead_letter_reason), ""),
    )


def _combine_ledgers(component: str, ledgers: Sequence[LedgerStatus]) -> LedgerStatus:
    names = ("received", "accepted", "recovered", "merged", "derived", "delivered", "filtered", "discarded")
    losses = [ledger.last_loss_at for ledger in ledgers if ledger.last_loss_at is not None]
    return LedgerStatus(
        component=component,
        rejected=_sum_reasons([ledger.rejected for ledger in ledgers]),
        dropped=_sum_reasons([ledger.dropped for ledger in ledgers]),
        last_loss_at=max(losses, default=None),
        **{name: sum(getattr(ledger, name) for ledger in ledgers) for name in names},
    )


def _sum_reasons(counts: Sequence[object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in counts:
        assert isinstance(one, dict)
        for reason, count in one.items():
            found[reason] = found.get(reason, 0) + count
    return found
