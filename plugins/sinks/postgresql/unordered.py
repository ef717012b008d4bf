"""Streams whose points must be sorted: several ranks or sources of one attempt, or iterations that go back."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Any

from .blocks import Series
from .identity import Connection
from .paging import Place
from .streams import Stream, Window

_FETCH = b"fetch 5000 from lens_points"
_TIME = "coalesce(r.event_time_us, r.received_us)"
# C: the order of code points, whatever the database's own.
_KEY = f'r.iteration, {_TIME}, s.data_source collate "C", s.rank, r.row_step'


async def read_sorted(
    connection: Connection,
    streams: Sequence[Stream],
    metric: str | None,
    window: Window,
    after: Place | None,
    limit: int | None,
) -> AsyncIterator[tuple[Stream, Series]]:
    """The points of streams of one attempt in the order iteration, time; sorted by the database, in pieces."""
    value = "r.iteration" if metric is None else "r.metrics ->> %(metric)s"
    statement = f"select s.id, r.row_step, r.iteration, {_TIME}, {value}"
    statement += " from lens_stream s join lens_row r on r.stream_id = s.id where s.id = any(%(ids)s)"
    statement += "" if metric is None else " and r.metrics ? %(metric)s"
    statement += f" and {_TIME} between %(start)s and %(end)s" if window.is_limited else ""
    parameters: dict[str, Any] = {"ids": [stream.id for stream in streams], "metric": metric}
    parameters |= {"start": window.start_us, "end": window.end_us}
    if after is not None:
        statement += (
            f" and ({_KEY}) > (%(iteration)s::bigint, %(time)s::bigint, %(source)s, %(rank)s, %(step)s::bigint)"
        )
        parameters |= {"iteration": after.iteration, "time": after.time_us, "source": after.data_source}
        parameters |= {"rank": after.rank, "step": after.row_step}
    statement += f" order by {_KEY}"
    if limit is not None:
        statement += " limit %(limit)s"
        parameters["limit"] = limit + 1
    by_id = {stream.id: stream for stream in streams}
    # A cursor by hand: nothing is to be done for it when the reader goes away but to end the transaction.
    await connection.execute(f"declare lens_points no scroll cursor for {statement}".encode(), parameters)
    while rows := await (await connection.execute(_FETCH)).fetchall():
        # Where a page may end the stream of its last point matters, else only its source is shown.
        runs = groupby(rows, lambda row: row[0] if limit is not None else by_id[row[0]].data_source)
        for _, run in runs:
            points = list(run)
            yield by_id[points[0][0]], _series([row[1:] for row in points])
    await connection.execute(b"close lens_points")


def _series(rows: Sequence[tuple[Any, ...]]) -> Series:
    steps, iterations, times, values = zip(*rows, strict=True)
    return Series(array("q", iterations), array("q", times), array("d", map(float, values)), array("q", steps))
