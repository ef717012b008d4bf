"""Rows as versions of their metrics. Pure, no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import sub
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lens_core import StepMetrics

from ..grouping import StreamKey
from ..layouts import Layout
from ..rows import Order, RowState, Version, order_of
from ..series import Doubles, Integers
from .native import Column, Texts
from .schema import COLUMNS, DEFAULTS, MOST_SEQUENCE, NO_METRIC, NO_NUMBER, NO_TIME

Bits = npt.NDArray[np.uint64]
_SIGN = np.uint64(2**63)
BITS_OF_NAN = 0xFFF8_0000_0000_0000
# Columns that are the same for all metrics of a write.
SHARED = (
    *("stream", "step", "priority", "sequence", "has_iteration", "iteration", "lag", "event_us", "updated_us"),
    "received_us",
)


def bits_of(values: Sequence[float] | Doubles) -> Bits:
    """Doubles as numbers in the order of `merge`, NaN above all; a zero has no sign, as jsonb has none."""
    with np.errstate(invalid="ignore"):  # of NaNs some signal, such as the stale marker of Prometheus
        found = np.array(values, np.float64) + 0.0
    bits = found.view(np.uint64)
    # All bits of a negative number are turned, of others the first.
    ordered = bits ^ ((found.view(np.int64) >> 63).view(np.uint64) | _SIGN)
    ordered[np.isnan(found)] = BITS_OF_NAN
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


class _Table(NamedTuple):
    """Many writes of one stream with the same metrics; a fact that is a number is that of all of them."""

    names: tuple[str, ...]
    values: Doubles
    facts: Mapping[str, Integers | int]

    @property
    def size(self) -> int:
        """The number of versions."""
        return self.values.size


class VersionColumns:
    """Versions to be inserted, column by column; what all metrics of a write share is kept once until then."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tables: list[_Table] = []
        # Of each other write: which metrics, and the columns that these share.
        self._layouts: list[int] = []
        self._facts: dict[str, list[int]] = {name: [] for name in SHARED}
        self._values: list[float] = []
        self._tags: dict[int, str] = {}  # by the place of the version
        self._layout_numbers: dict[tuple[str, ...], int] = {}

    @property
    def count(self) -> int:
        """The number of versions."""
        return len(self._values) + sum(table.size for table in self._tables)

    def append_usual(
        self, stream_id: int, key: StreamKey, rows: Sequence[StepMetrics], times: Sequence[int | None]
    ) -> None:
        """Add rows of which nothing is stored, each written once (at these times), with values and without tags.

        Column by column, because what is done to each row by itself is most of the cost of storing it.
        """
        facts, count = self._facts, len(rows)
        for row in rows:
            self._values += row.values.values()
        self._layouts += [self._layout(tuple(row.values)) for row in rows]
        sequences = [row.sequence for row in rows]
        facts["stream"] += repeat(stream_id, count)
        facts["step"] += [row.row_step for row in rows]
        if key.shared_by_ranks:
            facts["priority"] += [
                order_of(row.sequence, row.origin.rank, shared_by_ranks=True).priority for row in rows
            ]
        else:
            facts["priority"] += repeat(0, count)
        facts["sequence"] += sequences
        has_own = [row.iteration is not None and row.iteration != row.row_step for row in rows]
        facts["has_iteration"] += map(int, has_own)
        facts["iteration"] += [
            row.iteration if is_own and row.iteration is not None else NO_NUMBER
            for row, is_own in zip(rows, has_own, strict=True)
        ]
        near = [-MOST_SEQUENCE <= sequence <= MOST_SEQUENCE for sequence in sequences]
        known = [time_us for time_us in times if time_us is not None]
        if all(near) and len(known) == count:
            facts["lag"] += map(sub, known, sequences)
            facts["event_us"] += repeat(NO_TIME, count)
        else:
            placed = [_place_time(time_us, sequence) for time_us, sequence in zip(times, sequences, strict=True)]
            facts["lag"] += [lag for lag, _ in placed]
            facts["event_us"] += [event_us for _, event_us in placed]
        facts["updated_us"] += repeat(NO_NUMBER, count)
        facts["received_us"] += repeat(self._source.now_us, count)

    def append_tables(
        self,
        stream_id: int,
        key: StreamKey,
        rows: Sequence[StepMetrics],
        times_us: Integers,
        layouts: Iterable[Layout],
    ) -> None:
        """Add the same of many rows: those with the same metrics as a table."""
        for names, places, values in layouts:
            is_all = len(places) == len(rows)
            some, times = (rows, times_us) if is_all else ([rows[place] for place in places], times_us[places])
            if values is None:
                known = [None if time_us == NO_TIME else time_us for time_us in times.tolist()]
                self.append_usual(stream_id, key, some, known)
            else:
                self._tables.append(_Table(names, values, self._facts_of(stream_id, key, some, times)))

    def _facts_of(
        self, stream_id: int, key: StreamKey, rows: Sequence[StepMetrics], times_us: Integers
    ) -> dict[str, Integers | int]:
        """The columns that the metrics of these rows share."""
        facts: dict[str, Integers | int] = {"stream": stream_id, "priority": 0}
        facts["step"] = step = np.array([row.row_step for row in rows], np.int64)
        facts["sequence"] = sequence = np.array([row.sequence for row in rows], np.int64)
        if key.shared_by_ranks:
            orders = [order_of(row.sequence, row.origin.rank, shared_by_ranks=True) for row in rows]
            facts["priority"] = np.array([order.priority for order in orders], np.int64)
        iterations = [row.row_step if row.iteration is None else row.iteration for row in rows]
        iteration = np.array(iterations, np.int64)
        has_own = iteration != step
        is_own = bool(has_own.any())
        facts["has_iteration"] = has_own.astype(np.int64) if is_own else 0
        facts["iteration"] = np.where(has_own, iteration, NO_NUMBER) if is_own else NO_NUMBER
        is_timed = times_us != NO_TIME
        is_near = is_timed & (sequence >= -MOST_SEQUENCE) & (sequence <= MOST_SEQUENCE)
        if is_near.all():
            facts["lag"], facts["event_us"] = times_us - sequence, NO_TIME
        else:
            with np.errstate(over="ignore"):
                facts["lag"] = np.where(is_near, times_us - sequence, NO_TIME)
            facts["event_us"] = np.where(is_near, NO_TIME, times_us)
        facts["updated_us"], facts["received_us"] = NO_NUMBER, self._source.now_us
        return facts

    def append_versions(
        self,
        stream_id: int,
        row_step: int,
        versions: Iterable[tuple[str, Version]],
        state: RowState,
        received_us: int | None = None,
    ) -> None:
        """Add versions of a row whose times and iteration are those of `state`."""
        by_order: dict[Order, list[tuple[str, Version]]] = {}
        for metric, version in versions:
            by_order.setdefault(version.order, []).append((metric, version))
        if not by_order and not state.current:
            by_order[Order(0, 0)] = [(NO_METRIC, Version(Order(0, 0), 0.0, None))]
        for order, group in by_order.items():
            for place, (_, version) in enumerate(group, len(self._values)):
                if version.tags:
                    self._tags[place] = encode_tags(version.tags)
            self._values += [version.value for _, version in group]
            self._layouts.append(self._layout(tuple(name for name, _ in group)))
            lag, event_us = _place_time(state.first_us, order.sequence)
            is_first = state.last_us is None or state.last_us == state.first_us
            for name, number in (
                ("stream", stream_id),
                ("step", row_step),
                ("priority", order.priority),
                ("sequence", order.sequence),
                ("has_iteration", 0 if state.iteration is None else 1),
                ("iteration", NO_NUMBER if state.iteration is None else state.iteration),
                ("lag", lag),
                ("event_us", event_us),
                ("updated_us", NO_NUMBER if is_first or state.last_us is None else state.last_us),
                ("received_us", self._source.now_us if received_us is None else received_us),
            ):
                self._facts[name].append(number)

    def _layout(self, names: tuple[str, ...]) -> int:
        return self._layout_numbers.setdefault(names, len(self._layout_numbers))

    def columns(self) -> dict[str, Column]:
        """The columns by their names, for an insert, in the order of `sorted_order`.

        Left out are those of which every row has the default.
        """
        distinct = sorted(
            {name for names in [*self._layout_numbers, *(one.names for one in self._tables)] for name in names}
        )
        numbers = {name: number for number, name in enumerate(distinct)}
        codes = [np.array([numbers[name] for name in names], np.uint32) for names in self._layout_numbers]
        widths = np.array([code.size for code in codes], np.int64)[self._layouts]
        orders = [sorted(range(len(table.names)), key=table.names.__getitem__) for table in self._tables]
        found: dict[str, npt.NDArray[Any]] = {
            name: _join(
                [
                    np.repeat(np.array(self._facts[name], COLUMNS[name].lower()), widths),
                    *(_repeat(table.facts[name], table, COLUMNS[name].lower()) for table in self._tables),
                ]
            )
            for name in SHARED
            if not self._is_default(name)
        }
        found["codes"] = _join(
            [
                *(codes[number] for number in self._layouts),
                *(
                    np.repeat(np.array([numbers[table.names[place]] for place in order], np.uint32), len(table.values))
                    for table, order in zip(self._tables, orders, strict=True)
                ),
            ]
        )
        found["bits"] = bits_of(
            _join(
                [
                    np.array(self._values, np.float64),
                    *(
                        np.ascontiguousarray(table.values.T[order]).ravel()
                        for table, order in zip(self._tables, orders, strict=True)
                    ),
                ]
            )
        )
        sorting = sorted_order(found)
        if sorting is not None:
            found = {name: column[sorting] for name, column in found.items()}
        columns: dict[str, Column] = {**found, "metric": Texts(distinct, found["codes"])}
        del columns["codes"]
        if self._tags:
            places = range(self.count) if sorting is None else sorting.tolist()
            columns["tags"] = [self._tags.get(place, "") for place in places]
        columns["spool"] = np.full(self.count, self._source.spool, np.uint64)
        columns["position"] = np.full(self.count, self._source.position, np.uint64)
        return columns

    def _is_default(self, name: str) -> bool:
        """Whether a column has its default in all rows."""
        default, numbers = DEFAULTS.get(name), self._facts[name]
        return (
            isinstance(default, int)
            and numbers.count(default) == len(numbers)
            and all(isinstance(fact := table.facts[name], int) and fact == default for table in self._tables)
        )

    def points(self) -> Iterable[tuple[int, str, float]]:
        """The stream, the metric and the value of each version that is in no table."""
        layouts = list(self._layout_numbers)
        keys = chain.from_iterable(
            zip(repeat(stream), layouts[number])
            for stream, number in zip(self._facts["stream"], self._layouts, strict=True)
        )
        return ((stream, metric, value) for (stream, metric), value in zip(keys, self._values, strict=True))

    def streams(self) -> set[int]:
        """The streams that versions are of."""
        streams = (table.facts["stream"] for table in self._tables)
        return {*self._facts["stream"], *(stream for stream in streams if isinstance(stream, int))}


def _join(pieces: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    found = [piece for piece in pieces if piece.size]
    return found[0] if len(found) == 1 else np.concatenate(found or pieces)


def _repeat(fact: Integers | int, table: _Table, kind: str) -> npt.NDArray[Any]:
    """A fact of each write of a table, for each of its metrics."""
    if isinstance(fact, int):
        return np.full(table.size, fact, kind)
    return np.tile(fact.astype(kind, copy=False), len(table.names))


def times_of(columns: Mapping[str, Any]) -> Integers:
    """The time of each version, as `schema.TIME` has it."""
    lag, received, sequence = (np.asarray(columns[name], np.int64) for name in ("lag", "received_us", "sequence"))
    if lag.max() < NO_TIME:
        return sequence + lag
    event = np.asarray(columns.get("event_us", DEFAULTS["event_us"]), np.int64)
    with np.errstate(over="ignore"):
        near = sequence + lag
    return np.where(lag < NO_TIME, near, np.where(event < NO_TIME, event, received))


def sorted_order(columns: Mapping[str, npt.NDArray[Any]]) -> Integers | None:
    """The order stream, metric, step, time; None where versions are in it, no two of one metric and step.

    It is that of the table, so that ClickHouse has nothing to sort.
    """
    stream, codes, step = columns["stream"], columns["codes"], columns["step"]
    is_stream, is_metric = stream[1:] == stream[:-1], codes[1:] == codes[:-1]
    is_next = (stream[1:] > stream[:-1]) | (is_stream & (codes[1:] > codes[:-1]))
    if (is_next | (is_stream & is_metric & (step[1:] > step[:-1]))).all():
        return None
    first_stream, first_step = stream.min(), step.min()
    step_bits = (int(step.max()) - int(first_step)).bit_length()
    code_bits = int(codes.max()).bit_length()
    if int(stream.max() - first_stream).bit_length() + code_bits + step_bits < 63:
        keys = ((stream - first_stream).astype(np.int64) << code_bits | codes) << step_bits | (step - first_step)
        order = np.argsort(keys)
        keys = keys[order]
        if (keys[1:] != keys[:-1]).all():
            return order
    return np.lexsort((times_of(columns), step, codes, stream))


def _place_time(time_us: int | None, sequence: int) -> tuple[int, int]:
    """The columns `lag` and `event_us` of the time at which a row was first logged."""
    if time_us is None:
        return NO_TIME, NO_TIME
    return (time_us - sequence, NO_TIME) if -MOST_SEQUENCE <= sequence <= MOST_SEQUENCE else (NO_TIME, time_us)


def versions_of(state: RowState) -> list[tuple[str, Version]]:
    """All versions of a row, overwritten ones first."""
    overwritten = (
        (name, Version(order, value, None)) for order, values in state.history.items() for name, value in values.items()
    )
    return list(chain(overwritten, state.current.items()))
