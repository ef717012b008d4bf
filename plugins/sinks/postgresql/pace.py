"""Progress and rate of attempts, from their last rows, which the primary key finds at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lens_core import PointQuery, Progress
from lens_core.plugin_api.store import SHORTEST_SPAN_SECONDS, metric_name, progress_of

from .identity import Connection
from .shown import SUBJECTS_OF_NAMES

_MOST_RUNS = 200
_MOST_VALUES = 100
_ROWS = 100
_VALUE_ROWS = 10
# A speed needs so many different times: rows that share one say nothing about the time between them.
_LEAST_TIMES = 3
_TIME = "coalesce(event_time_us, received_us)"
# The speed is that of the last rows: how many iterations lie between the first and the last of them, in which time.
# Where their times coincide it is that of the whole attempt.
_LAST_ROWS = f"""
    cross join lateral (
        select max(iteration) as iteration, max(iteration)::numeric - min(iteration) as passed, max(at) as seen_us,
            max(at) - min(at) as took_us, count(distinct at) as times,
            jsonb_agg(metrics order by place) filter (where place <= {_VALUE_ROWS}) as newest
        from (select iteration, {_TIME} as at, metrics, row_number() over (order by row_step desc) as place
            from lens_row where stream_id = s.id order by row_step desc limit {_ROWS}) last_rows
    ) r
    where r.seen_us is not null
"""
_COLUMNS = """s.run_id, s.attempt, s.data_source, s.rank, r.iteration, s.target_iteration,
    r.passed, r.seen_us, r.took_us, r.times, s.last_iteration::numeric - s.first_iteration,
    s.last_seen_us - s.first_seen_us, r.newest"""


async def newest_progress(connection: Connection, uids: Sequence[str]) -> dict[str, Progress]:
    """Of each workload the stream that was written last; its target may come from another one (a log's)."""
    cursor = await connection.execute(
        f"with streams as (select uid, s.* from {SUBJECTS_OF_NAMES} join lens_stream s using (subject_id)"
        "  where s.rows > 0),"
        " newest as (select distinct on (uid) * from streams order by uid, last_seen_us desc, id desc),"
        " targets as (select uid, max(target_iteration) as target from streams group by uid)"
        f" select s.uid, {_COLUMNS.replace('s.target_iteration', 't.target')}"
        f" from newest s join targets t on t.uid = s.uid {_LAST_ROWS}".encode(),
        {"uids": list(uids)},
    )
    return {uid: _make_progress(row) for uid, *row in await cursor.fetchall()}


async def run_progress(connection: Connection, query: PointQuery) -> list[Progress]:
    """The attempts of a query, those written last first, at most 200; without values."""
    cursor = await connection.execute(
        f"select {_COLUMNS} from (select * from lens_stream"
        "  where rows > 0 and subject_id in (select subject_id from lens_name where uid = %(uid)s)"
        "  and (cardinality(%(sources)s::text[]) = 0 or data_source = any(%(sources)s))"
        "  and (%(run)s::text is null or run_id = %(run)s)"
        "  and (%(attempt)s::bigint is null or attempt = %(attempt)s)"
        f" order by last_seen_us desc, id desc limit {_MOST_RUNS}) s {_LAST_ROWS}".encode(),
        {"uid": query.workload_uid, "sources": query.sources, "run": query.run_id, "attempt": query.attempt},
    )
    return [_make_progress([*row[:-1], None]) for row in await cursor.fetchall()]


def _make_progress(row: Sequence[Any]) -> Progress:
    run_id, attempt, data_source, rank, iteration, target, passed, seen_us, took_us, times, *whole, newest = row
    if times < _LEAST_TIMES or took_us < SHORTEST_SPAN_SECONDS * 1e6:
        passed, took_us = whole
    # Numeric in the database: the difference of two steps may have more than 64 bits.
    figures: Any = progress_of(iteration, target, seen_us // 1000, int(passed or 0), took_us / 1e6)
    values: dict[str, float] = {}
    for metrics in newest or []:
        for stored, value in metrics.items():
            if len(values) < _MOST_VALUES:
                values.setdefault(metric_name(stored), float(value))
    return Progress(
        run_id=run_id,
        attempt=attempt,
        data_source=data_source,
        rank=None if rank < 0 else rank,
        iteration=iteration,
        target_iteration=target,
        last_values=values,
        **figures,
    )
