"""Between Lens and its database: a real PgBouncer, and several hosts in one address."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lens_plugins.sinks.postgresql.blocks import BLOCK_ROWS
from lens_plugins.sinks.postgresql.sessions import only_here
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store

CONFIG = """[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = {mode}
logfile = {folder}/log
"""


@contextmanager
def pooled(dsn: str, mode: str, more: str = "") -> Iterator[str]:
    """A PgBouncer before the server of a dsn, with `more` settings; the dsn through it."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("there is no pgbouncer")
    server = conninfo_to_dict(dsn)
    # It does not run as root, but as who owns the server's folder, and has to come there through pytest's.
    socket_folder = Path(str(server["host"]))
    owner = socket_folder.stat().st_uid
    for parent in socket_folder.parents if os.getuid() == 0 else ():
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o111)
    with tempfile.TemporaryDirectory(prefix="lens-pool-") as name:
        folder = Path(name)
        os.chown(folder, owner, -1)
        text = CONFIG.format(host=server["host"], port=server["port"], user=server["user"], folder=folder, mode=mode)
        (folder / "pgbouncer.ini").write_text(text + more)
        command = [program, "-q", *(["-u", pwd.getpwuid(owner).pw_name] if os.getuid() == 0 else [])]
        process = subprocess.Popen([*command, str(folder / "pgbouncer.ini")], stderr=subprocess.DEVNULL)
        try:
            _until_it_listens(folder / ".s.PGSQL.6432")
            yield make_conninfo(dsn, host=str(folder), port=6432)
        finally:
            process.terminate()
            process.wait(timeout=240)


def _until_it_listens(path: Path) -> None:
    deadline = time.monotonic() + 240
    while True:
        with socket.socket(socket.AF_UNIX) as one:
            if one.connect_ex(str(path)) == 0:
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_a_pool_of_sessions_will_do(tmp_path: Path, postgres_dsn: str) -> None:
    with pooled(postgres_dsn, "session") as dsn:
        async with running_store(tmp_path, dsn) as store:
            await Spool(store).deliver(row(1))
            assert len(await points(store)) == 1


async def test_a_pool_of_transactions_will_do_as_well(tmp_path: Path, postgres_dsn: str) -> None:
    """Two daemons on two sessions: blocks, charts, streams of pieces, and the time limits of each transaction."""
    with pooled(postgres_dsn, "transaction", "default_pool_size = 6") as dsn:
        async with (
            running_store(tmp_path / "one", dsn, statement_timeout_seconds=7) as one,
            running_store(tmp_path / "two", dsn, write_timeout_seconds=9) as two,
        ):
            await asyncio.gather(
                Spool(one, "one").deliver(*(row(step) for step in range(BLOCK_ROWS + 100))),
                Spool(two, "two").deliver(*(row(step, run_id="other") for step in range(100))),
            )
            assert len(await points(one)) == BLOCK_ROWS + 200
            await two.vacuum()
            assert ask(postgres_dsn, "select count(*) from lens_block where rows = %s", BLOCK_ROWS) == [(1,)]
            found = await asyncio.gather(*(points(store, run_id="run-1") for store in (one, two) for _ in range(10)))
            assert {len(each) for each in found} == {BLOCK_ROWS + 100}
            async with one.database.reading() as connection:
                assert await shown(connection, "statement_timeout") == "7s"
                assert await shown(connection, "idle_in_transaction_session_timeout") == "7s"
            async with two.database.writing() as connection, connection.transaction():
                assert await shown(connection, "statement_timeout") == "9s"
    with psycopg.connect(postgres_dsn) as direct:
        assert direct.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)


async def test_what_a_transaction_says_is_not_left_to_others(tmp_path: Path, postgres_dsn: str) -> None:
    with pooled(postgres_dsn, "transaction") as dsn:
        async with running_store(tmp_path, dsn, statement_timeout_seconds=7) as store:
            await Spool(store).deliver(row(1))
            assert len(await points(store)) == 1
            async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as somebody:
                for _ in range(5):
                    assert await shown(somebody, "statement_timeout") == "0"


async def test_only_one_makes_the_blocks_of_a_stream(tmp_path: Path, postgres_dsn: str) -> None:
    with pooled(postgres_dsn, "transaction") as dsn:
        async with running_store(tmp_path, dsn, blocks=False) as store:
            one, two = await store.database.connect(), await store.database.connect()
            async with one, two, only_here(one, 17) as is_first, only_here(two, 17) as is_second:
                assert (is_first, is_second) == (True, False)
            async with await store.database.connect() as one, only_here(one, 17) as is_free:
                assert is_free


async def shown(connection: Any, setting: str) -> Any:
    """The value of a setting now."""
    row = await (await connection.execute(f"show {setting}")).fetchone()
    return row[0]


async def test_of_several_hosts_the_one_that_writes_is_taken(tmp_path: Path, postgres_dsn: str) -> None:
    """The first leads to a server that is only read, as a standby is; libpq alone would stay with it."""
    async with running_store(tmp_path / "standby", None, blocks=False) as standby:
        async with standby.database.writing() as connection:
            await connection.execute("alter system set default_transaction_read_only = on")
            await connection.execute("select pg_reload_conf()")
        first, second = (conninfo_to_dict(dsn) for dsn in (standby.database.dsn, postgres_dsn))
        hosts, ports = (f"{first[name]},{second[name]}" for name in ("host", "port"))
        async with running_store(tmp_path / "store", make_conninfo(postgres_dsn, host=hosts, port=ports)) as store:
            await Spool(store).deliver(row(1))
    assert ask(postgres_dsn, "select count(*) from lens_row") == [(1,)]
