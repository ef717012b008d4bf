"""Rows as versions of their metrics, and versions as rows. Pure, no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lens_core import StepMetrics

from ..grouping import StreamKey, state_of
from ..rows import Order, RowState, Version, order_of
from ..series import Doubles
from ..text import microseconds
from .schema import COLUMNS, MOST_SEQUENCE, NO_METRIC, NO_NUMBER, NO_TIME

Bits = npt.NDArray[np.uint64]
_SIGN = np.uint64(2**63)
_BITS_OF_NAN = 0xFFF8_0000_0000_0000


def bits_of(values: Sequence[float]) -> Bits:
    """Doubles as numbers in the order of `merge`, NaN above all; a zero has no sign, as jsonb has none."""
    found = np.array(values, np.float64) + 0.0
    bits = found.view(np.uint64)
    ordered = np.where(bits >= _SIGN, ~bits, bits | _SIGN)
    ordered[np.isnan(found)] = _BITS_OF_NAN
    return ordered


def values_of(bits: Bits) -> Doubles:
    """The doubles again."""
    return np.where(bits >= _SIGN, bits ^ _SIGN, ~bits).view(np.float64)


def encode_tags(tags: Mapping[str, str] | None) -> str:
    """The tags of a metric as a text; of none an empty one."""
    return json.dumps(dict(sorted(tags.items())), ensure_ascii=False, separators=(",", ":")) if tags else ""


class Source(NamedTuple):
    """The batch that brings versions, and when."""

    spool: int
    position: int
    now_us: int


@dataclass(slots=True)
class StoredState:
    """A row as ClickHouse has it; `counted` are the metrics that the figures count, `is_counted` whether the row is."""

    state: RowState
    received_us: int
    counted: set[str] = field(default_factory=set)
    is_counted: bool = False


class VersionColumns:
    """Versions to be inserted, column by column."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.count = 0

    def append_new(self, stream_id: int, key: StreamKey, rows: Iterable[tuple[int, StepMetrics | RowState]]) -> None:
        """Add rows of which nothing is stored."""
        for row_step, row in rows:
            if isinstance(row, StepMetrics) and row.values and not row.tags:
                self._append_once(stream_id, key, row_step, row)
            else:
                state = state_of(row, key)
                self.append_versions(stream_id, row_step, versions_of(state), state, self._source.now_us)

    def _append_once(self, stream_id: int, key: StreamKey, row_step: int, row: StepMetrics) -> None:
        """The usual case: one write, without tags."""
        order = order_of(row.sequence, row.origin.rank, shared_by_ranks=key.shared_by_ranks)
        iteration = None if row.iteration == row_step else row.iteration
        time_us = microseconds(row.event_time)
        values = row.values
        self._append_write(
            stream_id, row_step, order, list(values), list(values.values()), [""] * len(values),
            RowFacts(iteration, time_us, time_us, self._source.now_us),
        )  # fmt: skip

    def append_versions(
        self,
        stream_id: int,
        row_step: int,
        versions: Iterable[tuple[str, Version]],
        state: RowState,
        received_us: int,
    ) -> None:
        """Add versions of a row whose times and iteration are those of `state`."""
        facts = RowFacts(state.iteration, state.first_us, state.last_us, received_us)
        by_order: dict[Order, list[tuple[str, Version]]] = {}
        for metric, version in versions:
            by_order.setdefault(version.order, []).append((metric, version))
        if not by_order and not state.current:
            by_order[Order(0, 0)] = [(NO_METRIC, Version(Order(0, 0), 0.0, None))]
        for order, group in by_order.items():
            names, values = [name for name, _ in group], [version.value for _, version in group]
            self._append_write(
                stream_id, row_step, order, names, values, [encode_tags(v.tags) for _, v in group], facts
            )

    def _append_write(
        self,
        stream_id: int,
        row_step: int,
        order: Order,
        names: Sequence[str],
        values: Sequence[float],
        tags: Sequence[str],
        facts: RowFacts,
    ) -> None:
        count = len(names)
        columns = self._columns
        columns["metric"] += names
        columns["bits"] += values
        columns["tags"] += tags
        for name, number in (
            ("stream", stream_id),
            ("step", row_step),
            ("priority", order.priority),
            ("sequence", order.sequence),
            *facts.columns(order.sequence),
        ):
            columns[name].append((number, count))
        self.count += count

    def columns(self) -> list[Any]:
        """All columns in the order of COLUMNS, for an insert."""
        found: list[Any] = []
        for name, kind in COLUMNS.items():
            column = self._columns[name]
            if name == "bits":
                found.append(bits_of(column))
            elif name in ("metric", "tags"):
                found.append(column)
            elif name in ("spool", "position"):
                number = self._source.spool if name == "spool" else self._source.position
                found.append(np.full(self.count, number, np.uint64))
            else:
                numbers, counts = zip(*column, strict=True)
                found.append(np.repeat(np.array(numbers, kind.lower()), counts))
        return found

    def points(self) -> Iterable[tuple[int, str, float]]:
        """The stream, the metric and the value of each version."""
        streams = chain.from_iterable(repeat(number, count) for number, count in self._columns["stream"])
        return zip(streams, self._columns["metric"], self._columns["bits"], strict=True)

    def streams(self) -> set[int]:
        """The streams that versions are of."""
        return {number for number, _ in self._columns["stream"]}


class RowFacts(NamedTuple):
    """Facts of a row that all of its versions repeat; times are microseconds since the epoch."""

    iteration: int | None
    first_us: int | None
    last_us: int | None
    received_us: int

    def columns(self, sequence: int) -> Iterable[tuple[str, int]]:
        """The columns of a version with this sequence."""
        first = self.first_us
        is_near = -MOST_SEQUENCE <= sequence <= MOST_SEQUENCE
        yield "has_iteration", 0 if self.iteration is None else 1
        yield "iteration", NO_NUMBER if self.iteration is None else self.iteration
        yield "lag", NO_TIME if first is None or not is_near else first - sequence
        yield "event_us", NO_TIME if first is None or is_near else first
        yield "updated_us", NO_NUMBER if self.last_us is None or self.last_us == first else self.last_us
        yield "received_us", self.received_us


def versions_of(state: RowState) -> list[tuple[str, Version]]:
    """All versions of a row, overwritten ones first."""
    overwritten = (
        (name, Version(order, value, None)) for order, values in state.history.items() for name, value in values.items()
    )
    return list(chain(overwritten, state.current.items()))


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
