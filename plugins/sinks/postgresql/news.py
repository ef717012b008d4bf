"""What is new about a workload since somebody looked: rows beyond the steps that they have seen, and events.

A cursor holds the last step of each stream. Of more than a hundred streams only those written last are in it; a stream
that is not, but is older than the newest in it, counts as seen.
"""

from __future__ import annotations

import base64
from array import array
from collections import defaultdict
from typing import Any, NamedTuple

import msgspec

from lens_core import BadRequest, EventRow, News, PointColumns, PointQuery
from lens_core.model.queries import metric_name

from .identity import Connection
from .listing import EVENT, event_row
from .text import bigint, metric_key

_ROWS = 500
_LATE_ROWS = 100
_STREAMS = 100
_EVENTS = 200
_TIME = "coalesce(event_time_us, received_us)"
_SUBJECTS = "(select subject_id from lens_name where uid = %(uid)s)"


class _Seen(msgspec.Struct, array_like=True):
    """`streams`: the last step and the number of late writes of each; `newest_stream` the highest id there was."""

    newest_stream: int
    last_event: int
    streams: dict[int, tuple[int, int]]


class _Grown(NamedTuple):
    id: int
    last_step: int
    late_version: int
    run_id: str
    attempt: int
    data_source: str


async def news(connection: Connection, query: PointQuery, cursor: str) -> News:
    """Points and events since the cursor. Raises BadRequest for one that this did not give."""
    seen = _read(cursor)
    streams = await _streams(connection, query)
    events, last_event = await _events(connection, query, None if seen is None else seen.last_event)
    newest = max((stream.id for stream in streams), default=0)
    if seen is None:
        known = {stream.id: (stream.last_step, stream.late_version) for stream in streams[:_STREAMS]}
        return News(points=[], events=[], cursor=_text(_Seen(newest, last_event, known)))
    points: list[PointColumns] = []
    changed = more = False
    for stream in streams:
        step, late = seen.streams.get(stream.id, (None, 0))
        if step is None and stream.id <= seen.newest_stream:
            continue
        was_late = late != stream.late_version and step is not None
        changed |= was_late
        reached, found = await _new_rows(connection, query, stream, step, again=was_late)
        points += found
        more |= reached < stream.last_step
        seen.streams[stream.id] = (reached, stream.late_version)
    kept = {stream.id: seen.streams[stream.id] for stream in streams if stream.id in seen.streams}
    latest = dict(list(kept.items())[:_STREAMS])
    now = _Seen(max(newest, seen.newest_stream), last_event, latest)
    return News(points=points, events=events, cursor=_text(now), changed=changed, more=more)


def _read(cursor: str) -> _Seen | None:
    if not cursor:
        return None
    try:
        seen = msgspec.msgpack.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=_Seen)
        for number in (*seen.streams, *(part for pair in seen.streams.values() for part in pair)):
            bigint(number or 0)
        bigint(seen.newest_stream)
        bigint(seen.last_event)
        return seen
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise BadRequest("cursor is none that this server gave") from None


def _text(seen: _Seen) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(seen)).decode().rstrip("=")


async def _streams(connection: Connection, query: PointQuery) -> list[_Grown]:
    """The streams of a query, those written last first."""
    cursor = await connection.execute(
        "select id, last_step, late_version, run_id, attempt, data_source from lens_stream"
        f" where rows > 0 and subject_id in {_SUBJECTS}"
        " and (%(source)s = '' or data_source = %(source)s)"
        " and (%(run)s::text is null or run_id = %(run)s)"
        " and (%(attempt)s::bigint is null or attempt = %(attempt)s) order by last_seen_us desc, id desc",
        {"uid": query.workload_uid, "source": query.data_source, "run": query.run_id, "attempt": query.attempt},
    )
    return [_Grown(*row) for row in await cursor.fetchall()]


async def _new_rows(
    connection: Connection, query: PointQuery, stream: _Grown, step: int | None, *, again: bool
) -> tuple[int, list[PointColumns]]:
    """The rows beyond a step, as columns, and the step that was reached; `again`: some before it once more."""
    lowest = -(2**63)
    if step == stream.last_step and not again:
        return step, []
    if step is not None and again:
        cursor = await connection.execute(
            "select min(row_step) from (select row_step from lens_row where stream_id = %s and row_step <= %s"
            " order by row_step desc limit %s) rows",
            [stream.id, step, _LATE_ROWS],
        )
        row = await cursor.fetchone()
        step = None if row is None or row[0] is None else row[0] - 1
    cursor = await connection.execute(
        f"select row_step, iteration, {_TIME} / 1000, metrics from lens_row"
        " where stream_id = %s and row_step > %s order by row_step limit %s",
        [stream.id, lowest if step is None else step, _ROWS],
    )
    rows = await cursor.fetchall()
    return rows[-1][0] if rows else stream.last_step, _columns(query, stream, rows)


def _columns(query: PointQuery, stream: _Grown, rows: list[tuple[Any, ...]]) -> list[PointColumns]:
    wanted = None if query.metrics is None else {metric_key(name) for name in query.metrics}
    found: dict[str, tuple[array[int], array[int], array[float]]] = defaultdict(
        lambda: (array("q"), array("q"), array("d"))
    )
    for _, iteration, timestamp, metrics in rows:
        for metric, value in metrics.items():
            if wanted is None or metric in wanted:
                iterations, timestamps, values = found[metric]
                iterations.append(iteration)
                timestamps.append(timestamp)
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


async def _events(connection: Connection, query: PointQuery, after: int | None) -> tuple[list[EventRow], int]:
    """Events that came after the one with the given id (None: none of them), oldest first, and the newest's id."""
    if after is None:
        cursor = await connection.execute(
            f"select coalesce(max(id), 0) from lens_event where subject_id in {_SUBJECTS}", {"uid": query.workload_uid}
        )
        row = await cursor.fetchone()
        return [], 0 if row is None else int(row[0])
    cursor = await connection.execute(
        f"select {EVENT}, id from lens_event"
        f" where subject_id in {_SUBJECTS} and id > %(after)s order by id limit %(limit)s",
        {"uid": query.workload_uid, "after": after, "limit": _EVENTS},
    )
    rows = await cursor.fetchall()
    return [event_row(row) for row in rows], int(rows[-1][-1]) if rows else after
