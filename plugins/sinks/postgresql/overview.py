"""The list of workloads for the page: what needs attention first, with the newest event that tells how it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from lens_core import ATTENTION_EVENTS, STATE_EVENTS, BadRequest, WorkloadSummary
from lens_core.plugin_api.overview import ATTENTION_DAYS, GOES_ON_MS, Overview, OverviewPage

from .identity import Connection
from .shown import LINES, Line, Name, Search, in_order, newest_lines, of_names, place, search_names
from .text import bigint

_FAILED_LATELY = (
    "select distinct subject_id from lens_event"
    f" where type in ({', '.join(repr(event) for event in ATTENTION_EVENTS)}) and event_time_us > %(since)s"
)
# A line with the newest event that says how it is doing, looked up by index in each of its subjects.
_KNOWN = f"""
    with lines as ({LINES})
    select cluster, uid, name, namespace, rows, last_iteration, first_seen, last_seen,
        coalesce(e.type = any(%(attention)s) and e.event_time_us > %(since)s
            and coalesce(streams.last_row, 0) <= e.event_time_us + %(goes_on)s, false),
        e.type, e.event_time_us, e.iteration, streams.target, streams.last_row, streams.row_us
    from lines cross join lateral (
        select max(target_iteration) as target, max(last_seen_us) as last_row, (array_agg(
            (last_seen_us - first_seen_us) / nullif(rows - 1, 0) order by last_seen_us desc))[1] as row_us
        from lens_stream where subject_id = any(lines.subjects) and rows > 0
    ) streams left join lateral (
        select e.type, e.event_time_us, e.iteration from unnest(lines.subjects) as s(id) cross join lateral (
            select type, event_time_us, iteration, id from lens_event
            where subject_id = s.id and type = any(%(states)s) order by event_time_us desc, id desc limit 1
        ) e order by e.event_time_us desc, e.id desc limit 1
    ) e on true
"""


class _Asked(NamedTuple):
    """One question for the list."""

    connection: Connection
    names: Search
    since_us: int

    async def select_lines(self, names: list[Name]) -> list[Line]:
        """The lines of names."""
        found = await self.connection.execute(
            _KNOWN.encode(),
            {
                **of_names(names),
                "attention": list(ATTENTION_EVENTS),
                "states": list(STATE_EVENTS),
                "since": self.since_us,
                "goes_on": GOES_ON_MS * 1000,
            },
        )
        return await found.fetchall()

    async def select_calm_lines(self, names: list[Name]) -> list[Line]:
        """The lines of names, without those that need attention."""
        return [line for line in await self.select_lines(names) if not _needs_attention(line)]

    async def troubled(self) -> list[Line]:
        """All lines that need attention: only what failed or stalled lately can."""
        found = await self.connection.execute(_FAILED_LATELY.encode(), {"since": self.since_us})
        names = await self.names.select_names(self.connection, [subject for (subject,) in await found.fetchall()])
        return in_order(line for line in await self.select_lines(names) if _needs_attention(line)) if names else []


async def overview(connection: Connection, text: str, limit: int, cursor: str) -> OverviewPage:
    """A page of the list. Raises BadRequest for a cursor that this did not give."""
    attention, before = _read_cursor(cursor)
    asked = _Asked(
        connection, await search_names(connection, text), time.time_ns() // 1000 - ATTENTION_DAYS * 86_400_000_000
    )
    lines: list[Line] = []
    if attention:
        lines = [line for line in await asked.troubled() if before is None or place(line) < before][: limit + 1]
        before = None
    if len(lines) <= limit:
        lines += await newest_lines(connection, asked.names, before, limit + 1 - len(lines), asked.select_calm_lines)
    following = _cursor(lines[limit - 1]) if len(lines) > limit else ""
    return OverviewPage(
        [_make_overview(line) for line in lines[:limit]], following, await asked.names.count_names(connection)
    )


async def overviews_of(connection: Connection, summaries: Sequence[WorkloadSummary]) -> list[Overview]:
    """The lines of some workloads, in any order."""
    since_us = time.time_ns() // 1000 - ATTENTION_DAYS * 86_400_000_000
    asked = _Asked(connection, await search_names(connection, ""), since_us)
    names = [Name(summary.cluster, summary.workload_uid) for summary in summaries]
    return [_make_overview(line) for line in await asked.select_lines(names)]


def _needs_attention(line: Line) -> bool:
    return bool(line[8])


def _make_overview(row: tuple[Any, ...]) -> Overview:
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
        target,
        last_row_us,
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
        last_row=None if last_row_us is None else last_row_us // 1000,
        row_ms=None if row_us is None else row_us // 1000,
    )


def _cursor(line: Line) -> str:
    return f"{int(_needs_attention(line))}:{line[7]}:{line[1]}"


def _read_cursor(cursor: str) -> tuple[bool, tuple[int, str] | None]:
    """Whether the page is still among those that need attention, and after which line it begins."""
    if not cursor:
        return True, None
    attention, _, rest = cursor.partition(":")
    seen, _, uid = rest.partition(":")
    try:
        return bool(int(attention)), (bigint(seen), uid)
    except ValueError:
        raise BadRequest("cursor is none that this server gave") from None
