"""The list of workloads in one question: what needs attention first, with the newest event that tells how it is."""

from __future__ import annotations

import time
from typing import Any

from lens_core import BadRequest, WorkloadSummary
from lens_core.overview import ATTENTION_DAYS, ATTENTION_EVENTS, GOES_ON_MS, STATE_EVENTS, Overview, OverviewPage

from .identity import Connection
from .listing import SHOWN

# One line per name that is shown; the events are looked up by index, one row each.
_LINES = f"""
    with lines as (
        select cluster, uid, max(name) as name, max(namespace) as namespace, sum(rows)::bigint as rows,
            max(last_iteration) as last_iteration, min(first_seen_us) as first_seen, max(last_seen_us) as last_seen,
            array_agg(subject_id) as subjects
        from ({SHOWN}) shown
        where %(search)s = '' or uid ilike %(pattern)s or name ilike %(pattern)s or namespace ilike %(pattern)s
        group by cluster, uid
    ), known as (
        select lines.*, e.type, e.event_time_us, e.iteration,
            case when e.type = any(%(attention)s) and e.event_time_us > %(since)s then coalesce((
                select max(last_seen_us) from lens_stream where subject_id = any(lines.subjects) and rows > 0
            ), 0) <= e.event_time_us + %(goes_on)s else false end as attention
        from lines left join lateral (
            select e.type, e.event_time_us, e.iteration from unnest(lines.subjects) as s(id) cross join lateral (
                select type, event_time_us, iteration, id from lens_event
                where subject_id = s.id and type = any(%(states)s) order by event_time_us desc, id desc limit 1
            ) e order by e.event_time_us desc, e.id desc limit 1
        ) e on true
    )
"""
_PAGE = """
    , page as (
        select *, (select count(*) from lines) as total from known
        where %(seen)s::bigint is null or (attention, last_seen, uid) < (%(first)s::boolean, %(seen)s, %(after)s)
        order by attention desc, last_seen desc, uid desc limit %(limit)s
    )
    select cluster, uid, name, namespace, rows, last_iteration, first_seen, last_seen, attention, type, event_time_us,
        iteration, total, target, last_row
    from page cross join lateral (
        select max(target_iteration) as target, max(last_seen_us) as last_row from lens_stream
        where subject_id = any(page.subjects) and rows > 0
    ) streams order by attention desc, last_seen desc, uid desc
"""


async def overview(connection: Connection, search: str, limit: int, cursor: str) -> OverviewPage:
    """A page of the list. Raises BadRequest for a cursor that this did not give."""
    attention, seen, after = _read_cursor(cursor)
    found = await connection.execute(
        (_LINES + _PAGE).encode(),
        {
            "search": search,
            "pattern": "%" + search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%",
            "attention": list(ATTENTION_EVENTS),
            "states": list(STATE_EVENTS),
            "since": time.time_ns() // 1000 - ATTENTION_DAYS * 86_400_000_000,
            "goes_on": GOES_ON_MS * 1000,
            "first": attention,
            "seen": seen,
            "after": after,
            "limit": limit + 1,
        },
    )
    rows = await found.fetchall()
    following = _cursor(rows[limit - 1]) if len(rows) > limit else ""
    return OverviewPage([_line(row) for row in rows[:limit]], following, int(rows[0][12]) if rows else 0)


def _line(row: tuple[Any, ...]) -> Overview:
    (
        cluster,
        uid,
        name,
        namespace,
        count,
        last_iteration,
        first_seen,
        last_seen,
        _,
        event,
        event_us,
        at,
        _,
        target,
        row_us,
    ) = row
    summary = WorkloadSummary(
        workload_uid=uid,
        name=name or uid,
        namespace=namespace or "",
        cluster=cluster,
        rows=int(count),
        last_iteration=last_iteration,
        first_seen=(first_seen or 0) // 1000,
        last_seen=(last_seen or 0) // 1000,
    )
    return Overview(
        summary=summary,
        target_iteration=target,
        event=event or "",
        event_at=None if event_us is None else event_us // 1000,
        event_iteration=at,
        last_row=None if row_us is None else row_us // 1000,
    )


def _cursor(row: tuple[Any, ...]) -> str:
    return f"{int(row[8])}:{row[7]}:{row[1]}"


def _read_cursor(cursor: str) -> tuple[bool, int | None, str]:
    if not cursor:
        return False, None, ""
    attention, _, rest = cursor.partition(":")
    seen, _, uid = rest.partition(":")
    try:
        return bool(int(attention)), int(seen), uid
    except ValueError:
        raise BadRequest("cursor is none that this server gave") from None
