"""The values of runs for a table: out of what the catalogue keeps of each metric, without reading a point."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lens_core import PointQuery, RunValues
from lens_core.plugin_api.store import metric_name

from .identity import Connection
from .left_out import left_out
from .shown import SUBJECTS_OF_NAMES

# A curve is what one source logged of one metric of an attempt, on all ranks; its last value is that of the lowest of
# these. Of a run's curves the newest such value counts. Most runs have one stream, whose values are those of the run.
_ORDER = "order by rank, last_iteration desc, last_us desc, id desc"
_VALUES = f"""
    with streams as materialized (
        select uid, s.id, s.run_id, s.attempt, s.data_source, s.rank,
            count(*) over (partition by uid, s.run_id) = 1 as is_alone
        from {SUBJECTS_OF_NAMES} join lens_stream s using (subject_id) where s.id <> all(%(hidden)s::bigint[])
    ), kept as materialized (
        select s.*, c.metric, c.points, c.has_summary, c.lowest, c.highest, c.last_value, c.last_us, c.last_iteration
        from streams s join lens_catalogue c on c.stream_id = s.id
        where (s.id, c.metric) not in (select * from unnest(%(of)s::bigint[], %(metrics)s::text[]))
    ), most as materialized (
        select uid, metric from (
            select uid, metric,
                row_number() over (partition by uid order by sum(points) desc, metric collate "C") as place
            from kept group by uid, metric
        ) ordered where place <= %(most)s
    ), curves as (
        select uid, run_id, metric, attempt, data_source, bool_and(has_summary) as is_known,
            min(lowest) as lowest, max(highest) as highest,
            (array_agg(last_us {_ORDER}))[1] as last_us, (array_agg(last_value {_ORDER}))[1] as last_value
        from kept join most using (uid, metric) where not is_alone group by 1, 2, 3, 4, 5
    )
    select uid, run_id, metric, has_summary, case when abs(lowest) <> 'Infinity' then lowest end,
        case when abs(highest) <> 'Infinity' then highest end, last_value
        from kept join most using (uid, metric) where is_alone
    union all
    select uid, run_id, metric, bool_and(is_known),
        min(lowest) filter (where abs(lowest) <> 'Infinity'), max(highest) filter (where abs(highest) <> 'Infinity'),
        (array_agg(last_value order by last_us / 1000 desc, attempt, data_source))[1]
        from curves group by 1, 2, 3
""".encode()


_RUNS = f"""
    select uid, s.run_id, t.run_id from {SUBJECTS_OF_NAMES} join lens_stream s using (subject_id)
        join unnest(%(streams)s::bigint[], %(tellers)s::bigint[]) p (stream, teller) on s.id = p.stream
        join lens_stream t on t.id = p.teller and t.subject_id = s.subject_id
    where t.run_id <> s.run_id group by 1, 2, 3 order by 1, 2, 3
""".encode()


_NOT_FINITE = f"""
    with streams as materialized (
        select uid, s.* from {SUBJECTS_OF_NAMES} join lens_stream s using (subject_id) where s.rows > 0
    ), newest as (
        select distinct on (uid) uid, data_source, run_id, attempt from streams order by uid, last_seen_us desc, id desc
    )
    select uid, c.metric, array_agg(distinct s.rank)
        from newest join streams s using (uid, data_source, run_id, attempt)
        join lens_catalogue c on c.stream_id = s.id
        where s.rank >= 0 and c.has_summary and c.last_value in ('NaN', 'Infinity', '-Infinity') group by 1, 2
""".encode()


async def run_values(connection: Connection, uids: Sequence[str], most: int) -> dict[str, dict[str, RunValues]]:
    """By workload and run the values of the `most` metrics with the most points; workloads of which all are known."""
    if not uids:
        return {}
    hidden = await left_out(connection, PointQuery(workload_uid=uids[0], others=tuple(uids[1:])))
    asked = {"uids": list(uids), "most": most, **hidden.parameters(), "hidden": [*hidden.streams, *hidden.ranks]}
    cursor = await connection.execute(_VALUES, asked, binary=True)
    rows = await cursor.fetchall()
    names = {stored: metric_name(stored) for stored in {row[2] for row in rows}}
    found: dict[str, dict[str, RunValues]] = {uid: {} for uid in uids}
    unknown = set()
    for uid, run_id, stored, is_known, lowest, highest, last in rows:
        values = found[uid].get(run_id)
        if values is None:
            values = found[uid][run_id] = RunValues(last={}, lowest={}, highest={})
        name = names[stored]
        values.last[name] = math.nan if last is None else last
        if lowest is not None:
            values.lowest[name] = lowest
        if highest is not None:
            values.highest[name] = highest
        if not is_known:
            unknown.add(uid)
    return {uid: runs for uid, runs in found.items() if uid not in unknown}


async def not_finite_ranks(connection: Connection, uids: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    """By workload and metric the ranks of the newest attempt whose newest value is not finite."""
    cursor = await connection.execute(_NOT_FINITE, {"uids": list(uids)})
    found: dict[str, dict[str, list[int]]] = {}
    for uid, stored, ranks in await cursor.fetchall():
        found.setdefault(uid, {})[metric_name(stored)] = ranks
    return found


async def repeated_runs(connection: Connection, uids: Sequence[str]) -> dict[str, dict[str, str]]:
    """By workload the runs that tell of the training of another run, each with that one."""
    if not uids:
        return {}
    hidden = await left_out(connection, PointQuery(workload_uid=uids[0], others=tuple(uids[1:])))
    if not hidden.told_by:
        return {}
    asked = {"uids": list(uids), "streams": list(hidden.told_by), "tellers": list(hidden.told_by.values())}
    cursor = await connection.execute(_RUNS, asked)
    found: dict[str, dict[str, str]] = {}
    for uid, run_id, teller in await cursor.fetchall():
        found.setdefault(uid, {})[run_id] = teller
    return found
