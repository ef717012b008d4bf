"""Changes of a workload since a cursor: the rows that batches noted since then, and events.

A cursor holds how far the notes were read, and the ranges of steps of which rows are still to come. Of notes and of
events it holds the newest that were shown by their numbers, because one with a lower number may be committed later.
"""

from __future__ import annotations

import base64
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from lens_core import BadRequest, EventRow, News, PointColumns, PointQuery
from lens_core.plugin_api.store import metric_name

from .identity import Connection
from .left_out import left_out
from .listing import EVENT, event_row
from .news_log import KEPT_SECONDS, NOTES_AT_ONCE, StepRange, newest_notes, notes_since
from .point_store import PointStore, ShownRow
from .text import bigint, metric_key

_ROWS = 500  # of one range in one answer
_MOST_ROWS = 5_000  # in one answer
_MOST_WAITING = 100  # ranges that a cursor holds
_EVENTS = 200
_REMEMBERED = 100
_SUBJECTS = "(select subject_id from lens_name where uid = %(uid)s)"


class _Shown(msgspec.Struct, array_like=True):
    """The numbers up to `last` count as shown, and those that are `beyond` it were."""

    last: int
    beyond: list[int]

    def numbers(self) -> list[int]:
        """The numbers beyond the last that were shown."""
        return [self.last + distance for distance in self.beyond]

    def including(self, numbers: Iterable[int]) -> _Shown:
        """The same after more were shown; of too many the lowest are the last."""
        ordered = sorted([*self.numbers(), *numbers])
        kept = ordered[-_REMEMBERED:]
        last = self.last if len(ordered) == len(kept) else max(self.last, ordered[-len(kept) - 1])
        return _Shown(last, [number - last for number in kept])


class _Seen(msgspec.Struct, array_like=True):
    """The place of a live view; `at_us`: when it was there, `waiting`: ranges of steps whose rows are still to come."""

    at_us: int
    notes: _Shown
    events: _Shown
    waiting: list[tuple[int, int, int, int]]


class _FormerSeen(msgspec.Struct, array_like=True):
    """A cursor that Lens gave until 1.3: nothing is known about what was written since."""

    newest_stream: int
    last_event: int
    streams: dict[int, tuple[int, int]]


class _Stream(NamedTuple):
    run_id: str
    attempt: int
    data_source: str


class _Rows(NamedTuple):
    """The points of an answer, the ranges that are left for the next, the number of rows that none will have."""

    points: list[PointColumns]
    waiting: list[StepRange]
    left_out: int


async def news(connection: Connection, store: PointStore, query: PointQuery, cursor: str) -> News:
    """Points and events since the cursor. Raises BadRequest for one that this did not give."""
    seen = _decode_cursor(cursor)
    now_us = await _read_clock(connection)
    uid = query.workload_uid
    if seen is None or now_us - seen.at_us > KEPT_SECONDS * 1_000_000:
        # Of what was written meanwhile nothing is noted any more: what was drawn is to be asked for again.
        events, shown = await _events(connection, query, None if seen is None else seen.events)
        notes = _Shown(0, []).including(await newest_notes(connection, uid, _REMEMBERED + 1))
        now = _encode_cursor(_Seen(now_us, notes, shown, []))
        return News(points=[], events=events, cursor=now, changed=bool(cursor))
    found = await notes_since(connection, uid, seen.notes.last, seen.notes.numbers())
    ranges = [*map(StepRange._make, seen.waiting), *(one for note in found for one in note.ranges)]
    rows = await _read_ranges(connection, store, query, _join_ranges(ranges))
    events, shown = await _events(connection, query, seen.events)
    reached = _Seen(now_us, seen.notes.including(note.id for note in found), shown, [(*one,) for one in rows.waiting])
    return News(
        points=rows.points,
        events=events,
        cursor=_encode_cursor(reached),
        changed=any(note.has_late for note in found),
        more=bool(rows.waiting) or len(found) == NOTES_AT_ONCE,
        left_out=rows.left_out + sum(note.rows_left_out for note in found),
    )


async def _read_clock(connection: Connection) -> int:
    cursor = await connection.execute("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
    ((now_us,),) = await cursor.fetchall()
    return int(now_us)


def _decode_cursor(cursor: str) -> _Seen | None:
    """The place that a cursor means; None for that of now."""
    if not cursor:
        return None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        try:
            seen = msgspec.msgpack.decode(data, type=_Seen)
        except msgspec.ValidationError:
            former = msgspec.msgpack.decode(data, type=_FormerSeen)
            seen = _Seen(0, _Shown(0, []), _Shown(bigint(former.last_event), []), [])
        for number in (*seen.notes.numbers(), *seen.events.numbers(), *(part for one in seen.waiting for part in one)):
            bigint(number)
        bigint(seen.notes.last)
        bigint(seen.events.last)
        return seen
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise BadRequest("cursor is none that this server gave") from None


def _encode_cursor(seen: _Seen) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(seen)).decode().rstrip("=")


def _join_ranges(ranges: Iterable[StepRange]) -> list[StepRange]:
    """The same rows with one range for all that follow each other in a stream, so that they come in their order."""
    found: list[StepRange] = []
    ends: dict[int, int] = {}  # the place of each stream's last range
    for one in ranges:
        place = ends.get(one.stream_id)
        if place is not None and found[place].last_step < one.first_step:
            before = found[place]
            found[place] = before._replace(last_step=one.last_step, rows=before.rows + one.rows)
        else:
            ends[one.stream_id] = len(found)
            found.append(one)
    return found


async def _read_ranges(
    connection: Connection, store: PointStore, query: PointQuery, ranges: Sequence[StepRange]
) -> _Rows:
    """The rows of ranges as columns, as many as fit into one answer."""
    streams = await _streams(connection, query, {one.stream_id for one in ranges})
    hidden = await left_out(connection, query)
    wanted = [one for one in ranges if one.stream_id in streams and one.stream_id not in hidden.streams]
    read: list[StepRange] = []
    waiting: list[StepRange] = []
    total = 0
    for one in wanted:
        total += min(one.rows, _ROWS)
        (read if total <= _MOST_ROWS or not read else waiting).append(one)
    found = await store.shown_ranges(connection, read, _ROWS) if read else []
    points = []
    rest = []
    for one, rows in zip(read, found, strict=True):
        columns = _columns(query, streams[one.stream_id], rows)
        points += [column for column in columns if not hidden.holds(one.stream_id, metric_key(column.metric_name))]
        if len(rows) == _ROWS and rows[-1].row_step < one.last_step:
            left = max(1, one.rows - len(rows))
            rest.append(one._replace(first_step=rows[-1].row_step + 1, rows=left))
    waiting = [*rest, *waiting]
    return _Rows(points, waiting[:_MOST_WAITING], sum(one.rows for one in waiting[_MOST_WAITING:]))


async def _streams(connection: Connection, query: PointQuery, ids: Iterable[int]) -> Mapping[int, _Stream]:
    """Those of some streams that a query is about."""
    cursor = await connection.execute(
        "select id, run_id, attempt, data_source from lens_stream where id = any(%(ids)s)"
        " and (cardinality(%(sources)s::text[]) = 0 or data_source = any(%(sources)s))"
        " and (%(run)s::text is null or run_id = %(run)s)"
        " and (%(attempt)s::bigint is null or attempt = %(attempt)s)",
        {"ids": list(ids), "sources": query.sources, "run": query.run_id, "attempt": query.attempt},
    )
    return {stream_id: _Stream(*rest) for stream_id, *rest in await cursor.fetchall()}


def _columns(query: PointQuery, stream: _Stream, rows: Sequence[ShownRow]) -> list[PointColumns]:
    wanted = None if query.metrics is None else {metric_key(name) for name in query.metrics}
    found: dict[str, tuple[array[int], array[int], array[float]]] = defaultdict(
        lambda: (array("q"), array("q"), array("d"))
    )
    for _, iteration, time_us, metrics in rows:
        for metric, value in metrics.items():
            if wanted is None or metric in wanted:
                iterations, timestamps, values = found[metric]
                iterations.append(iteration)
                timestamps.append(time_us // 1000)
                values.append(float(value))
    return [
        PointColumns(
            metric_name=metric_name(metric),
            data_source=stream.data_source,
            run_id=stream.run_id,
            attempt=stream.attempt,
            iterations=found[metric][0],
            timestamps=found[metric][1],
            values=found[metric][2],
        )
        for metric in sorted(found, key=metric_name)
    ]


async def _events(connection: Connection, query: PointQuery, seen: _Shown | None) -> tuple[list[EventRow], _Shown]:
    """Events that were not shown yet, oldest first, then what the next look has to know."""
    if seen is None:
        cursor = await connection.execute(
            f"select id from lens_event where subject_id in {_SUBJECTS} order by id desc limit %(limit)s",
            {"uid": query.workload_uid, "limit": _REMEMBERED + 1},
        )
        return [], _Shown(0, []).including(int(row[0]) for row in await cursor.fetchall())
    cursor = await connection.execute(
        f"select {EVENT}, id from lens_event"
        f" where subject_id in {_SUBJECTS} and id > %(after)s and id <> all(%(shown)s::bigint[])"
        " order by id limit %(limit)s",
        {"uid": query.workload_uid, "after": seen.last, "shown": seen.numbers(), "limit": _EVENTS},
    )
    rows = await cursor.fetchall()
    return [event_row(row) for row in rows], seen.including(int(row[-1]) for row in rows)
