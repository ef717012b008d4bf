"""Counts the records that each component received, by outcome, and logs periods of loss.

Periods in which a component loses or refuses records: a warning when one begins, another with the sum when it ends.

A line for each lost record would hide everything else in the log, and a line for the first one alone would not say
how much was lost.

Counting: every component has a ledger, exact integers here and the same numbers in Lens' own metrics.

At the gate `received = filtered + rejected + accepted`; at a sink
`accepted + recovered = delivered + filtered + rejected + dropped + pending`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..base.self_metrics import SelfMetrics

logger = logging.getLogger("lens.loss")

# A period is over when nothing was lost for so long.
QUIET_SECONDS = 60.0

_BEGINS = {
    "dropped": "%s is losing records. reason=%s",
    "rejected": "%s is refusing records. reason=%s",
    "discarded": "%s has too many dead letters and discards the oldest; see spool.max_dead_letter_bytes.%s",
}
_ENDS = {
    "dropped": "%s lost %d records. reason=%s seconds=%.0f",
    "rejected": "%s refused %d records. reason=%s seconds=%.0f",
    "discarded": "%s discarded %d dead letters.%s seconds=%.0f",
}


class _Period:
    """One kind of loss for one reason, from the first record to the last."""

    def __init__(self, now: float) -> None:
        self.began_at = self.last_at = now
        self.records = 0


class LossPeriods:
    """The open periods of one component; `last_at` is when it last lost something, None for never."""

    def __init__(self, component: str, clock: Callable[[], float] = time.time) -> None:
        self.last_at: float | None = None
        self._component = component
        self._clock = clock
        self._open: dict[tuple[str, str], _Period] = {}

    def record_loss(self, kind: str, reason: str, records: int) -> None:
        """Count records that were `dropped`, `rejected` or `discarded`; the first of a period is logged."""
        now = self._clock()
        period = self._open.get((kind, reason))
        if period is None:
            period = self._open[kind, reason] = _Period(now)
            logger.warning(_BEGINS[kind], self._component, reason)
        period.records += records
        period.last_at = now
        if kind != "rejected":
            self.last_at = now

    def end_quiet(self, quiet_seconds: float = QUIET_SECONDS) -> None:
        """Log and close the periods in which nothing was lost for so long."""
        now = self._clock()
        for (kind, reason), period in [*self._open.items()]:
            if now - period.last_at >= quiet_seconds:
                del self._open[kind, reason]
                seconds = period.last_at - period.began_at
                logger.warning(_ENDS[kind], self._component, period.records, reason, seconds)


def end_quiet_periods(ledgers: Mapping[str, object], quiet_seconds: float = QUIET_SECONDS) -> None:
    """Close the quiet periods of all ledgers (`SelfMetrics.ledgers`); 0 seconds closes every period."""
    for ledger in ledgers.values():
        losses = getattr(ledger, "losses", None)
        if isinstance(losses, LossPeriods):
            losses.end_quiet(quiet_seconds)


COUNTED = ("received", "accepted", "recovered", "merged", "derived", "delivered", "filtered", "discarded")
# Reasons that components give by themselves. Each counts from 0 on: `increase()` does not see a counter that begins at
# its first loss.
GATE_REASONS = ("overloaded", "failed", "invalid", "no_identity", "no_sink")
SINK_REASONS = ("refused", "poisoned", "unreadable")
SINK_LOSSES = ("spool_full", "spool_damaged", "memory_spool_closed", "not_found_again")
RATE_WINDOW_SECONDS = 60
MAX_REASONS = 32


class LedgerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger at one moment. `discarded` are dead letters that made room for newer ones.

    `last_loss_at` is when records were last dropped or discarded, in seconds since the epoch, None for never.
    """

    component: str
    received: int
    accepted: int
    recovered: int
    merged: int
    derived: int
    delivered: int
    filtered: int
    rejected: Mapping[str, int]
    dropped: Mapping[str, int]
    discarded: int = 0
    last_loss_at: float | None = None


class RateMeter:
    """Measures the rate per second over the last minute, in one-second steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._seconds: deque[list[int]] = deque()

    def count_records(self, count: int) -> None:
        """Count now."""
        second = int(self._clock())
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += count
        else:
            self._seconds.append([second, count])
        self._forget(second)

    def per_second(self) -> float:
        """The mean over the last minute, or over the time since the start if that is shorter."""
        now = self._clock()
        self._forget(int(now))
        span = min(float(RATE_WINDOW_SECONDS), max(1.0, now - self._started))
        return sum(count for _, count in self._seconds) / span

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - RATE_WINDOW_SECONDS:
            self._seconds.popleft()


class Ledger:
    """The counts of one component; reasons are few and fixed, because they become labels.

    `rejects` and `drops` are the reasons that are known beforehand, whose metrics begin at 0.
    """

    def __init__(
        self,
        component: str,
        metrics: SelfMetrics,
        *,
        rated: str = "delivered",
        rejects: Sequence[str] = (),
        drops: Sequence[str] = (),
    ) -> None:
        self.component = component
        self.losses = LossPeriods(component)
        self._rated = rated
        self.received = self.accepted = self.recovered = self.merged = self.derived = 0
        self.delivered = self.filtered = self.discarded = 0
        self.rejected: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.rate = RateMeter()
        self._left_pending = 0
        self._metrics = metrics
        self._children: dict[tuple[str, str], Any] = {}
        for name, reasons in (*((name, ("",)) for name in COUNTED), ("rejected", rejects), ("dropped", drops)):
            for reason in reasons:
                self._child(name, reason)

    @classmethod
    def for_component(
        cls,
        component: str,
        metrics: SelfMetrics,
        *,
        rated: str = "delivered",
        rejects: Sequence[str] = (),
        drops: Sequence[str] = (),
    ) -> Ledger:
        """The ledger of a component in this process; a component that is built anew goes on with it."""
        found = metrics.ledgers.get(component)
        if not isinstance(found, cls):
            found = cls(component, metrics, rated=rated, rejects=rejects, drops=drops)
            metrics.ledgers[component] = found
        return found

    def close(self, pending: int) -> None:
        """The component ends with so many records pending."""
        self._left_pending = pending

    def recover(self, found: int) -> None:
        """The component begins with so many records in its spool; those that this process left there are known."""
        self.count("recovered", max(0, found - self._left_pending))
        self.drop("not_found_again", max(0, self._left_pending - found))
        self._left_pending = 0

    def merge_counts(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Count what a spool says, by (name, reason)."""
        for (name, reason), amount in counts.items():
            if name == "rejected":
                self.reject(reason, amount)
            elif name == "dropped":
                self.drop(reason, amount)
            else:
                self.count(name, amount)

    def count(self, name: str, amount: int) -> None:
        """Add to one of `COUNTED`."""
        if amount:
            setattr(self, name, getattr(self, name) + amount)
            self._child(name).inc(amount)
            if name == self._rated:
                self.rate.count_records(amount)
            if name == "discarded":
                self.losses.record_loss("discarded", "", amount)

    def reject(self, reason: str, amount: int = 1) -> None:
        """Count items that were refused."""
        if amount:
            if reason not in self.rejected and len(self.rejected) >= MAX_REASONS:
                reason = "other"
            self.rejected[reason] = self.rejected.get(reason, 0) + amount
            self._child("rejected", reason).inc(amount)
            self.losses.record_loss("rejected", reason, amount)

    def drop(self, reason: str, amount: int = 1) -> None:
        """Count records that were lost."""
        if amount:
            self.dropped[reason] = self.dropped.get(reason, 0) + amount
            self._child("dropped", reason).inc(amount)
            self.losses.record_loss("dropped", reason, amount)

    def _child(self, name: str, reason: str = "") -> Any:
        child = self._children.get((name, reason))
        if child is None:
            labels = {"component": self.component, **({"reason": reason} if reason else {})}
            child = self._children[name, reason] = getattr(self._metrics, name).labels(**labels)
        return child

    def ledger_status(self) -> LedgerStatus:
        """The counts now."""
        counts = {name: getattr(self, name) for name in COUNTED}
        return LedgerStatus(
            component=self.component,
            rejected=dict(self.rejected),
            dropped=dict(self.dropped),
            last_loss_at=self.losses.last_at,
            **counts,
        )

    def entry_difference(self) -> int:
        """Return 0 when the gate's ledger adds up."""
        return self.received - self.filtered - sum(self.rejected.values()) - self.accepted

    def sink_difference(self, pending: int) -> int:
        """0 when a sink's ledger adds up."""
        came = self.accepted + self.recovered
        return (
            came - self.delivered - self.filtered - sum(self.rejected.values()) - sum(self.dropped.values()) - pending
        )
