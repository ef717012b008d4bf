"""Points of metrics, out of the rows, in pieces and in one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from lens_core import MetricPoint, PointQuery
from lens_core.queries import metric_name

from .database import Database
from .identity import Connection
from .text import metric_key

_PIECE = 5_000
_LOWEST = -(2**63)
_HIGHEST = 2**63 - 1


class _Streams(NamedTuple):
    """The streams that a metric is in."""

    ids: list[int]
    in_order: bool


_TIME = "coalesce(r.event_time_us, r.received_us)"
_FROM = "from lens_stream s join lens_row r on r.stream_id = s.id where s.id = any(%(ids)s)"
_WHEN = f" and {_TIME} between %(start)s and %(end)s"
# One stream whose iterations are its row_steps comes in order out of the primary key, without sorting.
_IN_ORDER = " order by r.row_step"
_SORTED = f" order by s.run_id, s.attempt, r.iteration, {_TIME}, s.data_source, s.rank, r.row_step"
_COLUMNS = f"r.iteration, {_TIME} / 1000, s.data_source, s.run_id, s.attempt"


async def metric_points(database: Database, query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
    """The points of a query in the order metric, run, attempt, iteration, time."""
    async with database.reading() as connection, connection.transaction():
        await connection.execute("set transaction isolation level repeatable read, read only")
        for stored, streams in await _metrics(connection, query):
            name = metric_name(stored)
            statement = f"select {_COLUMNS}, r.metrics ->> %(metric)s {_FROM} and r.metrics ? %(metric)s"
            async for piece in _pieces(connection, statement, streams, query, stored):
                yield [
                    MetricPoint(name, float(value), timestamp, iteration, source, run_id, attempt)
                    for iteration, timestamp, source, run_id, attempt, value in piece
                ]


async def iteration_times(database: Database, query: PointQuery) -> AsyncIterator[list[MetricPoint]]:
    """`iteration` and, where the row has it, `target_iteration` of every row, in the order run, attempt, iteration."""
    async with database.reading() as connection, connection.transaction():
        await connection.execute("set transaction isolation level repeatable read, read only")
        streams = await _all_streams(connection, query)
        if not streams.ids:
            return
        statement = f"select {_COLUMNS}, r.metrics ->> 'target_iteration' {_FROM}"
        async for piece in _pieces(connection, statement, streams, query, ""):
            found = []
            for iteration, timestamp, source, run_id, attempt, target in piece:
                rest = (timestamp, iteration, source, run_id, attempt)
                found.append(MetricPoint("iteration", float(iteration), *rest))
                if target is not None:
                    found.append(MetricPoint("target_iteration", float(target), *rest))
            yield found


async def _pieces(
    connection: Connection, statement: str, streams: _Streams, query: PointQuery, metric: str
) -> AsyncIterator[list[tuple[Any, ...]]]:
    parameters = {
        "ids": streams.ids,
        "metric": metric,
        "start": _LOWEST if query.start_ms is None else max(_LOWEST, min(query.start_ms * 1000, _HIGHEST)),
        "end": _HIGHEST if query.end_ms is None else max(_LOWEST, min(query.end_ms * 1000 + 999, _HIGHEST)),
    }
    limited = query.start_ms is not None or query.end_ms is not None
    whole = statement + (_WHEN if limited else "") + (_IN_ORDER if streams.in_order else _SORTED)
    async with connection.cursor(name="lens_points") as cursor:
        await cursor.execute(whole, parameters)
        while piece := await cursor.fetchmany(_PIECE):
            yield piece


async def _metrics(connection: Connection, query: PointQuery) -> list[tuple[str, _Streams]]:
    """The stored names of the wanted metrics in the order of their own names, and the streams that have them."""
    wanted = None if query.metrics is None else sorted({metric_key(name) for name in query.metrics})
    cursor = await connection.execute(
        "select c.metric, c.stream_id, s.own_iterations"
        " from lens_catalogue c join lens_stream s on s.id = c.stream_id"
        " where s.subject_id in (select subject_id from lens_name where uid = %(uid)s)"
        " and (%(source)s = '' or s.data_source = %(source)s)"
        " and (%(run)s::text is null or s.run_id = %(run)s)"
        " and (%(attempt)s::bigint is null or s.attempt = %(attempt)s)"
        " and (%(metrics)s::text[] is null or c.metric = any(%(metrics)s))",
        _filter(query, wanted),
    )
    streams: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for metric, stream_id, own_iterations in await cursor.fetchall():
        streams[metric].append((stream_id, own_iterations))
    return [(metric, _in_order(streams[metric])) for metric in sorted(streams, key=metric_name)]


async def _all_streams(connection: Connection, query: PointQuery) -> _Streams:
    cursor = await connection.execute(
        "select s.id, s.own_iterations from lens_stream s"
        " where s.rows > 0 and s.subject_id in (select subject_id from lens_name where uid = %(uid)s)"
        " and (%(source)s = '' or s.data_source = %(source)s)"
        " and (%(run)s::text is null or s.run_id = %(run)s)"
        " and (%(attempt)s::bigint is null or s.attempt = %(attempt)s)",
        _filter(query, None),
    )
    return _in_order([(row[0], row[1]) for row in await cursor.fetchall()])


def _in_order(streams: Sequence[tuple[int, bool]]) -> _Streams:
    alone = len(streams) == 1 and not streams[0][1]
    return _Streams([stream_id for stream_id, _ in streams], alone)


def _filter(query: PointQuery, metrics: list[str] | None) -> dict[str, Any]:
    return {
        "uid": query.workload_uid,
        "source": query.data_source,
        "run": query.run_id,
        "attempt": query.attempt,
        "metrics": metrics,
    }
