"""Versions as ClickHouse gives them, as rows again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..rows import Order, RowState, Version
from .schema import NO_METRIC, NO_NUMBER, NO_TIME
from .versions import values_of


@dataclass(slots=True)
class StoredState:
    """A row as ClickHouse has it; `counted` are the metrics that the figures count, `is_counted` whether the row is."""

    state: RowState
    received_us: int
    counted: set[str] = field(default_factory=set)
    is_counted: bool = False


class VersionRow(NamedTuple):
    """A version as it is read, its parts of one key merged or not."""

    stream: int
    step: int
    metric: str
    priority: int
    sequence: int
    spool: int
    position: int
    bits: int
    tags: str
    has_iteration: int
    iteration: int
    lag: int
    event_us: int
    updated_us: int
    received_us: int

    @property
    def first_us(self) -> int | None:
        """The time at which the row was first logged."""
        if self.lag != NO_TIME:
            return self.sequence + self.lag
        return None if self.event_us == NO_TIME else self.event_us


def state_of_versions(rows: Sequence[VersionRow], history_limit: int) -> StoredState:
    """The row that these versions (at least one) make."""
    best: dict[str, dict[Order, tuple[int, str]]] = {}
    for row in rows:
        if row.metric == NO_METRIC:
            continue
        versions = best.setdefault(row.metric, {})
        order = Order(row.priority, row.sequence)
        versions[order] = max(versions.get(order, (-1, "")), (row.bits, row.tags))
    names = sorted(best, key=lambda name: (len(name.encode()), name.encode()))  # as jsonb has them
    bits = [bits for name in names for bits, _ in best[name].values()]
    values = iter(values_of(np.array(bits, np.uint64)).tolist())
    current: dict[str, Version] = {}
    history: dict[Order, dict[str, float]] = {}
    for name in names:
        found = {order: (next(values), tags) for order, (_, tags) in best[name].items()}
        newest = max(found)
        value, tags = found.pop(newest)
        current[name] = Version(newest, value, json.loads(tags) if tags else None)
        for order, (old, _) in found.items():
            history.setdefault(order, {})[name] = old
    firsts = [first for row in rows if (first := row.first_us) is not None]
    first_us = min(firsts, default=None)
    lasts = [*firsts, *(row.updated_us for row in rows if row.updated_us != NO_NUMBER)]
    iterations = [row.iteration for row in rows if row.has_iteration]
    state = RowState(
        current,
        {order: history[order] for order in sorted(history)[max(0, len(history) - history_limit) :]},
        max(iterations, default=None),
        first_us,
        max(lasts, default=None),
    )
    return StoredState(state, min(row.received_us for row in rows))
