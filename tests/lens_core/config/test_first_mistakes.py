"""The mistakes that nearly everybody makes once: each message says what, where, and how to fix it."""

from __future__ import annotations

import logging
import os
import socket
from email.utils import formatdate
from pathlib import Path

import psycopg
import pytest
from lens_hook import say
from lens_hook.buffer import Counts
from lens_hook.client import Client
from lens_hook.sender import Sender
from lens_hook.settings import Settings
from lens_hook.store import Batch
from lens_hook.wire import Line
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres

from lens_core import Context, LensError, Secret, Unavailable
from lens_core.base.data_dir import DataDirLock, _whose
from lens_core.base.self_metrics import SelfMetrics
from lens_core.cli.checks import clocks
from lens_core.cli.client import daemon_url, request_json
from lens_core.http.server import _why, bind

NOON = 1_800_000_000.0
NO_DATABASE = "postgresql://lens:s3cret@127.0.0.1:1/lens"


def context(folder: Path) -> Context:
    return Context(name="store", logger=logging.getLogger("tests.store"), data_dir=folder, metrics=SelfMetrics())


def test_a_port_that_somebody_has_names_the_process() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        expected = rf"cannot listen on {address}: Address already in use \(by process {os.getpid()}, .+\); choose an"
        with pytest.raises(LensError, match=expected):
            bind(address)


def test_a_low_port_says_what_it_takes() -> None:
    assert "CAP_NET_BIND_SERVICE" in _why(PermissionError(13, "Permission denied"), 80)
    assert _why(PermissionError(13, "Permission denied"), 8080) == ""


def test_a_directory_of_somebody_else_says_whose_it_is(tmp_path: Path) -> None:
    text = _whose(PermissionError(13, "Permission denied"), tmp_path / "data" / "lens")
    assert text.startswith(f" ({tmp_path} belongs to ")
    assert "and this process is" in text
    with pytest.raises(LensError, match=r"cannot be used: .*; choose another with --data-dir, or with LENS_DATA_DIR"):
        DataDirLock(Path("/proc/lens")).acquire()


def test_an_address_that_cannot_be_read_is_never_shown() -> None:
    with pytest.raises(ValueError, match="write postgresql://USER@HOST:PORT/DATABASE") as caught:
        PostgreSQL.Settings(dsn=Secret("postgres//lens:s3cret@db"))
    assert "s3cret" not in str(caught.value)


async def test_a_database_that_is_away_is_said_once_and_not_all_the_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgreSQL(PostgreSQL.Settings(dsn=Secret(NO_DATABASE), blocks=False), context(tmp_path))
    await store.start()
    with pytest.raises(Unavailable, match="Connection refused"):
        async with store.database.reading():
            pass
    assert "Connection refused" in store.notice()
    store.database._log_outage(psycopg.OperationalError(store.database._problem.partition(": ")[2]))
    said = [message for message in caplog.messages if "PostgreSQL is unavailable" in message]
    assert len(said) == 1
    assert "lens validate --connect" in said[0]
    assert "s3cret" not in said[0]
    await store.stop()


def test_of_a_server_that_does_not_start_the_telling_line_is_shown(tmp_path: Path) -> None:
    server = EmbeddedPostgres(
        tmp_path / "postgresql", logging.getLogger("tests"), shared_buffers=1 << 20, max_wal=1 << 26
    )
    assert server._last_words() == "it said nothing"
    (tmp_path / "postgresql.log").write_text(
        "creating subdirectories ... ok\n"
        "initdb: error: could not create directory: No space left on device\n"
        'initdb: removing contents of data directory "/x"\n\n'
    )
    assert server._last_words().endswith("No space left on device")
    (tmp_path / "postgresql.log").write_text("one\ntwo\n")
    assert server._last_words() == "two"


def test_addresses_of_commands(tmp_path: Path) -> None:
    assert daemon_url("http://lens:8080/api/v1/", None) == "http://lens:8080"
    with pytest.raises(LensError, match="lens:8080 is no address of a daemon; write http://lens:8080, or https://"):
        daemon_url("lens:8080", None)
    with pytest.raises(LensError, match="`lens up` starts one, --url and LENS_URL name another"):
        request_json("GET", "http://127.0.0.1:1", "/api/v1/status")


def test_the_hook_says_once_that_nobody_answers(capfd: pytest.CaptureFixture[str]) -> None:
    say._said.clear()
    client = Client(Settings(base_url="http://127.0.0.1:1/api/v1"), lambda: None)
    sender = Sender(client, Counts())
    for _ in range(8):
        sender.try_now()
        assert not sender.send(Batch(b"{}", [Line(b'{"record":"step_metrics"}', 1)]), 5.0)
    said = "lens-hook: http://127.0.0.1:1/api/v1 cannot be reached: Connection refused; going on trying"
    assert capfd.readouterr().err.count(said) == 1
    say._said.clear()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (formatdate(NOON, usegmt=True), []),
        (formatdate(NOON - 3630, usegmt=True), ["this machine's is 1 h 0 min ahead of the daemon's"]),
        (formatdate(NOON + 7230, usegmt=True), ["this machine's is 2 h 0 min behind the daemon's"]),
        ("", []),
        ("yesterday", []),
    ],
)
def test_clocks_that_differ_are_found(told: str, said: list[str]) -> None:
    found = [*clocks(told, NOON)]
    assert len(found) == len(said)
    for finding, expected in zip(found, said, strict=True):
        assert finding.text.startswith(expected)
        assert finding.state == "warning"
