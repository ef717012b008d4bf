"""The path from a source's ingest gate to the sinks: filter, detectors, spool, one sender per sink.

gate ─▶ filter ─▶ processor (detectors, log streams) ─▶ spool ─┬▶ sender ─▶ sink
                      its state in the same transaction         └▶ sender ─▶ sink
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from ..base.self_metrics import SelfMetrics
from ..delivery.dead_letters import DeadLetters
from ..delivery.erasure import Erasure
from ..delivery.sending.sender import Sender, SinkSlot
from ..delivery.spool.sink_state import Reservation
from ..delivery.spool.spool import Spool
from ..model.processing import Processed, RecordProcessor
from ..model.record_filter import EVERYTHING, RecordFilter
from ..model.records import Record
from ..plugin_api.components import Sink
from .intake import RECORDS_PER_BATCH, Erased, Intake, PipelineStatus, encode_batches, select_records

logger = logging.getLogger("lens.pipeline")

# A spool with so much left is not asked whether it has room: no submission is that large.
ROOMY_BYTES = 256 * 1024 * 1024


class Pipeline(Intake):
    """Filter, processor, spool and sinks under one name. The sinks are started and stopped by the host."""

    dead_letters: DeadLetters

    def __init__(
        self,
        name: str,
        spool: Spool,
        sinks: Sequence[SinkSlot],
        *,
        metrics: SelfMetrics,
        processor: RecordProcessor | None = None,
        record_filter: RecordFilter = EVERYTHING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            name,
            spool,
            sinks,
            metrics=metrics,
            has_processor=processor is not None,
            record_filter=record_filter,
            clock=clock,
        )
        self.spool = spool
        self._senders = [Sender(slot, spool, name, metrics, clock=clock) for slot in sinks]
        self.dead_letters = DeadLetters(spool, clock=clock)
        self._processor = processor
        self._order = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._last_status: PipelineStatus | None = None

    @property
    def senders(self) -> Sequence[Sender]:
        """One for each sink."""
        return self._senders

    async def start(self) -> None:
        """Open the spool, load the processor's state, start the senders; raises SpoolError."""
        await self.spool.open({sender.slot.name: sender.slot.required for sender in self.senders})
        try:
            if self._processor is not None:
                await asyncio.to_thread(self._processor.load, await self.spool.state())
        except BaseException:
            await self.spool.close()
            raise
        for sender in self.senders:
            sender.start()
        self._open = True

    async def stop(self, deadline_seconds: float = 5.0) -> None:
        """Take nothing more, deliver what can be delivered within the deadline, close the spool."""
        if not self._open:
            return
        self._open = False
        ends_at = time.monotonic() + deadline_seconds
        if self._running:
            await asyncio.wait(self._running, timeout=deadline_seconds)
        left = max(0.0, ends_at - time.monotonic())
        await asyncio.gather(*(sender.stop(left) for sender in self.senders))
        if not self.spool.is_durable:
            self._count_lost()
        self._last_status = self.pipeline_status()
        await self.spool.close()

    def _count_lost(self) -> None:
        for sender in self.senders:
            lost = self.spool.sink_state(sender.slot.name).discard_pending()
            if lost:
                logger.warning("%s: %d records were only in memory and are lost", sender.ledger.component, lost)

    async def reserve(self, records: Sequence[Record]) -> Reservation:
        """Keep room for these; what detectors would add to them is not foreseen. Raises Overloaded if there is none."""
        self.ensure_room()
        if self.spool.free_bytes >= ROOMY_BYTES:
            return await self.spool.reserve([])  # not refused on its way, that is
        wanted = self._spooled.select(self._select(records))
        return await self.spool.reserve(await asyncio.to_thread(encode_batches, wanted, 0.0))

    async def submit(self, records: Sequence[Record], reservation: Reservation | None = None) -> None:
        """Return when the spool holds the records; submissions keep their order. `reservation` holds their bytes.

        Raises Overloaded when it cannot take them now: none is stored then.
        """
        self._ensure_running()
        if reservation is None:
            self.spool.ensure_room()
        if self._processor is None:
            await self._filter_and_store(records, reservation)
            return
        # Not undone by a caller that goes away: what is in the spool and what the processor believes stay together.
        task = asyncio.create_task(self._process_and_store(self._processor, records, reservation))
        self._running.add(task)
        task.add_done_callback(self._finished)
        await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # the submitter got the error, or is gone

    async def _filter_and_store(self, records: Sequence[Record], reservation: Reservation | None) -> None:
        wanted = self._select(records)
        await self._append_to_spool(wanted, {}, reservation)
        self._count_records(len(records), len(records) - len(wanted), len(wanted))

    async def _process_and_store(
        self, processor: RecordProcessor, records: Sequence[Record], reservation: Reservation | None
    ) -> None:
        async with self._order:
            wanted = self._select(records)
            done = await self._process(processor, wanted)
            out = select_records(self.matcher, done.records)
            waits = bool(done.state_changes) or len(out) > RECORDS_PER_BATCH
            if waits:
                await self._store_with_state(processor, out, done.state_changes, reservation)
        if not waits:
            # There is no state to take back, and the spool's queue keeps the order: thousands share one sync.
            await self._append_to_spool(out, {}, reservation)
        self.ledger.count("derived", done.derived)
        self.ledger.count("merged", done.merged)
        unwanted = len(records) - len(wanted) + len(done.records) - len(out)
        self._count_records(len(records), unwanted, len(out))

    async def _store_with_state(
        self,
        processor: RecordProcessor,
        records: list[Record],
        state: Mapping[str, bytes | None],
        reservation: Reservation | None,
    ) -> None:
        """Before the processor sees what comes next, which may rest on this state."""
        try:
            await self._append_to_spool(records, state, reservation)
        except BaseException:
            processor.rollback()
            raise

    async def _process(self, processor: RecordProcessor, records: list[Record]) -> Processed:
        if len(records) > RECORDS_PER_BATCH:
            return await asyncio.to_thread(self.run_processor, processor, records)
        return self.run_processor(processor, records)

    async def _append_to_spool(
        self, records: list[Record], state: Mapping[str, bytes | None], reservation: Reservation | None
    ) -> None:
        """Spool what at least one sink may want, with the state, in one transaction."""
        kept = self._spooled.select(records)
        received_at = self._clock()
        if len(kept) <= RECORDS_PER_BATCH:
            batches = encode_batches(kept, received_at)
        else:
            batches = await asyncio.to_thread(encode_batches, kept, received_at)
        if batches or state:
            await self.spool.append_all(batches, state=state, reservation=reservation)
        if self.tap is not None and records:
            self.tap.publish(self.name, records)
        unwanted = len(records) - len(kept)
        for sender in self.senders:
            sender.ledger.count("accepted", unwanted)
            sender.ledger.count("filtered", unwanted)

    async def erase_records(self, erasure: Erasure, deadline_seconds: float, store: Sink | None = None) -> Erased:
        """Keep what waits of a deleted workload or run from all sinks, and delete its dead letters.

        Of what is being sent now only the store's answer is awaited (None: every sink's), because the store is asked to
        delete next. Raises Unavailable when it does not come within the deadline; what waits is marked all the same.
        """
        self._ensure_running()
        if self._processor is not None and erasure.run_id is None:
            await self._end_jobs(self._processor, erasure)
        # Counted before: what is marked may have been passed over a moment later.
        waiting = 0
        async for records in self.spool.waiting_records():
            waiting += sum(map(erasure.covers, records))
        await self.spool.erase_batches(erasure)
        await self.settle_senders(deadline_seconds, self.sinks_awaited(store))
        return Erased(waiting, await self.dead_letters.erase_letters(erasure))

    async def _end_jobs(self, processor: RecordProcessor, erasure: Erasure) -> None:
        async with self._order:
            changes = processor.end_jobs(erasure.is_origin)
            if changes:
                await self._store_with_state(processor, [], changes, None)

    def pipeline_status(self) -> PipelineStatus:
        """For `lens status`; brings ledgers and gauges up to date. After the stop, how it was at the end."""
        if self._last_status is not None:
            return self._last_status
        return self._make_status([sender.sink_status() for sender in self.senders])
