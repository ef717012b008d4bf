"""Sends what a sink has to get, and says how it is doing.

The health of a sender: its state, its last error and success, and the gauges that say so.

One task per sink: read what is next, send it, and account for every record of it.

Batches of a sink are in the order of the spool and one at a time. A batch that is sent again has the same start and
end as before, or is a half of it (after Poisoned and after timeouts), or a half of that. A sink that fails is tried
again for ever; nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal

import msgspec

from ...base.errors import LensError
from ...base.exits import without_exit
from ...base.self_metrics import SelfMetrics
from ...model.record_filter import EVERYTHING, Matcher, RecordFilter
from ...plugin_api.components import Sink
from ...plugin_api.sink_answers import Answer, Batch, BatchLimits, Poisoned, Retry
from ..ledger import SINK_LOSSES, SINK_REASONS, Ledger, LedgerStatus
from ..log import SinkLog
from ..spool.sink_state import Pending, SinkSnapshot
from .batch_delivery import BatchDelivery, SendContext
from .cursor import CursorCommitter, Prefetcher
from .policy import (
    CANCEL_GRACE_SECONDS,
    DeliverySettings,
    NoAnswer,
    PartLimit,
    TimedOut,
    answer_within,
    is_set_within,
    new_backoff,
    seconds_until_ready,
    sensible,
)

SinkState = Literal["starting", "idle", "sending", "retrying", "failing", "stopped"]


class SinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One sink of one pipeline. Times are seconds since the epoch, None for never.

    `dead_letter_reason` says why the newest of the dead letters was refused.
    """

    name: str
    required: bool
    state: SinkState
    pending_records: int
    pending_bytes: int
    lag_seconds: float
    delivered_per_second: float
    retries: int
    failures_in_a_row: int
    last_error: str
    last_error_at: float | None
    last_success_at: float | None
    dead_letters: int
    ledger: LedgerStatus
    dead_letter_reason: str = ""


class Health:
    """State and recent history of one sender."""

    def __init__(self, component: str, metrics: SelfMetrics, failing_after: int) -> None:
        self.state: SinkState = "starting"
        self.last_error = ""
        self.last_error_at: float | None = None
        self.last_success_at: float | None = None
        self.failures = 0
        self.retries = 0
        self._failing_after = failing_after
        self._retries = metrics.retries.labels(component=component)
        self._pending = metrics.pending.labels(component=component)
        self._lag = metrics.lag.labels(component=component)
        self._last_success = metrics.last_success.labels(component=component)
        self._dead_letters = metrics.dead_letters.labels(component=component)

    def sending(self) -> None:
        """A batch is on its way."""
        if self.failures == 0:
            self.state = "sending"

    def answered(self, now: float, *, stored: bool) -> None:
        """The sink gave a verdict on a batch."""
        self.state = "idle"
        self.failures = 0
        if stored:
            self.last_success_at = now
            self._last_success.set(now)

    def record_failed_try(self, reason: str, now: float) -> bool:
        """A try failed; whether that is worth a line in the log (the first of a row, and when it gets serious)."""
        self.failures += 1
        self.last_error, self.last_error_at = reason, now
        self.state = "failing" if self.failures >= self._failing_after else "retrying"
        return self.failures in (1, self._failing_after)

    def retried(self) -> None:
        """A batch has to be sent again."""
        self.retries += 1
        self._retries.inc()

    def update_gauges(self, snapshot: SinkSnapshot, now: float) -> None:
        """Show what waits."""
        self._pending.set(snapshot.pending.records)
        self._lag.set(lag_of(snapshot.pending, now))
        self._dead_letters.set(snapshot.dead_letters)

    def make_sink_status(
        self, name: str, required: bool, ledger: Ledger, snapshot: SinkSnapshot, now: float
    ) -> SinkStatus:
        """All of it."""
        return SinkStatus(
            name=name,
            required=required,
            state=self.state,
            pending_records=snapshot.pending.records,
            pending_bytes=snapshot.pending.bytes,
            lag_seconds=lag_of(snapshot.pending, now),
            delivered_per_second=ledger.rate.per_second(),
            retries=self.retries,
            failures_in_a_row=self.failures,
            last_error=self.last_error,
            last_error_at=self.last_error_at,
            last_success_at=self.last_success_at,
            dead_letters=snapshot.dead_letters,
            ledger=ledger.ledger_status(),
            dead_letter_reason=snapshot.dead_letter_reason,
        )


def lag_of(pending: Pending, now: float) -> float:
    """Age of the oldest record that waits; 0 when none does."""
    return max(0.0, now - pending.oldest_at) if pending.oldest_at is not None else 0.0


logger = logging.getLogger("lens.delivery")

# A commit that is under way when the deadline passes; a disk that is full does not finish it in any time.
SETTLE_GRACE_SECONDS = 1.0


class SinkSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A sink's place in a pipeline: the instance and its name, and what the configuration says about it.

    `on_exception` and `on_answer` are told when the sink's own code raised, and when it answered. `ensure_started`
    raises while the sink could not be started; until then it is asked nothing and the spool keeps its records.
    `measure` wraps each call of the sink's `send`.
    """

    name: str
    sink: Sink
    required: bool = True
    filter: RecordFilter = EVERYTHING
    limits: BatchLimits | None = None
    delivery: DeliverySettings = DeliverySettings()
    on_exception: Callable[[BaseException], object] | None = None
    on_answer: Callable[[], object] | None = None
    ensure_started: Callable[[], Awaitable[None]] | None = None
    measure: Callable[[Coroutine[Any, Any, Answer]], Coroutine[Any, Any, Answer]] = lambda asked: asked


class Sender:
    """Delivers one spool to one sink; `clock` gives seconds since 1970, `part` names a part of a pipeline's log."""

    def __init__(
        self,
        slot: SinkSlot,
        spool: SinkLog,
        pipeline: str,
        metrics: SelfMetrics,
        *,
        clock: Callable[[], float] = time.time,
        rng: Callable[[], float] = random.random,
        part: str = "",
    ) -> None:
        self.slot = slot
        component = f"{pipeline}/{slot.name}/{part}" if part else f"{pipeline}/{slot.name}"
        self.ledger = Ledger.for_component(component, metrics, rejects=SINK_REASONS, drops=SINK_LOSSES)
        self.matcher = Matcher(slot.filter, tuple(slot.sink.accepts))
        self.health = Health(self.ledger.component, metrics, slot.delivery.failing_after)
        self._spool = spool
        self._pipeline = pipeline
        self._clock = clock
        self._backoff = new_backoff(slot.delivery, rng)
        self._flush = asyncio.Event()
        self._halt = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._prefetcher = Prefetcher(slot.name, spool, self.matcher)
        self._committer = CursorCommitter(slot.name, spool, new_backoff(slot.delivery, rng), self._record_failure)
        limit = PartLimit(slot.delivery.send_timeout_seconds)
        self._turn = asyncio.Lock()
        self._context = SendContext(
            sink=slot.name,
            pipeline=pipeline,
            spool=spool,
            backoff=self._backoff,
            committer=self._committer,
            limit=limit,
            send=self._send_safely,
            pause=self._pause,
            marks=spool.marks,
            turn=self._turn,
        )

    @property
    def limits(self) -> BatchLimits:
        """The limits of a batch of this sink."""
        return self.slot.limits or self.slot.sink.limits()

    def start(self) -> None:
        """Begin to deliver; the spool must be open."""
        self.ledger.recover(self._spool.sink_state(self.slot.name).recovered)
        self._task = asyncio.create_task(self._deliver_until_stopped(), name=f"sender-{self.ledger.component}")

    def flush(self) -> None:
        """Send what there is without waiting for more, then end."""
        self._flush.set()
        self._spool.wake_sink(self.slot.name)

    async def stop(self, deadline_seconds: float) -> None:
        """End within the deadline; what is not delivered by then stays in the spool.

        A send that is over by then is accounted for, whatever it said; one that is not over is cancelled.
        """
        self.flush()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=max(0.0, deadline_seconds))
            self._halt.set()
            await asyncio.wait([self._task], timeout=CANCEL_GRACE_SECONDS + SETTLE_GRACE_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._prefetcher.discard()
        await self._committer.cancel()
        self.health.state = "stopped"
        self.ledger.close(self.take_snapshot().pending.records)

    async def settle(self, *, waits_for_answer: bool = True) -> None:
        """Return when what the sink has answered is committed, and what is being sent now, as long as it may take."""
        if waits_for_answer:
            async with self._turn:
                await self._committer.settle()
        else:
            await self._committer.settle()

    def take_snapshot(self) -> SinkSnapshot:
        """Bring the ledger and the gauges up to what the spool says; what waits is of the same moment."""
        snapshot = self._spool.sink_state(self.slot.name).take_snapshot()
        self.ledger.merge_counts(snapshot.counts)
        self.health.update_gauges(snapshot, self._clock())
        return snapshot

    def sink_status(self) -> SinkStatus:
        """For `lens status`."""
        snapshot = self.take_snapshot()
        return self.health.make_sink_status(self.slot.name, self.slot.required, self.ledger, snapshot, self._clock())

    async def _deliver_until_stopped(self) -> None:
        if not await self._find_position():
            return
        self.health.state = "idle"
        going_on = True
        while going_on:
            try:
                going_on = await self._wait_until_ready() and await self._deliver_next()
            except Exception as error:
                self._record_failure(f"the spool: {error}" if isinstance(error, LensError) else describe_error(error))
                if not isinstance(error, LensError):
                    logger.exception("%s failed in an unexpected way", self.ledger.component)
                await self._committer.finish_commit()
                going_on = await self._pause(self._backoff.next_delay()) and await self._return_batches()
        await self._committer.finish_commit()

    async def _return_batches(self) -> bool:
        """Begin again after what is accounted for; False when stopped before the spool could say where that is."""
        while True:
            try:
                await self._spool.return_batches(self.slot.name)
            except LensError as error:
                self._record_failure(f"the spool: {error}")
                if not await self._pause(self._backoff.next_delay()):
                    return False
            else:
                return True

    async def _deliver_next(self) -> bool:
        """Send what comes next until it is settled; False when stopped before that."""
        unpacked = await self._prefetcher.next_batch(self.limits)
        if unpacked is None:
            return True
        self._prefetcher.prefetch_batch(self.limits)
        return await BatchDelivery(self._context, unpacked).deliver()

    async def _find_position(self) -> bool:
        """Ask a sink that keeps its own position where it is; False when stopped before it could say."""
        while True:
            try:
                if self.slot.ensure_started is not None:
                    await self.slot.ensure_started()
                for epoch in self._spool.earlier_epochs():
                    asked = without_exit(self.slot.sink.position(epoch.identity))
                    seconds = self.slot.delivery.send_timeout_seconds
                    position = await answer_within(seconds, asked, self._halt, f"sink {self.slot.name}")
                    if position is not None:
                        await self._spool.skip_to(self.slot.name, position, epoch)
            except Exception as error:  # noqa: BLE001 - a sink's own error never stops the delivery
                self._record_failure(describe_error(error))
                if not await self._pause(self._backoff.next_delay()):
                    return False
            else:
                self._backoff.reset()
                return True

    async def _wait_until_ready(self) -> bool:
        """Wait until a batch is full or old enough; False when flushing has left nothing."""
        loop = asyncio.get_running_loop()
        while True:
            limits = self.limits
            if not self._prefetcher.has_full_batch(limits):
                await self._committer.wait()  # batches under way count as pending until then
            pending = self.take_snapshot().pending
            wait = seconds_until_ready(pending, limits, self._clock(), flush=self._flush.is_set())
            if wait == 0.0:
                return True
            if wait is None and self._flush.is_set():
                return False
            enough = (1, 1) if wait is None else (limits.max_records, limits.max_bytes)
            event = self._spool.wake_event(self.slot.name, *enough)
            alarm = loop.call_later(wait, event.set) if wait is not None else None
            await event.wait()
            if alarm is not None:
                alarm.cancel()

    async def _send_safely(self, batch: Batch) -> Answer:
        """The sink's answer, whatever it does: an exception, no answer in time and nonsense count as Retry."""
        seconds = self.slot.delivery.send_timeout_seconds
        self.health.sending()
        try:
            asked = self.slot.measure(without_exit(self.slot.sink.send(batch)))
            answer = sensible(
                await answer_within(seconds, asked, self._halt, f"sink {self.slot.name}"), len(batch.records)
            )
            if self.slot.on_answer is not None:
                self.slot.on_answer()
        except NoAnswer as error:
            answer = Retry(str(error), timed_out=isinstance(error, TimedOut))
            if self._halt.is_set():
                return answer
        except Exception as error:  # noqa: BLE001 - a sink's own error never stops the delivery
            # asyncio's own is another class before Python 3.11.
            answer = Retry(describe_error(error), timed_out=isinstance(error, TimeoutError | asyncio.TimeoutError))
            if self.slot.on_exception is not None:
                self.slot.on_exception(error)
        if isinstance(answer, Retry):
            self._record_failure(answer.reason)
            self.health.retried()
        else:
            self._backoff.reset()
            if self.health.failures:
                logger.warning("%s is delivering again. failed_tries=%d", self.ledger.component, self.health.failures)
            self.health.answered(self._clock(), stored=not isinstance(answer, Poisoned))
        return answer

    async def _pause(self, seconds: float) -> bool:
        """Wait before the next try. While flushing, a durable spool is left as it is: False."""
        if self._flush.is_set():
            return not self._spool.is_durable and not await is_set_within(seconds, self._halt)
        await is_set_within(seconds, self._flush)
        return True

    def _record_failure(self, reason: str) -> None:
        if self.health.record_failed_try(reason, self._clock()):
            logger.warning("%s cannot deliver: %s", self.ledger.component, reason)


def describe_error(error: BaseException) -> str:
    """An exception in one line, for people."""
    text = " ".join(str(error).split())
    if isinstance(error, LensError) and text:  # raised on purpose, for people
        return text[:500]
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__
