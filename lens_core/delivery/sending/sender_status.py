"""The health of a sender: its state, its last error and success, and the gauges that say so."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...base.self_metrics import SelfMetrics
from ..ledger import Ledger, LedgerStatus
from ..spool.sink_state import Pending, SinkSnapshot

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

    def failed(self, reason: str, now: float) -> bool:
        """A try failed; whether that is worth a line in the log (the first of a row, and when it gets serious)."""
        self.failures += 1
        self.last_error, self.last_error_at = reason, now
        self.state = "failing" if self.failures >= self._failing_after else "retrying"
        return self.failures in (1, self._failing_after)

    def retried(self) -> None:
        """A batch has to be sent again."""
        self.retries += 1
        self._retries.inc()

    def gauge(self, snapshot: SinkSnapshot, now: float) -> None:
        """Show what waits."""
        self._pending.set(snapshot.pending.records)
        self._lag.set(lag_of(snapshot.pending, now))
        self._dead_letters.set(snapshot.dead_letters)

    def status(self, name: str, required: bool, ledger: Ledger, snapshot: SinkSnapshot, now: float) -> SinkStatus:
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
            ledger=ledger.status(),
            dead_letter_reason=snapshot.dead_letter_reason,
        )


def lag_of(pending: Pending, now: float) -> float:
    """Age of the oldest record that waits; 0 when none does."""
    return max(0.0, now - pending.oldest_at) if pending.oldest_at is not None else 0.0
