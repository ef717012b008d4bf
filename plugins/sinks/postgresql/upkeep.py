"""Output and work of `lens db`: statistics of the database, and its maintenance."""

from __future__ import annotations

import time
from typing import Any

from .address import describe_error
from .compacting import compact_stream
from .identity import Connection
from .place import has_rows, remove_rows
from .point_store import PointStore
from .retention import Policy, retain

_TABLES = """
    select c.relname, pg_total_relation_size(c.oid), greatest(c.reltuples, 0)::bigint
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and c.relname like 'lens\\_%' and n.nspname = current_schema() order by 2 desc
"""
_LARGEST = """
    select coalesce(nullif(workload_uid, ''), nullif(pod_uid, ''), pod_name), name, rows, last_seen_us
    from lens_subject where rows > 0 order by rows desc, id limit 10
"""


async def database_stats(connection: Connection) -> dict[str, Any]:
    """Sizes in bytes, counts of rows, how much of them is in blocks, the largest workloads. Times in ms."""
    row = await _one(
        connection,
        "select count(*) filter (where rows > 0), coalesce(sum(rows), 0)::bigint,"
        " coalesce(sum(blocked_rows), 0)::bigint, (select count(*) from lens_subject),"
        " (select count(*) from lens_block where dirty), (select max(number) from lens_migration),"
        " pg_database_size(current_database()), current_setting('server_version') from lens_stream",
    )
    cursor = await connection.execute(_TABLES)
    tables = [{"table": name, "bytes": size, "rows_estimated": rows} for name, size, rows in await cursor.fetchall()]
    cursor = await connection.execute(_LARGEST)
    largest = [
        {"workload_uid": uid, "name": name or uid, "rows": rows, "last_seen": (seen or 0) // 1000}
        for uid, name, rows, seen in await cursor.fetchall()
    ]
    return {
        "server_version": row[7],
        "migration": row[5],
        "database_bytes": row[6],
        "subjects": row[3],
        "streams": row[0],
        "rows": row[1],
        "rows_in_blocks": row[2],
        "blocks_to_be_made_anew": row[4],
        "tables": tables,
        "largest": largest,
    }


async def clean_database(connection: Connection, store: PointStore, policy: Policy) -> dict[str, Any]:
    """Remove what is too old, make all blocks that can be made, then VACUUM and ANALYZE every table of Lens."""
    removed = await retain(connection, store, policy, time.time_ns() // 1000)
    if store.is_apart and await has_rows(connection):
        await remove_rows(connection)
    cursor = await connection.execute(
        "select id from lens_stream s where rows > blocked_rows"
        " or exists (select from lens_block b where b.stream_id = s.id and b.dirty)"
    )
    made, failed = 0, {}
    for (stream_id,) in await cursor.fetchall() if not store.is_apart else ():
        try:
            made += await compact_stream(connection, stream_id, partial=True)
        except Exception as error:
            if connection.closed:
                raise
            failed[str(stream_id)] = describe_error(error)
    cursor = await connection.execute(_TABLES)
    tables = [row[0] for row in await cursor.fetchall()]
    for table in tables:
        await connection.execute(f"vacuum (analyze) {table}".encode())
    found = {**removed, "blocks_made": made, "tables_vacuumed": len(tables)}
    return {**found, "streams_failed": failed} if failed else found


async def _one(connection: Connection, statement: str) -> tuple[Any, ...]:
    row = await (await connection.execute(statement.encode())).fetchone()
    assert row is not None  # an aggregate always has a row
    return row
