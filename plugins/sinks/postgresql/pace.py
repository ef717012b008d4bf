"""Progress and rate of attempts, from their last rows, which the store of points finds at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lens_core import PointQuery, Progress
from lens_core.plugin_api.store import SHORTEST_SPAN_SECONDS, metric_name, progress_of

from .identity import Connection
from .point_store import LastRows, PointStore
from .shown import SUBJECTS_OF_NAMES

_MOST_RUNS = 200
_MOST_VALUES = 100
# A speed needs so many different times: rows that share one say nothing about the time between them.
_LEAST_TIMES = 3
# The speed is that of the last rows: how many iterations lie between the first and the last of them, in which time.
# If their times coincide it is that of the whole attempt.
_COLUMNS = """s.id, s.run_id, s.attempt, s.data_source, s.rank, {target},
    s.last_iteration::numeric - s.first_iteration, s.last_seen_us - s.first_seen_us"""


async def newest_progress(connection: Connection, store: PointStore, uids: Sequence[str]) -> dict[str, Progress]:
    """Of each workload the stream that was written last; its target may come from another one (a log's).

    The values are those of the lowest rank of that attempt, and of the stream itself what that rank does not log.
    """
    cursor = await connection.execute(
        f"with streams as (select uid, s.* from {SUBJECTS_OF_NAMES} join lens_stream s using (subject_id)"
        "  where s.rows > 0),"
        " newest as (select distinct on (uid) * from streams order by uid, last_seen_us desc, id desc),"
        " targets as (select uid, max(target_iteration) as target from streams group by uid),"
        " lowest as (select distinct on (uid) uid, s.id from streams s"
        "  join newest n using (uid, data_source, run_id, attempt) where s.rank >= 0 order by uid, s.rank)"
        f" select s.uid, l.id, {_COLUMNS.format(target='t.target')} from newest s join targets t on t.uid = s.uid"
        " left join lowest l on l.uid = s.uid".encode(),
        {"uids": list(uids)},
    )
    streams = {uid: (lowest, row) for uid, lowest, *row in await cursor.fetchall()}
    asked = {stream_id for lowest, row in streams.values() for stream_id in (lowest, row[0]) if stream_id is not None}
    rows = await store.last_rows(connection, sorted(asked))
    return {
        uid: _make_progress(row, _led_by(rows[row[0]], rows.get(lowest)))
        for uid, (lowest, row) in streams.items()
        if row[0] in rows
    }


def _led_by(rows: LastRows, leader: LastRows | None) -> LastRows:
    """The last rows, with the values of another stream before their own."""
    return rows if leader is None or leader is rows else rows._replace(metrics=[*leader.metrics, *rows.metrics])


async def run_progress(connection: Connection, store: PointStore, query: PointQuery) -> list[Progress]:
    """The attempts of a query, those written last first, at most 200; without values."""
    cursor = await connection.execute(
        f"select {_COLUMNS.format(target='s.target_iteration')} from lens_stream s"
        " where rows > 0 and subject_id in (select subject_id from lens_name where uid = %(uid)s)"
        " and (cardinality(%(sources)s::text[]) = 0 or data_source = any(%(sources)s))"
        " and (%(run)s::text is null or run_id = %(run)s)"
        " and (%(attempt)s::bigint is null or attempt = %(attempt)s)"
        f" order by last_seen_us desc, id desc limit {_MOST_RUNS}".encode(),
        {"uid": query.workload_uid, "sources": query.sources, "run": query.run_id, "attempt": query.attempt},
    )
    streams = await cursor.fetchall()
    rows = await store.last_rows(connection, [row[0] for row in streams])
    return [_make_progress(row, rows[row[0]]._replace(metrics=[])) for row in streams if row[0] in rows]


def _make_progress(stream: Sequence[Any], rows: LastRows) -> Progress:
    _, run_id, attempt, data_source, rank, target, *whole = stream
    passed, took_us = rows.passed, rows.took_us
    if rows.times < _LEAST_TIMES or took_us < SHORTEST_SPAN_SECONDS * 1e6:
        passed, took_us = whole
    # Numeric in the database: the difference of two steps may have more than 64 bits.
    figures: Any = progress_of(rows.iteration, target, rows.seen_us // 1000, int(passed or 0), took_us / 1e6)
    values: dict[str, float] = {}
    for metrics in rows.metrics:
        for stored, value in metrics.items():
            if len(values) < _MOST_VALUES:
                values.setdefault(metric_name(stored), float(value))
    return Progress(
        run_id=run_id,
        attempt=attempt,
        data_source=data_source,
        rank=None if rank < 0 else rank,
        iteration=rows.iteration,
        target_iteration=target,
        last_values=values,
        **figures,
    )
