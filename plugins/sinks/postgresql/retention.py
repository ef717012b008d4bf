"""Retention, by age and by size: whole attempts of runs, the oldest first; never one that was written lately.

A row's age is that of the last write to its attempt, whichever is later, the time of the step or that of its arrival:
a run that goes on loses nothing of its beginning, and what was imported from long ago is not gone the next day.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from .blocks import LOWEST_STEP
from .identity import Connection
from .point_store import PointStore, StreamSize
from .sessions import only_here
from .settings import PostgreSQLSettings

_LOCK = (0x4C454E53 << 32) - 1  # beside the numbers of compacting.py, of which there is one for each stream
_DAY_US = 86_400 * 1_000_000
_QUIET_US = 3_600 * 1_000_000
_ROWS_AT_ONCE = 20_000
_ROW_OVERHEAD_BYTES = 90  # its entries in two indexes
_POINT_BYTES = 9  # in a block: the value, its share of steps, times and summaries
_APART_BYTES = 12  # in ClickHouse
_SAMPLED_ROWS = 20
_STREAMS_AT_ONCE = 5_000
_FACTS_AT_ONCE = 5_000  # a subject takes with it what else is known of it
_OLD_FACTS = {
    "lens_subject": "(last_seen_us < %(before)s or last_seen_us is null)"
    " and not exists (select from lens_stream s where s.subject_id = t.id)",
    "lens_membership": "last_seen_us < %(before)s",
    "lens_pod_span": "until_us < %(before)s",
    # Each start of a daemon has a cursor of its own.
    "lens_cursor": "moved_at < to_timestamp(%(before)s / 1e6)",
}


class Policy(NamedTuple):
    """Ages in days, sizes in bytes; None is no bound. `patterns`: days by uid or name, the first holds."""

    days: float | None = None
    patterns: Sequence[tuple[str, float | None]] = ()
    max_bytes: int | None = None
    max_workload_bytes: int | None = None

    @property
    def is_by_size(self) -> bool:
        """Whether what goes depends on all that there is."""
        return self.max_bytes is not None or self.max_workload_bytes is not None

    @property
    def is_empty(self) -> bool:
        """Whether everything stays."""
        return self == Policy()

    def days_of(self, stream: StreamSize) -> float | None:
        """Return how long a workload's attempts stay."""
        for pattern, days in self.patterns:
            if fnmatchcase(stream.uid, pattern) or fnmatchcase(stream.name, pattern):
                return days
        return self.days


def policy_of(settings: PostgreSQLSettings) -> Policy:
    """Return the policy of the options."""
    return Policy(
        settings.retention_days,
        tuple(settings.retention_workload_days.items()),
        settings.retention_max_bytes,
        settings.retention_max_workload_bytes,
    )


def choose_streams(streams: Iterable[StreamSize], policy: Policy, now_us: int) -> list[StreamSize]:
    """Choose the attempts to remove, the oldest first. Pure."""
    oldest_first = sorted(streams, key=lambda stream: (stream.written_us, stream.id))
    chosen = [stream for stream in oldest_first if _is_too_old(stream, policy, now_us)]
    gone = {stream.id for stream in chosen}
    left = [stream for stream in oldest_first if stream.id not in gone]
    if policy.max_workload_bytes is not None:
        by_subject: dict[int, list[StreamSize]] = {}
        for stream in left:
            by_subject.setdefault(stream.subject_id, []).append(stream)
        for mine in by_subject.values():
            chosen += _beyond(mine, policy.max_workload_bytes, now_us)
    if policy.max_bytes is not None:
        gone = {stream.id for stream in chosen}
        chosen += _beyond([stream for stream in left if stream.id not in gone], policy.max_bytes, now_us)
    return sorted(chosen, key=lambda stream: (stream.written_us, stream.id))


def _is_too_old(stream: StreamSize, policy: Policy, now_us: int) -> bool:
    days = policy.days_of(stream)
    return days is not None and stream.written_us < now_us - days * _DAY_US


def _beyond(oldest_first: Sequence[StreamSize], most: int, now_us: int) -> list[StreamSize]:
    """The oldest quiet ones without which the rest fits."""
    total = sum(stream.size for stream in oldest_first)
    chosen = []
    for stream in oldest_first:
        if total <= most:
            break
        if stream.written_us < now_us - _QUIET_US:
            chosen.append(stream)
            total -= stream.size
    return chosen


async def retain(connection: Connection, store: PointStore, policy: Policy, now_us: int) -> dict[str, int]:
    """Remove what the policy does not keep; how many attempts and rows that were: none while another daemon does it."""
    attempts = rows = 0
    async with only_here(connection, _LOCK) as is_ours:
        if is_ours and not policy.is_empty:
            for stream in choose_streams(
                [stream async for stream in _streams(connection, policy, now_us)], policy, now_us
            ):
                removed, is_gone = await store.remove_attempt(connection, stream, now_us)
                attempts, rows = attempts + is_gone, rows + removed
            if policy.days is not None:
                await _remove_facts(connection, int(now_us - policy.days * _DAY_US))
        if is_ours:  # what was deleted by request, too
            await store.remove_leftovers(connection)
    return {"attempts_removed": attempts, "rows_removed": rows}


async def _streams(connection: Connection, policy: Policy, now_us: int) -> AsyncIterator[StreamSize]:
    """Portion by portion; where only age counts, without those that stay."""
    last_id = 0
    while portion := await sizes_of(connection, last_id, now_us):
        for stream in portion:
            if policy.is_by_size or _is_too_old(stream, policy, now_us):
                yield stream
        last_id = portion[-1].id


async def sizes_of(connection: Connection, last_id: int, now_us: int, count: int | None = None) -> list[StreamSize]:
    """The next streams. One without rows, of which only events tell, is as old as the last word of its subject."""
    cursor = await connection.execute(
        "select s.id, s.subject_id, coalesce(nullif(u.workload_uid, ''), nullif(u.pod_uid, ''), u.pod_name), u.name,"
        " greatest(coalesce(s.last_seen_us, 0), r.received_us, s.received_us,"
        "  case when s.rows = 0 then coalesce(u.last_seen_us, %(now)s) end),"
        " (case when s.received_us is null then s.rows * (coalesce(r.width, 0) + %(overhead)s)"
        "  + coalesce(s.blocked_rows::float8 / nullif(s.rows, 0) * c.points, 0) * %(point)s"
        "  else coalesce(c.points, 0) * %(apart)s end)::bigint"
        " from (select * from lens_stream where id > %(last_id)s order by id limit %(portion)s) s"
        " join lens_subject u on u.id = s.subject_id"
        " left join lateral (select avg(pg_column_size(l.*)) as width, max(received_us) as received_us from"
        "  (select * from lens_row where stream_id = s.id order by row_step desc limit %(sampled)s) l) r on true"
        " left join lateral (select sum(points) as points from lens_catalogue where stream_id = s.id) c on true"
        " order by s.id",
        {
            "overhead": _ROW_OVERHEAD_BYTES,
            "point": _POINT_BYTES,
            "apart": _APART_BYTES,
            "sampled": _SAMPLED_ROWS,
            "last_id": last_id,
            "now": now_us,
            "portion": count or _STREAMS_AT_ONCE,
        },
    )
    return [StreamSize(*row) for row in await cursor.fetchall()]


class _State(NamedTuple):
    """Size of a stream and the time of its last row: different after every write of new rows."""

    rows: int
    last_seen_us: int | None


async def remove_attempt(connection: Connection, stream: StreamSize, now_us: int) -> tuple[int, bool]:
    """Remove an attempt, portion by portion; how many rows went, and whether all of it did.

    Each portion is one transaction with the figures that tell of it. Somebody may write to the attempt in between: then
    it stays, with what it still has.
    """
    async with connection.transaction():
        state = await _lock(connection, stream.id)
        current = await sizes_of(connection, stream.id - 1, now_us, 1)
        if state is None or not current or current[0].written_us > stream.written_us:
            return 0, False
        await connection.execute("delete from lens_block where stream_id = %s", [stream.id])
        await connection.execute(
            "update lens_stream set blocked_rows = 0, blocked_step = null where id = %s", [stream.id]
        )
    removed, after, is_more = 0, LOWEST_STEP, True
    while is_more:
        async with connection.transaction():
            if await _lock(connection, stream.id) != state:
                return removed, False
            count, after = await _remove_rows(connection, stream, after)
            removed, state = removed + count, state._replace(rows=state.rows - count)
        await forget_curve(connection, stream.id)
        is_more = count == _ROWS_AT_ONCE
    async with connection.transaction():  # the last: whoever is killed before begins again with this stream
        if await _lock(connection, stream.id) != state:
            return removed, False
        await connection.execute("delete from lens_stream where id = %s", [stream.id])
    return removed, True


async def _lock(connection: Connection, stream_id: int) -> _State | None:
    cursor = await connection.execute(
        "select rows, last_seen_us from lens_stream where id = %s for update", [stream_id]
    )
    row = await cursor.fetchone()
    return None if row is None else _State(*row)


async def _remove_rows(connection: Connection, stream: StreamSize, after: int) -> tuple[int, int]:
    """Remove the next rows after a step, with all figures that count them; how many, and the last one's step."""
    cursor = await connection.execute(
        "with chosen as (select row_step from lens_row where stream_id = %(id)s and row_step >= %(after)s"
        "  order by row_step limit %(most)s),"
        " gone as (delete from lens_row r using chosen where r.stream_id = %(id)s and r.row_step = chosen.row_step"
        "  returning r.row_step, r.metrics),"
        " counted as (select metric, count(*) as points from gone, jsonb_object_keys(metrics) metric group by metric),"
        " catalogue as (update lens_catalogue c set points = c.points - counted.points, has_summary = false"
        "  from counted where c.stream_id = %(id)s and c.metric = counted.metric)"
        " select count(*), coalesce(max(row_step), %(after)s) from gone",
        {"id": stream.id, "after": after, "most": _ROWS_AT_ONCE},
    )
    count, last_step = (await cursor.fetchall())[0]
    await connection.execute("delete from lens_catalogue where stream_id = %s and points <= 0", [stream.id])
    await connection.execute(
        "update lens_stream s set rows = rows - %(count)s, first_iteration = r.iteration, first_seen_us = r.at"
        " from (select min(iteration) as iteration, min(coalesce(event_time_us, received_us)) as at from"
        "  (select * from lens_row where stream_id = %(id)s and row_step > %(step)s order by row_step limit 1000) l) r"
        " where s.id = %(id)s",
        {"count": count, "id": stream.id, "step": last_step},
    )
    await connection.execute(
        "update lens_subject set rows = greatest(0, rows - %s), version = version + 1 where id = %s",
        [count, stream.subject_id],
    )
    await hide_curve(connection, stream.id)
    return count, last_step


_CURVES_OF_STREAM = """lens_stream s where s.id = %s and c.subject_id = s.subject_id
    and c.data_source = s.data_source and c.run_id = s.run_id and c.attempt = s.attempt"""


async def hide_curve(connection: Connection, stream_id: int) -> None:
    """Let charts read the points instead of the summaries that a stream is part of: its rows are being removed."""
    await connection.execute(
        f"update lens_curve c set is_whole = false from {_CURVES_OF_STREAM} and c.is_whole".encode(), [stream_id]
    )


async def forget_curve(connection: Connection, stream_id: int) -> None:
    """Remove the hidden summaries that a stream is part of, each portion in a transaction of its own.

    Nobody adds to hidden ones; whoever logs to the attempt afterwards makes others.
    """
    cursor = await connection.execute(
        f"select c.id from lens_curve c, {_CURVES_OF_STREAM} and not c.is_whole".encode(), [stream_id]
    )
    for (curve_id,) in await cursor.fetchall():
        last: tuple[int, str, int] | None = (-1, "", 0)
        while last is not None:
            last = await _remove_summaries(connection, curve_id, last)
        await connection.execute("delete from lens_curve where id = %s and not is_whole", [curve_id])


async def _remove_summaries(
    connection: Connection, curve_id: int, after: tuple[int, str, int]
) -> tuple[int, str, int] | None:
    """Remove the next summaries of a curve after a key; the last one's key, None when there were no more."""
    cursor = await connection.execute(
        "with chosen as (select level, metric, place from lens_ranks where curve_id = %(id)s"
        "  and (level, metric, place) > (%(level)s, %(metric)s, %(place)s) order by level, metric, place"
        "  limit %(most)s),"
        " gone as (delete from lens_ranks r using chosen c where r.curve_id = %(id)s and r.level = c.level"
        "  and r.metric = c.metric and r.place = c.place)"
        " select level, metric, place from chosen order by level desc, metric desc, place desc limit 1",
        {"id": curve_id, "level": after[0], "metric": after[1], "place": after[2], "most": _ROWS_AT_ONCE},
    )
    return await cursor.fetchone()


async def _remove_facts(connection: Connection, before_us: int) -> None:
    """Events of long ago, and whatever is known of those who have no rows and were not seen since."""
    while await _remove_events(connection, before_us) == _ROWS_AT_ONCE:
        pass
    for table, is_old in _OLD_FACTS.items():
        statement = (
            f"delete from {table} where ctid = any(array(select ctid from {table} t where {is_old}"
            " limit %(most)s for update skip locked))"
        )
        values = {"before": before_us, "most": _FACTS_AT_ONCE}
        while (await connection.execute(statement.encode(), values)).rowcount == _FACTS_AT_ONCE:
            pass


async def _remove_events(connection: Connection, before_us: int) -> int:
    """Remove a portion of old events, the oldest first; how many."""
    cursor = await connection.execute(
        "with gone as (delete from lens_event where id in (select id from lens_event where event_time_us < %s"
        "  order by event_time_us limit %s) returning subject_id),"
        " told as (update lens_subject set version = version + 1 where id in (select subject_id from gone))"
        " select count(*) from gone",
        [before_us, _ROWS_AT_ONCE],
    )
    return int((await cursor.fetchall())[0][0])


def describe_removal(found: dict[str, Any]) -> str:
    """One line for the log."""
    return ", ".join(f"{name}={value}" for name, value in found.items())
