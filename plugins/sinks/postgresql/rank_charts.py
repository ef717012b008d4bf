"""Charts of attempts with very many ranks: the mean over the ranks with its band, out of summaries that are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import numpy as np

from lens_core import PointColumns, PointQuery
from lens_core.plugin_api.store import metric_name

from .answer_columns import answer_columns
from .echoes import LeftOut
from .identity import Connection
from .rank_summaries import LEVELS
from .series import Doubles, Integers
from .streams import Window, window_of
from .text import metric_key

_FINER = 16  # times as many summaries are read as are answered, where there are as many
_SUBJECTS = "(select subject_id from lens_name where uid = any(%(uids)s))"
_CURVES = f"""
    select id, data_source, run_id, attempt from lens_curve where is_whole and subject_id in {_SUBJECTS}
        and (cardinality(%(sources)s::text[]) = 0 or data_source = any(%(sources)s))
        and (%(run)s::text is null or run_id = %(run)s)
        and (%(attempt)s::bigint is null or attempt = %(attempt)s)
    order by run_id, attempt, data_source, id
""".encode()
# All other streams. Curves are stepped through by the index, whose ranks are then not looked at.
_CURVE_OF_SUBJECT = """select subject_id, data_source, run_id, attempt from lens_stream where subject_id = n.subject_id
    {after} order by 1, 2, 3, 4 limit 1"""
_BESIDE = f"""
    with recursive curves as (
        select c.* from (select distinct subject_id from lens_name where uid = any(%(uids)s)) n
            cross join lateral ({_CURVE_OF_SUBJECT.format(after="")}) c
        union all
        select c.* from curves n cross join lateral ({
    _CURVE_OF_SUBJECT.format(after="and (data_source, run_id, attempt) > (n.data_source, n.run_id, n.attempt)")
}) c
    )
    select s.id from curves c join lens_stream s using (subject_id, data_source, run_id, attempt) where not exists (
        select from lens_curve k where k.is_whole and k.subject_id = c.subject_id and k.data_source = c.data_source
            and k.run_id = c.run_id and k.attempt = c.attempt)
""".encode()
_SUMMARIES = b"""
    select points, numbers, total, lowest, highest, last_us, last_iteration, lead_value from lens_ranks
    where curve_id = %s and level = %s and metric = %s and last_us between %s and %s and points > 0 order by place
"""
_COUNT = b"""
    select count(*) from (select from lens_ranks
        where curve_id = %s and level = %s and metric = %s and last_us between %s and %s limit %s) few
"""


class RankCurve(NamedTuple):
    """One attempt of a run as one source logged it on very many ranks."""

    id: int
    data_source: str
    run_id: str
    attempt: int


class _Columns(NamedTuple):
    """Summaries as columns, in the order of their iterations; NaN where no value is finite."""

    points: Integers
    numbers: Integers
    total: Doubles
    lowest: Doubles
    highest: Doubles
    last_us: Integers
    last_iteration: Integers
    lead: Doubles


async def rank_curves(connection: Connection, query: PointQuery, hidden: LeftOut) -> list[RankCurve]:
    """The curves of a query that are answered by summaries; none where some of the ranks' rows are left out."""
    if query.over_ranks is None or query.rank is not None or hidden.of_ranks:
        return []
    cursor = await connection.execute(
        _CURVES,
        {
            "uids": [query.workload_uid, *query.others],
            "sources": query.sources,
            "run": query.run_id,
            "attempt": query.attempt,
        },
    )
    return [RankCurve(*row) for row in await cursor.fetchall()]


async def streams_beside(connection: Connection, query: PointQuery) -> list[int]:
    """The streams of a query's workloads that no summaries answer for."""
    cursor = await connection.execute(_BESIDE, {"uids": [query.workload_uid, *query.others]})
    return [int(row[0]) for row in await cursor.fetchall()]


async def count_rank_points(connection: Connection, curves: Sequence[RankCurve]) -> Sequence[tuple[str, str, int]]:
    """The points of each metric and data source of curves."""
    if not curves:
        return []
    cursor = await connection.execute(
        "select r.metric, c.data_source, sum(r.points)::bigint from lens_ranks r join lens_curve c on c.id = r.curve_id"
        " where r.curve_id = any(%s) and r.level = %s group by 1, 2 having sum(r.points) > 0",
        [[curve.id for curve in curves], LEVELS - 1],
    )
    return await cursor.fetchall()


async def rank_columns(
    connection: Connection, query: PointQuery, curves: Sequence[RankCurve]
) -> AsyncIterator[PointColumns]:
    """The summaries of curves in the order metric, run, attempt: the mean, and beside it the band and the lowest rank.

    Of each metric at most `over_ranks`, shared among its curves; the first and the last stand for themselves.
    """
    by_metric = await _curves_by_metric(connection, query, curves)
    window = window_of(query)
    for stored, found in by_metric:
        most = max(3, (query.over_ranks or 0) // len(found))
        for curve in found:
            columns = _merge_summaries(await _read_summaries(connection, curve, stored, window, most), most)
            if columns.points.size:
                yield _point_columns(metric_name(stored), curve, columns)


async def _curves_by_metric(
    connection: Connection, query: PointQuery, curves: Sequence[RankCurve]
) -> list[tuple[str, list[RankCurve]]]:
    wanted = None if query.metrics is None else sorted({metric_key(name) for name in query.metrics})
    cursor = await connection.execute(
        "select distinct metric, curve_id from lens_ranks where curve_id = any(%s) and level = %s"
        " and (%s::text[] is null or metric = any(%s))",
        [[curve.id for curve in curves], LEVELS - 1, wanted, wanted],
    )
    known = set(await cursor.fetchall())
    metrics = sorted({metric for metric, _ in known}, key=metric_name)
    return [(metric, [curve for curve in curves if (metric, curve.id) in known]) for metric in metrics]


async def _read_summaries(connection: Connection, curve: RankCurve, metric: str, window: Window, most: int) -> _Columns:
    """The summaries of the finest level that has not too many of them, else of the coarsest."""
    for level in range(LEVELS):
        asked = [curve.id, level, metric, window.start_us, window.end_us]
        cursor = await connection.execute(_COUNT, [*asked, _FINER * most + 1])
        ((count,),) = await cursor.fetchall()
        if count <= _FINER * most or level == LEVELS - 1:
            break
    cursor = await connection.execute(_SUMMARIES, asked, binary=True)
    rows = await cursor.fetchall()
    kinds = (np.int64, np.int64, float, float, float, np.int64, np.int64, float)
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return _Columns(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def _merge_summaries(found: _Columns, most: int) -> _Columns:
    """At most `most` summaries; the first and the last are not merged with others."""
    size = found.points.size
    if size <= most:
        return found
    inner = 1 + np.arange(most - 2) * (size - 2) // (most - 2)
    starts = np.concatenate([[0], inner, [size - 1]])
    ends = np.append(starts[1:], size) - 1
    with np.errstate(over="ignore", invalid="ignore"):
        totals = np.add.reduceat(found.total, starts)
    return _Columns(
        np.add.reduceat(found.points, starts),
        np.add.reduceat(found.numbers, starts),
        totals,
        np.fmin.reduceat(found.lowest, starts),
        np.fmax.reduceat(found.highest, starts),
        np.maximum.reduceat(found.last_us, starts),
        found.last_iteration[ends],
        found.lead[ends],
    )


def _point_columns(name: str, curve: RankCurve, columns: _Columns) -> PointColumns:
    has_numbers = columns.numbers > 0
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.clip(columns.total / np.maximum(columns.numbers, 1), columns.lowest, columns.highest)
    extras = {
        "min": _or_none(columns.lowest),
        "max": _or_none(columns.highest),
        "count": columns.points.tolist(),
        "not_finite": (columns.points - columns.numbers).tolist(),
        "lowest_rank": _or_none(columns.lead),
    }
    values = np.where(has_numbers, means, columns.lead)
    return answer_columns(name, curve, columns.last_iteration, columns.last_us, values, extras)


def _or_none(values: Doubles) -> list[float | None]:
    return [value if is_finite else None for value, is_finite in zip(values.tolist(), np.isfinite(values), strict=True)]
