"""Somebody pulls a plug: every acknowledged point is there exactly once afterwards, and the counters add up."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres

from lens_core import StepMetrics
from lens_core.base.compression import decompress
from lens_core.model.records import decode_envelope
from tests.durations import Stopwatch
from tests.end_to_end.load import every_acknowledged_point_is_there_exactly_once, load
from tests.end_to_end.running_lens import RunningLens, copy_database, http_get, ledgers_add_up, metrics_body, wait_for

MakeLens = Callable[..., RunningLens]

# CI runs the short form; LENS_SOAK_SECONDS=60 is the minute that the promise speaks of.
SOAK_SECONDS = float(os.environ.get("LENS_SOAK_SECONDS", "3"))


def postgres_pid(data_dir: Path) -> int:
    """The process id of the embedded PostgreSQL."""
    [file] = data_dir.rglob("postmaster.pid")
    return int(file.read_text().split()[0])


def is_resumed(lens: RunningLens) -> bool:
    """Whether every sink has got all that was left by earlier processes."""
    ledgers = [sink["ledger"] for pipeline in lens.get("/status")["pipelines"] for sink in pipeline["sinks"]]
    return all(ledger["delivered"] >= ledger["recovered"] for ledger in ledgers)


@pytest.mark.slow("breaks a daemon under load and waits until it has recovered")
def test_kill_9_of_the_daemon_under_load(make_lens: MakeLens) -> None:
    lens = make_lens().start()
    with load(lens, "w") as client:
        for _ in range(3):
            client.wait_for_more(400)
            # What two daemons die with, one after the other, is set aside: here nothing is to be.
            wait_for(lambda: is_resumed(lens), what="the delivery of what the daemon before has left")
            lens.kill()
            lens.start()
        client.wait_for_more(400)
    status = lens.drained()
    ledgers_add_up(status)
    every_acknowledged_point_is_there_exactly_once(lens, client, "w")


@pytest.mark.slow("breaks a daemon under load and waits until it has recovered")
def test_kill_9_of_postgresql_under_load(make_lens: MakeLens) -> None:
    lens = make_lens().start()
    with load(lens, "w") as client:
        for _ in range(2):
            client.wait_for_more(400)
            kill_postgresql_and_wait_for_another(lens.data_dir)
        client.wait_for_more(400)
    ledgers_add_up(lens.drained(120))
    every_acknowledged_point_is_there_exactly_once(lens, client, "w")


def kill_postgresql_and_wait_for_another(data_dir: Path) -> None:
    """kill -9 of the embedded PostgreSQL; the daemon starts another one."""
    before = postgres_pid(data_dir)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: _is_another(data_dir, before), 240, "another PostgreSQL")


def _is_another(data_dir: Path, before: int) -> bool:
    try:
        return postgres_pid(data_dir) != before
    except (ValueError, OSError, IndexError):
        return False


@pytest.mark.slow("breaks a daemon under load and waits until it has recovered")
def test_kill_9_of_both_at_once(make_lens: MakeLens) -> None:
    lens = make_lens().start()
    with load(lens, "w") as client:
        client.wait_for_more(400)
        os.kill(postgres_pid(lens.data_dir), signal.SIGKILL)
        lens.kill()
        lens.start()
        client.wait_for_more(200)
    ledgers_add_up(lens.drained(120))
    every_acknowledged_point_is_there_exactly_once(lens, client, "w")


@pytest.mark.soak
def test_postgresql_absent_for_a_while(make_lens: MakeLens, tmp_path: Path) -> None:
    copy_database("empty", tmp_path / "pg")
    server = EmbeddedPostgres(tmp_path / "pg", logging.getLogger("test"), shared_buffers=32 << 20, max_wal=256 << 20)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(server.start())
        dsn = server.dsn
        loop.run_until_complete(server.stop())
        lens = make_lens(f'sinks: {{store: {{type: postgresql, dsn: "{dsn}"}}}}').start()
        with load(lens, "w") as client:
            client.wait_for_more(200)
            answer = httpx.get(f"{lens.url}/api/v1/workloads/w/metrics/sources", timeout=240)
            assert (answer.status_code, answer.json()["code"]) == (503, "Unavailable")
            time.sleep(SOAK_SECONDS)  # this is the fault itself: the database stays away for so long
            loop.run_until_complete(server.start())
            client.wait_for_more(200)
        ledgers_add_up(lens.drained(120))
        every_acknowledged_point_is_there_exactly_once(lens, client, "w")
        lens.end()
    finally:
        loop.run_until_complete(server.stop())
        loop.close()


@pytest.mark.slow("starts a PostgreSQL and a daemon five times")
def test_an_older_copy_of_the_data_directory_starts_while_postgresql_is_away(
    make_lens: MakeLens, tmp_path: Path
) -> None:
    copy_database("empty", tmp_path / "pg")
    server = EmbeddedPostgres(tmp_path / "pg", logging.getLogger("test"), shared_buffers=32 << 20, max_wal=256 << 20)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(server.start())
        lens = make_lens(f'sinks: {{store: {{type: postgresql, dsn: "{server.dsn}"}}}}').start()
        accept(lens, range(3))
        lens.drained()
        assert lens.stop() == 0
        copy = shutil.copytree(lens.data_dir, tmp_path / "copy")
        lens.start()
        accept(lens, range(3, 33))
        lens.drained()
        lens.kill()
        loop.run_until_complete(server.stop())

        shutil.rmtree(lens.data_dir)
        shutil.copytree(copy, lens.data_dir)
        for first in (33, 43):
            lens.start()
            accept(lens, range(first, first + 10))
            lens.kill()
        loop.run_until_complete(server.start())
        lens.start()
        ledgers_add_up(lens.drained(120))
        stored = lens.points("w", metrics="m0")
        assert sorted(point["iteration"] for point in stored) == list(range(53))
        lens.end()
    finally:
        loop.run_until_complete(server.stop())
        loop.close()


def accept(lens: RunningLens, steps: range) -> None:
    """Post each step in a body, and so a batch, of its own."""
    for step in steps:
        assert lens.post("/wandb/metrics", metrics_body("w", [step])).status_code == 200


@pytest.mark.slow("breaks a daemon under load and waits until it has recovered")
def test_a_full_spool_closes_the_door_and_opens_it_again(make_lens: MakeLens) -> None:
    receiver = make_lens(name="receiver").start()
    port = receiver.url.rpartition(":")[2]
    receiver.kill()
    config = f"""
spool: {{max_bytes: 65536}}
sinks: {{onward: {{type: http, url: "http://127.0.0.1:{port}/api/v1/records"}}}}
"""
    lens = make_lens(config, name="sender").start()
    with load(lens, "w") as client:
        wait_for(lambda: client.refusals > 3, 240, "a gate that refuses")
        # As large as those that were refused: a smaller one may still find room.
        full = lens.post("/wandb/metrics", metrics_body("w", range(10**9, 10**9 + 100)))
        assert (full.status_code, full.json()["code"]) == (503, "Unavailable")
        assert int(full.headers["retry-after"]) >= 1
        wait_for(lambda: http_get(f"{lens.url}/readyz").status_code == 503, what="a daemon that is not ready")
        receiver.start(listen=f"127.0.0.1:{port}")
        client.wait_for_more(1000)
    ledgers_add_up(lens.drained(60))
    receiver.drained()
    every_acknowledged_point_is_there_exactly_once(receiver, client, "w")


@pytest.mark.slow("breaks a daemon under load and waits until it has recovered")
def test_a_spool_file_torn_in_the_middle_of_a_write(make_lens: MakeLens) -> None:
    receiver = make_lens(name="receiver").start()
    port = receiver.url.rpartition(":")[2]
    receiver.kill()
    lens = make_lens(
        f"sinks: {{onward: {{type: http, url: 'http://127.0.0.1:{port}/api/v1/records'}}}}", "sender"
    ).start()
    with load(lens, "w") as client:
        client.wait_for_more(400)
        lens.kill()
        # A write that the power failed in the middle of: a frame of which only garbage and half have arrived.
        [log] = (lens.data_dir / "spool").glob("*-wal")
        with log.open("ab") as file:
            file.write(random.Random(1).randbytes(2500))
        lens.start()
        client.wait_for_more(200)
    receiver.start(listen=f"127.0.0.1:{port}")
    ledgers_add_up(lens.drained(60))
    receiver.drained()
    every_acknowledged_point_is_there_exactly_once(receiver, client, "w")


NONSENSE: list[tuple[int, bytes]] = [
    (200, b"<html>please log in</html>"),
    (200, b""),
    (200, b'{"success": "maybe"}'),
    (204, b""),
    (302, b""),
    (418, b"teapot"),
    (429, b"slow down"),
    (500, b"{"),
    (503, b"\xff\xfe"),
]


@contextmanager
def nonsense(honest: threading.Event, rows: dict[int, dict[str, float]]) -> Iterator[str]:
    """A receiver that answers nonsense, or nothing, until it becomes honest; then it keeps the rows."""
    rng = random.Random(7)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not honest.is_set() and rng.random() < 0.3:
                self.connection.close()
                return
            status, answer = (200, b'{"success": true}') if honest.is_set() else rng.choice(NONSENSE)
            if honest.is_set():
                for record in decode_envelope(decompress(body, "zstd", 1 << 26)).records:
                    if isinstance(record, StepMetrics):
                        rows[record.row_step] = record.values
            self.send_response(status)
            self.send_header("Content-Length", "0" if status == 204 else str(len(answer)))
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"" if status == 204 else answer)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/records"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow("breaks a daemon under load and waits until it has recovered")
def test_a_sink_that_answers_nonsense_gets_everything_once_it_is_honest(make_lens: MakeLens) -> None:
    honest = threading.Event()
    rows: dict[int, dict[str, float]] = {}
    with nonsense(honest, rows) as url:
        lens = make_lens(f"sinks: {{odd: {{type: http, url: '{url}'}}}}").start()
        with load(lens, "w") as client:
            client.wait_for_more(1000)
        wait_for(lambda: lens.get("/status")["pipelines"][0]["sinks"][0]["retries"] >= 3, 240, "three retries")
        honest.set()
        status = lens.drained(90)
        ledgers_add_up(status)
        # 418 says that it will never be taken: such records are dead letters, which replay sends again.
        letters = status["pipelines"][0]["sinks"][0]["dead_letters"]
        assert httpx.post(f"{lens.url}/api/v1/replay", timeout=240).json() == {"replayed": letters}
        lens.drained()
        assert set(client.acknowledged) <= set(rows)
        assert all(values == {f"m{n}": step + n / 100 for n in range(5)} for step, values in rows.items())
        lens.end()


@pytest.mark.slow("breaks a daemon under load and waits until it has recovered")
def test_stopping_under_load_is_quick_and_loses_nothing(make_lens: MakeLens) -> None:
    lens = make_lens().start()
    with load(lens, "w") as client:
        client.wait_for_more(400)
        watch = Stopwatch()
        assert lens.stop() == 0
        took = watch.seconds()
        lens.start()
        client.wait_for_more(100)
    assert took < 15  # the deadline is 5 s
    ledgers_add_up(lens.drained())
    every_acknowledged_point_is_there_exactly_once(lens, client, "w")
