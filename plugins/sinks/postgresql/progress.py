"""Positions of spools: a cursor that moves in the transaction that writes."""

from __future__ import annotations

from lens_core import Batch, Position

from .identity import Connection


async def read_position(connection: Connection, spool_id: str, sink: str) -> Position | None:
    """Return how far a sink has written a spool; None for an unknown one."""
    cursor = await connection.execute(
        'select batch, "offset" from lens_cursor where spool_id = %s and sink = %s', [spool_id, sink]
    )
    row = await cursor.fetchone()
    return None if row is None else Position(int(row[0]), int(row[1]))


def already_written(stored: Position | None, batch: Batch) -> int:
    """Count the batch's first records that are written already; 0 where that is unknown (writing again is harmless)."""
    if stored is None or stored <= batch.start or not stored.batch == batch.start.batch == batch.end.batch:
        return 0
    whole = len(batch.records) == batch.end.offset - batch.start.offset
    return stored.offset - batch.start.offset if whole else 0


async def move_cursor(connection: Connection, batch: Batch) -> None:
    """Move the cursor, which also makes a second writer of the same spool wait."""
    await connection.execute(
        'insert into lens_cursor as known (spool_id, sink, batch, "offset") values (%s, %s, %s, %s)'
        ' on conflict (spool_id, sink) do update set batch = excluded.batch, "offset" = excluded."offset",'
        ' moved_at = now() where (known.batch, known."offset") < (excluded.batch, excluded."offset")',
        [batch.spool_id, batch.sink, batch.end.batch, batch.end.offset],
    )
