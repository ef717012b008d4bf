"""Reads what an answer leaves out, because another part of it says the same: echoes of frameworks, and copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lens_core import PointQuery

from .copies import Candidate, choose_copies, drop_copies_of_runs
from .echoes import NOTHING, OUTSIDE, LeftOut, Member, choose
from .identity import Connection

_MOST_RUNS = 200
_SUBJECTS = "(select subject_id from lens_name where uid = any(%(uids)s))"
_ASKED = (
    " and (%(run)s::text is null or s.run_id = %(run)s) and (%(attempt)s::bigint is null or s.attempt = %(attempt)s)"
)
_OF_RANK = " and (%(rank)s::bigint is null or s.rank = %(rank)s)"
_KINDS = f"""
    select s.echo_of, s.echo_of = s.data_source from lens_stream s
        where s.subject_id in {_SUBJECTS} and s.echo_of <> '' group by 1, 2
    union all
    select '', true where exists (
        select from lens_stream s where s.subject_id in {_SUBJECTS} and s.data_source = any(%(outside)s))
""".encode()
_MEMBERS = f"""
    select s.id, s.subject_id, case when s.echo_of = '' then s.data_source else s.echo_of end, s.data_source,
        s.run_id, s.attempt, s.rank, coalesce(s.first_seen_us, 0), coalesce(s.last_seen_us, 0),
        coalesce(c.points, s.rows), coalesce(c.metrics, '{{}}'), coalesce(c.has_others, false)
    from lens_stream s left join lateral (
        select max(points) filter (where is_echo) as points, array_agg(metric) filter (where is_echo) as metrics,
            bool_or(not is_echo) as has_others from lens_catalogue where stream_id = s.id) c on true
    where s.subject_id in {_SUBJECTS} and s.rows > 0 and s.echo_of <> s.data_source
        and (s.echo_of <> '' or s.data_source = any(%(frameworks)s)) {_ASKED} {_OF_RANK}
""".encode()
# Of each run the streams without a rank and those of its lowest rank, which stands for all: what is read from outside
# does not tell ranks apart. The index is stepped through from run to run, so that the other ranks are not looked at.
_RUN_OF_SUBJECT = """select subject_id, data_source, run_id, rank from lens_stream where subject_id = n.subject_id
    {after} order by 1, 2, 3, 4 limit 1"""
_CANDIDATES = f"""
    with recursive runs as (
        select n.uid, r.*, 1 as place from (select distinct uid, subject_id from lens_name where uid = any(%(uids)s)) n
            cross join lateral ({_RUN_OF_SUBJECT.format(after="")}) r
        union all
        select n.uid, r.*, n.place + 1 from runs n cross join lateral ({
    _RUN_OF_SUBJECT.format(after="and (data_source, run_id) > (n.data_source, n.run_id)")
}) r where n.place < %(most)s
    ), ranks as materialized (
        select * from runs union
        select r.uid, r.subject_id, r.data_source, r.run_id, l.rank, r.place from runs r cross join lateral (
            select min(rank) as rank from lens_stream where subject_id = r.subject_id
                and data_source = r.data_source and run_id = r.run_id and rank >= 0) l
    )
    select s.id, r.uid, s.data_source, s.echo_of, s.run_id, s.rank, s.first_seen_us, s.last_seen_us,
        coalesce(s.last_iteration, 0), s.rows, array_agg(c.metric), array_agg(c.points)
    from ranks r cross join lateral (
        select * from lens_stream where subject_id = r.subject_id and data_source = r.data_source
            and run_id = r.run_id and rank = r.rank offset 0
    ) s join lens_catalogue c on c.stream_id = s.id
    where s.rows > 0 and s.first_seen_us is not null
        and (cardinality(%(sources)s::text[]) = 0 or s.data_source = any(%(sources)s)) {_ASKED}
    group by r.uid, s.id, s.data_source, s.echo_of, s.run_id, s.rank, s.first_seen_us, s.last_seen_us, s.last_iteration,
        s.rows
""".encode()


async def left_out(connection: Connection, query: PointQuery) -> LeftOut:
    """The rows that the answer to a query leaves out.

    Where it names its data sources, that is what a collector has of a run which the job has logged itself; where it
    names one rank, what other trackers of the rank repeat.
    """
    asked: dict[str, Any] = {
        "uids": [query.workload_uid, *query.others],
        "run": query.run_id,
        "attempt": query.attempt,
        "rank": query.rank,
        "sources": query.sources,
        "outside": list(OUTSIDE),
        "most": _MOST_RUNS,
    }
    cursor = await connection.execute(_KINDS, asked)
    kinds = await cursor.fetchall()
    frameworks = [framework for framework, is_outside in kinds if not is_outside]
    found = NOTHING
    if frameworks and not query.sources:
        cursor = await connection.execute(_MEMBERS, {**asked, "frameworks": frameworks})
        rows = await cursor.fetchall()
        found = choose(Member._make((*row[:10], frozenset(row[10]), row[11])) for row in rows)
    if query.rank is not None or not any(is_outside for _, is_outside in kinds):
        return found
    candidates = await _read_candidates(connection, asked)
    return drop_copies_of_runs(candidates) if query.sources else choose_copies(candidates, found)


async def _read_candidates(connection: Connection, asked: Mapping[str, Any]) -> list[Candidate]:
    cursor = await connection.execute(_CANDIDATES, asked)
    rows = await cursor.fetchall()
    return [Candidate._make((*row[:-2], dict(zip(row[-2], row[-1], strict=True)))) for row in rows]
