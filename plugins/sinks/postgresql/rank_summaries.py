"""Summaries over the ranks of an attempt, kept as batches are stored, where there are very many ranks.

Every iteration has one for each metric, and so have 16, 256, 4,096 … iterations together, so that a chart reads about
as many as it draws. A value that is overwritten is taken out of the mean, but stays within the lowest and the highest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from .encoding import StreamChange
from .grouping import StreamKey
from .identity import Connection, StreamId
from .news_log import StepRange
from .point_store import PointStore
from .text import array_of_numbers

# From this rank on (they begin with 0) there are very many.
MANY_RANKS = 256
LEVELS = 6
LEVEL_BITS = 4
_MOST_EARLIER_ROWS = 20_000
_HIGHEST = 2**63 - 1
_LOWEST = -(2**63)


class CurveKey(NamedTuple):
    """One attempt of a run as one data source logged it."""

    subject_id: int
    data_source: str
    run_id: str
    attempt: int


@dataclass(slots=True)
class Summary:
    """Figures of what the ranks logged of a metric in some iterations; the table says what the fields mean."""

    points: int = 0
    numbers: int = 0
    total: float = 0.0
    lowest: float | None = None
    highest: float | None = None
    first_us: int = _HIGHEST
    last_us: int = _LOWEST
    last_iteration: int = _LOWEST
    lead_rank: int = 2**31 - 1
    lead_value: float = math.nan

    def exclude(self, value: float) -> None:
        """Take out a point that was overwritten."""
        self.points -= 1
        if math.isfinite(value):
            self.numbers -= 1
            self.total -= value

    def merge_summary(self, other: Summary) -> None:
        """Add what another one says of other points."""
        self.points += other.points
        self.numbers += other.numbers
        self.total += other.total
        for value in (other.lowest, other.highest):
            if value is not None:
                self.lowest = value if self.lowest is None or value < self.lowest else self.lowest
                self.highest = value if self.highest is None or value > self.highest else self.highest
        self.first_us, self.last_us = min(self.first_us, other.first_us), max(self.last_us, other.last_us)
        if (other.last_iteration, -other.lead_rank) >= (self.last_iteration, -self.lead_rank):
            self.last_iteration, self.lead_rank = other.last_iteration, other.lead_rank
            self.lead_value = other.lead_value


# `dataclasses.astuple` copies each value, which takes ten times as long.
_FIGURES = attrgetter(*(field.name for field in fields(Summary)))


Summaries: TypeAlias = dict[tuple[int, str, int], Summary]  # by level, metric and place
# By metrics and iteration: rank, time and values of rows.
_Groups: TypeAlias = dict[tuple[tuple[str, ...], int], list[tuple[int, int, Iterable[float | str]]]]
_IS_LEAD = "(excluded.last_iteration, -excluded.lead_rank) >= (known.last_iteration, -known.lead_rank)"
# A sum that is no double any more is infinite, where PostgreSQL would refuse it.
_TOTAL = (
    "case when sign(known.total) <> sign(excluded.total) or greatest(abs(known.total), abs(excluded.total)) < 8e307"
    " then known.total + excluded.total else known.total * 'Infinity' end"
)
_WRITE = f"""
    insert into lens_ranks as known select * from unnest(%s::bigint[], %s::int2[], %s::text[], %s::bigint[],
        %s::bigint[], %s::bigint[], %s::float8[], %s::float8[], %s::float8[], %s::bigint[], %s::bigint[], %s::bigint[],
        %s::int[], %s::float8[])
    on conflict (curve_id, level, metric, place) do update set points = known.points + excluded.points,
        numbers = known.numbers + excluded.numbers, total = {_TOTAL},
        lowest = least(known.lowest, excluded.lowest), highest = greatest(known.highest, excluded.highest),
        first_us = least(known.first_us, excluded.first_us), last_us = greatest(known.last_us, excluded.last_us),
        last_iteration = greatest(known.last_iteration, excluded.last_iteration),
        lead_rank = case when {_IS_LEAD} then excluded.lead_rank else known.lead_rank end,
        lead_value = case when {_IS_LEAD} then excluded.lead_value else known.lead_value end
""".encode()


async def update_rank_summaries(
    connection: Connection,
    store: PointStore,
    ids: Mapping[StreamKey, StreamId],
    changes: Mapping[int, StreamChange],
    with_curves: Collection[int],
) -> None:
    """Add a batch to the summaries of its curves, within its transaction; `with_curves` are the subjects that have any.

    The subjects are locked by then, so that all who write about a curve do this one after another: whoever makes a
    curve finds all rows that were there before, and nobody misses that it was made.
    """
    curves: dict[CurveKey, dict[int, int]] = {}  # the rank of each stream
    for key, found in ids.items():
        if (key.rank >= MANY_RANKS or found.subject_id in with_curves) and not changes[found.stream_id].is_empty:
            curve = CurveKey(found.subject_id, key.data_source, key.run_id, found.attempt)
            curves.setdefault(curve, {})[found.stream_id] = key.rank
    known = await _known_curves(connection, list(curves))
    for curve, ranks in sorted(curves.items()):
        if curve in known:
            curve_id, is_whole = known[curve]
            if is_whole:
                summaries = summarize_changes((changes[stream_id], rank) for stream_id, rank in sorted(ranks.items()))
                await write_summaries(connection, curve_id, summaries)
        elif max(ranks.values()) >= MANY_RANKS:
            await _make_curve(connection, store, curve)


async def _known_curves(connection: Connection, curves: Sequence[CurveKey]) -> dict[CurveKey, tuple[int, bool]]:
    if not curves:
        return {}
    cursor = await connection.execute(
        "select subject_id, data_source, run_id, attempt, id, is_whole from lens_curve join"
        " unnest(%s::bigint[], %s::text[], %s::text[], %s::int[]) k (subject_id, data_source, run_id, attempt)"
        " using (subject_id, data_source, run_id, attempt)",
        [list(column) for column in zip(*curves, strict=True)],
    )
    return {CurveKey(*key): (curve_id, is_whole) for *key, curve_id, is_whole in await cursor.fetchall()}


async def _make_curve(connection: Connection, store: PointStore, curve: CurveKey) -> None:
    """Make a curve with the summaries of all rows that there are, unless these are too many."""
    cursor = await connection.execute(
        "select id, rank, rows from lens_stream where (subject_id, data_source, run_id, attempt) = (%s, %s, %s, %s)"
        " and rows > 0 order by id",
        list(curve),
    )
    streams = await cursor.fetchall()
    is_whole = sum(rows for *_, rows in streams) <= _MOST_EARLIER_ROWS
    cursor = await connection.execute(
        "insert into lens_curve (subject_id, data_source, run_id, attempt, is_whole) values (%s, %s, %s, %s, %s)"
        " returning id",
        [*curve, is_whole],
    )
    ((curve_id,),) = await cursor.fetchall()
    await connection.execute("update lens_subject set has_curves = true where id = %s", [curve.subject_id])
    if not is_whole:
        return
    ranges = [StepRange(stream_id, _LOWEST, _HIGHEST, rows) for stream_id, _, rows in streams]
    groups: _Groups = defaultdict(list)
    for (_, rank, _), rows in zip(
        streams, await store.shown_ranges(connection, ranges, _MOST_EARLIER_ROWS), strict=True
    ):
        for row in rows:
            groups[tuple(row.metrics), row.iteration].append((rank, row.time_us, row.metrics.values()))
    await write_summaries(connection, curve_id, _summarize_groups(groups))


def summarize_changes(changes: Iterable[tuple[StreamChange, int]]) -> Summaries:
    """Summaries of the iterations that batches changed, each change with its rank."""
    groups: _Groups = defaultdict(list)
    gone: list[tuple[int, Mapping[str, float]]] = []
    for change, rank in changes:
        gone += change.overwritten
        for rows, times_us, iterations in change.noted:
            for values, time_us, iteration in zip(rows, times_us, iterations, strict=True):
                groups[tuple(values), iteration].append((rank, time_us, values.values()))
    summaries = _summarize_groups(groups)
    for iteration, values in gone:
        for metric, value in values.items():
            summaries.setdefault((0, metric, iteration), Summary()).exclude(value)
    return summaries


def _summarize_groups(groups: _Groups) -> Summaries:
    """Summaries of rows by their metrics and iteration."""
    summaries: Summaries = {}
    for (metrics, iteration), rows in groups.items():
        values = np.array([tuple(row) for *_, row in rows], float)
        is_finite = np.isfinite(values)
        with np.errstate(over="ignore", invalid="ignore"):
            totals = np.where(is_finite, values, 0.0).sum(axis=0).tolist()
        lowest = np.where(is_finite, values, np.inf).min(axis=0).tolist()
        highest = np.where(is_finite, values, -np.inf).max(axis=0).tolist()
        numbers = is_finite.sum(axis=0).tolist()
        lead = min(range(len(rows)), key=lambda place: (rows[place][0], -place))
        times = [time_us for _, time_us, _ in rows]
        first_us, last_us = min(times), max(times)
        for metric, number, total, low, high, led in zip(
            metrics, numbers, totals, lowest, highest, values[lead].tolist(), strict=True
        ):
            summaries.setdefault((0, metric, iteration), Summary()).merge_summary(
                Summary(
                    *(len(rows), number, total, low if number else None, high if number else None),
                    *(first_us, last_us, iteration, rows[lead][0], led),
                )
            )
    return summaries


def with_levels(summaries: Summaries) -> Summaries:
    """The same with those of the coarser levels, all of them in the order of their keys."""
    found = dict(summaries)
    for (_, metric, iteration), summary in summaries.items():
        for level in range(1, LEVELS):
            found.setdefault((level, metric, iteration >> (LEVEL_BITS * level)), Summary()).merge_summary(summary)
    return dict(sorted(found.items()))


async def write_summaries(connection: Connection, curve_id: int, summaries: Summaries) -> None:
    """Add summaries of iterations to those of a curve, on all levels."""
    if not summaries:
        return
    every = with_levels(summaries)
    levels, metrics, places = (list(column) for column in zip(*every, strict=True))
    columns = zip(*map(_FIGURES, every.values()), strict=True)
    await connection.execute(
        _WRITE,
        [
            array_of_numbers([curve_id] * len(every)),
            *(array_of_numbers(levels), metrics, array_of_numbers(places)),
            *map(array_of_numbers, columns),
        ],
    )
