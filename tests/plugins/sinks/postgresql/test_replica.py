"""Queries that go to a replica: a real one, which streams from its primary."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from lens_plugins.sinks.postgresql import PostgreSQL, embedded
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lens_core import LensError, Secret
from tests.plugins.sinks.postgresql.support import Spool, context, points, row, running_store


class Server(embedded.EmbeddedPostgres):  # type: ignore[misc] # installed without types
    """A PostgreSQL of a test's own that others may stream from."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, logging.getLogger("tests.replica"), shared_buffers=16 << 20, max_wal=64 << 20)
        self._settings.update({"wal_level": "replica", "max_wal_senders": "4"})


def copy(primary: Server, source: Path, folder: Path) -> None:
    """A copy of a server that begins as its replica."""
    program = embedded._binaries((source / "PG_VERSION").read_text().strip()) / "pg_basebackup"
    command = [str(program), "-d", primary.dsn, "-D", str(folder), "-R", "-X", "stream", "-c", "fast"]
    subprocess.run(command, check=True)
    owner = source.stat()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)


@asynccontextmanager
async def primary_and_replica(folder: Path) -> AsyncIterator[tuple[Server, Server]]:
    """Two servers, the second of which follows the first."""
    primary, replica = Server(folder / "primary"), Server(folder / "replica")
    await primary.start()
    try:
        await asyncio.to_thread(copy, primary, folder / "primary", folder / "replica")
        await replica.start()
        yield primary, replica
    finally:
        await replica.stop()
        await primary.stop()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that comes by itself."""
    ends = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.02)


async def asked(store: PostgreSQL) -> str:
    """The folder of the server that answers queries."""
    async with store.database.reading() as connection:
        return str(connection.info.host)


async def test_queries_go_to_the_replica_while_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lens_plugins.sinks.postgresql.replica._LOOK_SECONDS", 0.05)
    async with primary_and_replica(tmp_path) as (primary, replica):
        here, there = (str(conninfo_to_dict(server.dsn)["host"]) for server in (primary, replica))
        secret = Secret(replica.dsn)
        async with running_store(tmp_path / "store", primary.dsn, read_dsn=secret) as store:
            await Spool(store).deliver(row(1))
            await until(lambda: "which is 0.0 s behind" in store.notice())
            assert await asked(store) == there
            async with store.database.writing() as connection:
                assert connection.info.host == here
            await store.check()
            await replica.stop()
            assert len(await points(store)) == 1  # at once, and from the other
            assert await asked(store) == here
            await until(lambda: "is not used" in store.notice())
            assert store.notice().endswith("; queries go to dsn")
            await replica.start()
            await until(lambda: "s behind" in store.notice())
            assert await asked(store) == there
            await primary.stop()
            assert len(await points(store)) == 1  # the replica goes on alone
            await primary.start()
    assert any("the replica (read_dsn) is not used" in message for message in caplog.messages)


async def test_one_that_is_no_copy_or_far_behind_is_not_asked(
    tmp_path: Path, postgres_server: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lens_plugins.sinks.postgresql.replica._LOOK_SECONDS", 0.05)
    async with running_store(tmp_path, postgres_dsn, read_dsn=Secret(postgres_server)) as store:
        await until(lambda: "UndefinedTable" in store.notice())
        await Spool(store).deliver(row(1))
        assert len(await points(store)) == 1
    async with running_store(tmp_path, postgres_dsn, read_dsn=Secret(postgres_dsn)) as store:
        await until(lambda: "queries go to the replica" in store.notice())
        monkeypatch.setattr("lens_plugins.sinks.postgresql.replica._MOST_BEHIND_SECONDS", -1.0)
        await until(lambda: "it is 0 s behind" in store.notice())
        monkeypatch.setattr("lens_plugins.sinks.postgresql.replica._MOST_BEHIND_SECONDS", 60.0)
        await until(lambda: "queries go to the replica" in store.notice())
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute("insert into lens_migration (number, name) values (9999, 'of the future')")
        await until(lambda: "it is at migration 9999, this Lens writes" in store.notice())
        with pytest.raises(LensError, match="at migration 9999"):
            await store.check()


async def test_addresses_that_cannot_be_read_are_said_without_them(tmp_path: Path, postgres_dsn: str) -> None:
    with pytest.raises(ValueError, match="read_dsn: is no connection string") as caught:
        async with running_store(tmp_path, postgres_dsn, read_dsn=Secret("hostt=a password=s3cret")):
            pass
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ValueError, match="a replica needs a dsn"):
        PostgreSQL(PostgreSQL.Settings(read_dsn=Secret(make_conninfo(host="x"))), context(tmp_path))
