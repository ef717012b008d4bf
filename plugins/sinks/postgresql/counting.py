"""How many points a question has in all, whatever part of them a page shows: counted, not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .identity import Connection
from .streams import Header, Segment, Stream, Window, segments

_TIME = "coalesce(r.event_time_us, r.received_us)"


async def count_points(
    connection: Connection,
    metric: str | None,
    streams: Sequence[Stream],
    blocks: Mapping[int, Sequence[Header]],
    window: Window,
) -> int:
    """The points of a metric in a window; None: of the iterations themselves. Without a window the figures know it.

    Of blocks that are wholly in the window their own figures are added up; rows are counted at its edges and beyond.
    """
    if not window.is_limited:
        return sum(stream.points for stream in streams)
    whole: list[tuple[int, Header]] = []
    parts: list[tuple[int, Segment]] = []
    for stream in streams:
        for segment in segments(stream, blocks.get(stream.id, ()), window):
            inside = [block for block in segment.blocks if window.holds(block)]
            whole += [(stream.id, block) for block in inside]
            edges = [Segment(b.first_step, b.last_step) for b in segment.blocks if not window.holds(b)]
            parts += [(stream.id, edge) for edge in (edges if segment.blocks else [segment])]
    return await _in_blocks(connection, metric, whole) + await _in_rows(connection, metric, parts, window)


async def _in_blocks(connection: Connection, metric: str | None, blocks: Sequence[tuple[int, Header]]) -> int:
    if metric is None:
        return sum(block.rows for _, block in blocks)
    cursor = await connection.execute(
        "select coalesce(sum(c.points), 0)::bigint from unnest(%s::bigint[], %s::bigint[]) b (stream_id, last_step)"
        " join lens_column c on c.stream_id = b.stream_id and c.metric = %s and c.last_step = b.last_step",
        [[stream_id for stream_id, _ in blocks], [block.last_step for _, block in blocks], metric],
    )
    return int((await cursor.fetchall())[0][0])


async def _in_rows(
    connection: Connection, metric: str | None, parts: Sequence[tuple[int, Segment]], window: Window
) -> int:
    cursor = await connection.execute(
        "select count(*) from unnest(%(ids)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[]) s (id, low, high)"
        " join lens_row r on r.stream_id = s.id and r.row_step between s.low and s.high"
        f" where {_TIME} between %(start)s and %(end)s"
        " and (%(metric)s::text is null or r.metrics ? %(metric)s)".encode(),
        {
            "ids": [stream_id for stream_id, _ in parts],
            "firsts": [segment.first_step for _, segment in parts],
            "lasts": [segment.last_step for _, segment in parts],
            "start": window.start_us,
            "end": window.end_us,
            "metric": metric,
        },
    )
    return int((await cursor.fetchall())[0][0])
