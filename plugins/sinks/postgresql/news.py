"""Changes of a workload since a cursor: rows beyond the steps that it names, and events.

A cursor holds the last step of each stream. Of more than a hundred streams only those written last are in it, and as
many that have no row yet; a stream that is not, but is older than the newest in it, counts as seen. Of events it holds
the newest that were shown by their numbers, because one with a lower number may be committed later.
"""

from __future__ import annotations

import base64
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from lens_core import BadRequest, EventRow, News, PointColumns, PointQuery
from lens_core.plugin_api.store import metric_name

from .echoes import LeftOut, left_out
from .identity import Connection
from .listing import EVENT, event_row
from .point_store import PointStore, ShownRow
from .text import bigint, metric_key

_ROWS = 500
_LATE_ROWS = 100
_STREAMS = 100
_EVENTS = 200
_REMEMBERED_EVENTS = 100
_NO_STEP = -(2**63)
_SUBJECTS = "(select subject_id from lens_name where uid = %(uid)s)"


class _Seen(msgspec.Struct, array_like=True):
    """`streams`: the last step and the number of late writes of each; `newest_stream` the highest id there was.

    Events up to `last_event` count as shown, and those that are `shown_events` numbers behind it were.
    """

    newest_stream: int
    last_event: int
    streams: dict[int, tuple[int, int]]
    shown_events: list[int] = []


class _Grown(NamedTuple):
    id: int
    last_step: int
    late_version: int
    run_id: str
    attempt: int
    data_source: str
    rows: int


async def news(connection: Connection, store: PointStore, query: PointQuery, cursor: str) -> News:
    """Points and events since the cursor. Raises BadRequest for one that this did not give."""
    seen = _decode_cursor(cursor)
    hidden = await left_out(connection, query)
    streams = await _streams(connection, query, hidden)
    events, last_event, shown = await _events(connection, query, seen)
    if seen is None:
        known = {stream.id: (stream.last_step, stream.late_version) for stream in streams}
        return News(points=[], events=[], cursor=_encode_cursor(_remember(streams, known, 0, last_event, shown)))
    points: list[PointColumns] = []
    changed = more = False
    for stream in streams:
        step, late = seen.streams.get(stream.id, (None, 0))
        if not stream.rows:
            seen.streams.setdefault(stream.id, (_NO_STEP, stream.late_version))
            continue
        if step is None and stream.id <= seen.newest_stream:
            continue
        was_late = late != stream.late_version and step is not None
        changed |= was_late
        reached, found = await _new_rows(connection, store, query, stream, step, again=was_late)
        points += [column for column in found if not hidden.holds(stream.id, metric_key(column.metric_name))]
        more |= reached < stream.last_step
        seen.streams[stream.id] = (reached, stream.late_version)
    now = _remember(streams, seen.streams, seen.newest_stream, last_event, shown)
    return News(points=points, events=events, cursor=_encode_cursor(now), changed=changed, more=more)


def _remember(
    streams: list[_Grown], reached: dict[int, tuple[int, int]], newest: int, last_event: int, shown: list[int]
) -> _Seen:
    """Return the next cursor; of too many streams without a row those that are left out are news later."""
    written = [stream.id for stream in streams if stream.rows and stream.id in reached][:_STREAMS]
    empty = sorted((stream.id for stream in streams if not stream.rows), reverse=True)
    known = {stream: reached[stream] for stream in [*written, *empty[:_STREAMS]]}
    newest = max([newest, *(stream.id for stream in streams)])
    if len(empty) > _STREAMS:
        newest = min(newest, empty[-1] - 1)
    return _Seen(newest, last_event, known, shown)


def _decode_cursor(cursor: str) -> _Seen | None:
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


def _encode_cursor(seen: _Seen) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(seen)).decode().rstrip("=")


async def _streams(connection: Connection, query: PointQuery, hidden: LeftOut) -> list[_Grown]:
    """The streams of a query, those written last first."""
    cursor = await connection.execute(
        f"select id, coalesce(last_step, {_NO_STEP}), late_version, run_id, attempt, data_source, rows from lens_stream"
        f" where subject_id in {_SUBJECTS}"
        " and (cardinality(%(sources)s::text[]) = 0 or data_source = any(%(sources)s))"
        " and (%(run)s::text is null or run_id = %(run)s)"
        " and (%(attempt)s::bigint is null or attempt = %(attempt)s) order by last_seen_us desc nulls last, id desc",
        {"uid": query.workload_uid, "sources": query.sources, "run": query.run_id, "attempt": query.attempt},
    )
    found = [_Grown(*row) for row in await cursor.fetchall()]
    return [stream for stream in found if stream.id not in hidden.streams]


async def _new_rows(
    connection: Connection, store: PointStore, query: PointQuery, stream: _Grown, step: int | None, *, again: bool
) -> tuple[int, list[PointColumns]]:
    """The rows beyond a step, as columns, and the step that was reached; `again`: some before it once more."""
    if step == stream.last_step and not again:
        return step, []
    first = _NO_STEP if step is None or step == _NO_STEP else step + 1
    if step is not None and again:
        known = await store.step_before(connection, stream.id, step, _LATE_ROWS)
        first = _NO_STEP if known is None else known
    rows = await store.shown_rows(connection, stream.id, first, _ROWS)
    return rows[-1].row_step if rows else stream.last_step, _columns(query, stream, rows)


def _columns(query: PointQuery, stream: _Grown, rows: Sequence[ShownRow]) -> list[PointColumns]:
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


async def _events(
    connection: Connection, query: PointQuery, seen: _Seen | None
) -> tuple[list[EventRow], int, list[int]]:
    """Events that were not shown yet, oldest first, then the numbers that the next look has to know."""
    if seen is None:
        cursor = await connection.execute(
            f"select id from lens_event where subject_id in {_SUBJECTS} order by id desc limit %(limit)s",
            {"uid": query.workload_uid, "limit": _REMEMBERED_EVENTS + 1},
        )
        return [], *_shown(int(row[0]) for row in await cursor.fetchall())
    before = [seen.last_event + distance for distance in seen.shown_events]
    cursor = await connection.execute(
        f"select {EVENT}, id from lens_event"
        f" where subject_id in {_SUBJECTS} and id > %(after)s and id <> all(%(shown)s::bigint[])"
        " order by id limit %(limit)s",
        {"uid": query.workload_uid, "after": seen.last_event, "shown": before, "limit": _EVENTS},
    )
    rows = await cursor.fetchall()
    return [event_row(row) for row in rows], *_shown([*before, *(int(row[-1]) for row in rows)], seen.last_event)


def _shown(numbers: Iterable[int], floor: int = 0) -> tuple[int, list[int]]:
    """The number up to which events count as shown, and how far behind it those are that were."""
    ordered = sorted(numbers)
    kept = ordered[-_REMEMBERED_EVENTS:]
    if len(ordered) > len(kept):
        floor = max(floor, ordered[-len(kept) - 1])
    return floor, [number - floor for number in kept]
