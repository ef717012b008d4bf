"""One metric of many short streams at once: where a job restarts often a query for each costs more than its points."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from .arrays import unpack_doubles, unpack_positions, unpack_spaced
from .blocks import BLOCK_ROWS, LOWEST_STEP, Series
from .identity import Connection
from .streams import Header, Stream, has_tail

FEW_STREAMS = 4
_TIME = "coalesce(r.event_time_us, r.received_us)"
_decode_integers = msgspec.json.Decoder(list[int]).decode


def is_short(stream: Stream, blocks: Sequence[Header]) -> bool:
    """Whether a stream is read together with others: a block's rows at most, and no block to be made anew."""
    return stream.rows <= BLOCK_ROWS and not any(block.dirty for block in blocks)


async def gather(
    connection: Connection, streams: Sequence[Stream], blocks: Mapping[int, Sequence[Header]], metric: str | None
) -> dict[int, Series]:
    """All points of short streams by the streams' ids, in the order of their steps; None: the iterations themselves."""
    found = {stream.id: Series.empty() for stream in streams}
    async for stream_id, piece in _out_of_blocks(connection, [s.id for s in streams if blocks.get(s.id)], metric):
        found[stream_id].extend(piece)
    tails = [stream for stream in streams if has_tail(stream, blocks.get(stream.id, ()))]
    async for stream_id, piece in _out_of_rows(connection, tails, metric):
        found[stream_id].extend(piece)
    return found


async def _out_of_blocks(
    connection: Connection, ids: Sequence[int], metric: str | None
) -> AsyncIterator[tuple[int, Series]]:
    if not ids:
        return
    values = "b.steps, null, null from lens_block b where b.stream_id = any(%(ids)s)"
    if metric is not None:
        values = (
            'b.steps, c.positions, c."values" from lens_column c join lens_block b using (stream_id, last_step)'
            " where c.stream_id = any(%(ids)s) and c.metric = %(metric)s"
        )
    cursor = await connection.execute(
        f"select b.stream_id, b.rows, b.iterations, b.times, {values} order by b.stream_id, b.last_step".encode(),
        {"ids": list(ids), "metric": metric},
        binary=True,
    )
    for stream_id, *block in await cursor.fetchall():
        yield stream_id, _series(*block)


def _series(
    rows: int, iterations: bytes | None, times: bytes, steps: bytes, positions: bytes | None, values: bytes | None
) -> Series:
    numbers = unpack_spaced(steps, rows)
    own = numbers if iterations is None else unpack_spaced(iterations, rows)
    found = array("d", own) if values is None else unpack_doubles(values)
    whole = Series(own, unpack_spaced(times, rows), found, numbers)
    return whole if positions is None else whole.at(unpack_positions(positions))


async def _out_of_rows(
    connection: Connection, streams: Sequence[Stream], metric: str | None
) -> AsyncIterator[tuple[int, Series]]:
    """One text for each column costs least on both sides."""
    if not streams:
        return
    value = "r.iteration::text" if metric is None else "r.metrics ->> %(metric)s"
    condition = "" if metric is None else " where r.metrics ? %(metric)s"
    cursor = await connection.execute(
        "select stream_id, string_agg(row_step::text, ','), string_agg(iteration::text, ','),"
        " string_agg(at::text, ','), string_agg(value, ',') from ("
        f"select r.stream_id, r.row_step, r.iteration, {_TIME} as at, {value} as value"
        " from unnest(%(ids)s::bigint[], %(after)s::bigint[]) s (id, after)"
        f" join lens_row r on r.stream_id = s.id and r.row_step >= s.after{condition}"
        " order by r.stream_id, r.row_step) rows group by stream_id".encode(),
        {
            "ids": [stream.id for stream in streams],
            "after": [LOWEST_STEP if s.blocked_step is None else s.blocked_step + 1 for s in streams],
            "metric": metric,
        },
    )
    for stream_id, steps, iterations, times, values in await cursor.fetchall():
        numbers = [array("q", _decode_integers(f"[{text}]")) for text in (iterations, times, steps)]
        yield stream_id, Series(numbers[0], numbers[1], array("d", map(float, values.split(","))), numbers[2])
