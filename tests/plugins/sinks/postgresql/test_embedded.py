"""The server of our own: any user, any crash, any path."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from lens_plugins.sinks.postgresql import embedded, embedded_launcher
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres
from psycopg.conninfo import conninfo_to_dict

from lens_core import LensError

SCRIPT = """
import asyncio, logging, pathlib, sys
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres

async def main():
    server = EmbeddedPostgres(pathlib.Path(sys.argv[1]), logging.getLogger(), shared_buffers=16 << 20, max_wal=64 << 20)
    await server.start()
    print(server.pid, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()

asyncio.run(main())
"""


def server_at(directory: Path) -> Any:
    return EmbeddedPostgres(directory, logging.getLogger("tests.embedded"), shared_buffers=16 << 20, max_wal=64 << 20)


async def answers(server: Any) -> bool:
    async with await psycopg.AsyncConnection.connect(server.dsn) as connection:
        return await (await connection.execute("select 1")).fetchone() == (1,)


async def test_start_stop_start(tmp_path: Path) -> None:
    server = server_at(tmp_path / "data")
    await server.start()
    assert await answers(server)
    await server.stop()
    assert server.pid is None
    await server.start()
    assert await answers(server)
    await server.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data.log"]


async def test_nobody_else_may_connect(tmp_path: Path) -> None:
    server = server_at(tmp_path / "data")
    await server.start()
    process = psutil.Process(server.pid)
    assert [c for c in process.net_connections() if c.family.name != "AF_UNIX"] == []
    assert (tmp_path / "data.run").stat().st_mode & 0o077 == 0
    await server.stop()


async def test_a_path_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    server = server_at(tmp_path / ("x" * 60) / ("y" * 60) / "data")
    await server.start()
    assert await answers(server)
    folder = Path(str(conninfo_to_dict(server.dsn)["host"]))
    assert folder.stat().st_mode & 0o077 == 0
    await server.stop()
    assert not folder.exists()


async def test_a_folder_that_is_closed_to_others(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = server_at(closed / "data")
    await server.start()
    assert await answers(server)
    await server.stop()
    assert closed.stat().st_mode & 0o777 == 0o700


async def test_programs_in_a_folder_that_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment below /root: initdb looks for postgres with access(2), which is stricter than exec."""
    package = embedded._binaries("18").parents[1]
    for folder in (package, package.with_suffix(".libs")):
        shutil.copytree(folder, tmp_path / "closed" / folder.name)
    (tmp_path / "closed").chmod(0o700)
    binaries = tmp_path / "closed" / package.name / "pginstall18" / "bin"
    monkeypatch.setattr(embedded, "_binaries", lambda version: binaries)
    server = server_at(tmp_path / "data")
    await server.start()
    assert await answers(server)
    await server.stop()


async def test_a_data_directory_that_was_never_finished_is_made_anew(tmp_path: Path) -> None:
    half = tmp_path / "data.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    server = server_at(tmp_path / "data")
    await server.start()
    assert await answers(server)
    await server.stop()
    assert not half.exists()


async def test_the_server_of_a_killed_process_ends_and_its_data_are_used(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        old = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    server = server_at(directory)
    await server.start()
    assert server.pid != old
    assert await answers(server)
    assert not psutil.pid_exists(old) or psutil.Process(old).status() == psutil.STATUS_ZOMBIE
    await server.stop()


async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    server = server_at(directory)
    await server.start()
    await server.stop()
    (directory / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(LensError, match=r"did not start: .*"):
        await server.start()
    (directory / "PG_VERSION").write_text("9\n")
    with pytest.raises(LensError, match="is of PostgreSQL 9"):
        await server.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="does not apply: every other test runs as an ordinary user here")
async def test_as_an_ordinary_user(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    folder = tmp_path / "of nobody"
    folder.mkdir()
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    # The capability lets that user reach this interpreter and this folder, wherever they are.
    identity = [str(os.getpid()), str(nobody.pw_uid), str(nobody.pw_gid), "1"]
    command = [sys.executable, "-c", SCRIPT, str(folder / "data")]
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, embedded_launcher.__file__, *identity, *command],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(embedded_launcher.__file__).parents[3],
    )
    assert process.stdout is not None
    pid = int(await asyncio.wait_for(process.stdout.readline(), 240))
    assert psutil.Process(pid).uids().effective == nobody.pw_uid
    await process.communicate(b"")  # with input, if empty: that closes it
    assert process.returncode == 0
