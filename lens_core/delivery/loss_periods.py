"""Periods in which a component loses or refuses records: a warning when one begins, another with the sum when it ends.

A line for each lost record would hide everything else in the log, and a line for the first one alone would not say
how much was lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

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

    def record(self, kind: str, reason: str, records: int) -> None:
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
