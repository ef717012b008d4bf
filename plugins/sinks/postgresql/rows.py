"""Merging of writes with the same key: pure, no I/O.

A write carries an order: (priority, sequence). For each metric the value of the highest order is current, every other
is history. `merge` is commutative, associative and idempotent, so that neither the order of arrival nor a redelivery
changes a row. Priority is 0, but for rows of logs, where all ranks share a row and the lowest rank is preferred.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

_UNKNOWN_RANK_PRIORITY = -(2**31)


class Order(NamedTuple):
    """The order of two writes: the higher one is current."""

    priority: int
    sequence: int


def order_of(sequence: int, rank: int | None, *, shared_by_ranks: bool) -> Order:
    """The order of a write; `shared_by_ranks` where all ranks write into one row."""
    if not shared_by_ranks:
        return Order(0, sequence)
    return Order(_UNKNOWN_RANK_PRIORITY if rank is None or rank < 0 else -rank, sequence)


def rank_of(order: Order) -> int | None:
    """The rank that an order of a shared row speaks of; None where it is unknown."""
    return None if order.priority == _UNKNOWN_RANK_PRIORITY else -order.priority


Value: TypeAlias = float
Tags: TypeAlias = Mapping[str, str] | None


class Version(NamedTuple):
    """One metric as one write had it."""

    order: Order
    value: Value
    tags: Tags


@dataclass(slots=True)
class RowState:
    """A row: the current versions, what was overwritten, and the times between which it was written.

    Times are microseconds since the epoch.
    """

    current: dict[str, Version]
    history: dict[Order, dict[str, Value]] = field(default_factory=dict)
    iteration: int | None = None
    first_us: int | None = None
    last_us: int | None = None


def written(
    values: Mapping[str, Value],
    order: Order,
    *,
    tags: Mapping[str, Mapping[str, str]] | None = None,
    iteration: int | None = None,
    time_us: int | None = None,
) -> RowState:
    """The row that one write alone makes."""
    known = tags or {}
    current = {name: Version(order, value, known.get(name)) for name, value in values.items()}
    return RowState(current, {}, iteration, time_us, time_us)


def merge(one: RowState, other: RowState, history_limit: int) -> RowState:
    """Both rows in one; the history keeps its `history_limit` highest orders."""
    current: dict[str, Version] = dict(one.current)
    history = {order: dict(values) for order, values in one.history.items()}
    for order, values in other.history.items():
        for name, value in values.items():
            _remember(history, order, name, value)
    for name, version in other.current.items():
        present = current.get(name)
        if present is None:
            current[name] = version
            continue
        winner = _newer(present, version)
        loser = version if winner is present else present
        current[name] = winner
        if loser.order != winner.order:
            _remember(history, loser.order, name, loser.value)
    return RowState(
        current,
        _bounded(history, history_limit),
        _highest(one.iteration, other.iteration),
        _lowest(one.first_us, other.first_us),
        _highest(one.last_us, other.last_us),
    )


def _newer(one: Version, other: Version) -> Version:
    """The current one of two versions; of one and the same order the greater value, so that chance decides nothing."""
    return one if _rank_version(one) >= _rank_version(other) else other


def _rank_version(version: Version) -> tuple[Any, ...]:
    tags = sorted(version.tags.items()) if version.tags else []
    return (*version.order, *_rank_value(version.value), tags)


def _rank_value(value: Value) -> tuple[bool, float, float]:
    not_a_number = value != value
    return (not_a_number, 0.0 if not_a_number else value, 0.0 if not_a_number else math.copysign(1.0, value))


def _remember(history: dict[Order, dict[str, Value]], order: Order, name: str, value: Value) -> None:
    values = history.setdefault(order, {})
    if name not in values or _rank_value(value) > _rank_value(values[name]):
        values[name] = value


def _bounded(history: dict[Order, dict[str, Value]], limit: int) -> dict[Order, dict[str, Value]]:
    return {order: history[order] for order in sorted(history)[max(0, len(history) - limit) :]}


def _highest(one: int | None, other: int | None) -> int | None:
    return max((number for number in (one, other) if number is not None), default=None)


def _lowest(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)


class StoredRow(NamedTuple):
    """A row as its columns hold it, before they are made JSON. `None` for empty columns."""

    sequence: int
    rank: int | None
    iteration: int | None
    event_time_us: int | None
    updated_us: int | None
    metrics: dict[str, Value]
    tags: dict[str, Mapping[str, str]] | None
    key_sequences: dict[str, tuple[int | None, int]] | None
    history: list[dict[str, Any]] | None


def to_stored(state: RowState, *, shared_by_ranks: bool) -> StoredRow:
    """A state as columns; the columns of a row with one write hold no more than that write."""
    head = max((version.order for version in state.current.values()), default=Order(0, 0))
    tags = {name: version.tags for name, version in state.current.items() if version.tags}
    others = {
        name: (_row_rank(version.order, shared_by_ranks), version.order.sequence)
        for name, version in state.current.items()
        if version.order != head
    }
    history = [
        {"sequence": order.sequence, "rank": _row_rank(order, shared_by_ranks), "values": state.history[order]}
        for order in sorted(state.history)
    ]
    return StoredRow(
        sequence=head.sequence,
        rank=_row_rank(head, shared_by_ranks) if state.current else None,
        iteration=state.iteration,
        event_time_us=state.first_us,
        updated_us=state.last_us if state.last_us != state.first_us else None,
        metrics={name: version.value for name, version in state.current.items()},
        tags=tags or None,
        key_sequences=others or None,
        history=history or None,
    )


def _row_rank(order: Order, shared_by_ranks: bool) -> int | None:
    return rank_of(order) if shared_by_ranks else None


def from_stored(row: StoredRow, *, shared_by_ranks: bool) -> RowState:
    """The state that columns hold."""
    head = order_of(row.sequence, row.rank, shared_by_ranks=shared_by_ranks)
    orders = {
        name: order_of(sequence, rank, shared_by_ranks=shared_by_ranks)
        for name, (rank, sequence) in (row.key_sequences or {}).items()
    }
    tags = row.tags or {}
    return RowState(
        current={name: Version(orders.get(name, head), value, tags.get(name)) for name, value in row.metrics.items()},
        history={
            order_of(entry["sequence"], entry.get("rank"), shared_by_ranks=shared_by_ranks): dict(entry["values"])
            for entry in row.history or []
        },
        iteration=row.iteration,
        first_us=row.event_time_us,
        last_us=row.event_time_us if row.updated_us is None else row.updated_us,
    )
