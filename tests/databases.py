"""Databases that tests begin with: the tables of a store are made once and copied, which is quicker."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
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
    """Make two data directories of the embedded PostgreSQL in a folder: `empty`, and `store` with the tables of one."""
    await _run(folder / "empty")
    subprocess.run(["cp", "-a", "--sparse=always", folder / "empty", folder / "store"], check=True)
    await _run(folder / "store", migrate_database)


async def _run(directory: Path, work: Callable[[str], Awaitable[None]] | None = None) -> None:
    server = EmbeddedPostgres(directory, logging.getLogger(), shared_buffers=16 << 20, max_wal=64 << 20)
    await server.start()
    if work is not None:
        await work(server.dsn)
    await server.stop()


if __name__ == "__main__":
    asyncio.run(make_embedded(Path(sys.argv[1])))
