"""Databases that tests begin with: the tables of a store are made once and copied, which is quicker."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import psycopg
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres
from lens_plugins.sinks.postgresql.migrate import migrate


async def migrate_database(dsn: str) -> None:
    """Make the tables of a store."""
    connection = await psycopg.AsyncConnection.connect(dsn)
    try:
        await migrate(connection)
    finally:
        await connection.close()


async def make_embedded(folder: Path) -> None:
    """Make the directory `postgresql` of an embedded database in a folder, as a daemon does at its first start."""
    server = EmbeddedPostgres(folder / "postgresql", logging.getLogger(), shared_buffers=16 << 20, max_wal=64 << 20)
    await server.start()
    await migrate_database(server.dsn)
    await server.stop()


if __name__ == "__main__":
    asyncio.run(make_embedded(Path(sys.argv[1])))
