"""Statuses and ledgers of one component's parts as one: the partitions of a daemon, or the daemons of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .ledger import COUNTED, LedgerStatus
from .sending.sender import SinkStatus

_WORST = ("starting", "stopped", "idle", "sending", "retrying", "failing")


def combine_sinks(
    name: str, statuses: Sequence[SinkStatus], ledgers: Sequence[LedgerStatus], *, required: bool = True
) -> SinkStatus:
    """The status of a sink over all its parts: sums, and the worst state."""
    failed = max(statuses, key=lambda one: one.last_error_at or 0.0, default=None)
    successes = [one.last_success_at for one in statuses if one.last_success_at is not None]
    return SinkStatus(
        name=name,
        required=required,
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
        ledger=combine_ledgers(name, ledgers),
        dead_letter_reason=next((one.dead_letter_reason for one in statuses if one.dead_letter_reason), ""),
    )


def combine_ledgers(component: str, ledgers: Sequence[LedgerStatus]) -> LedgerStatus:
    """The sums of several ledgers."""
    losses = [ledger.last_loss_at for ledger in ledgers if ledger.last_loss_at is not None]
    return LedgerStatus(
        component=component,
        rejected=sum_counts([ledger.rejected for ledger in ledgers]),
        dropped=sum_counts([ledger.dropped for ledger in ledgers]),
        last_loss_at=max(losses, default=None),
        **{name: sum(getattr(ledger, name) for ledger in ledgers) for name in COUNTED},
    )


def sum_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The sums of several countings, by reason."""
    found: dict[str, int] = {}
    for one in counts:
        for reason, count in one.items():
            found[reason] = found.get(reason, 0) + count
    return found
