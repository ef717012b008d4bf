"""Servers and daemons are killed and put to sleep at random: what was acknowledged is stored, each record once."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lens_core import Origin, Record, StepMetrics
from lens_core.model.records import encode_envelope
from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.lens_core.cluster.test_as_one import line
from tests.nats_servers import NatsServers

# CI runs the short form; benchmarks of endurance take ten minutes.
SOAK_SECONDS = float(os.environ.get("LENS_SOAK_SECONDS", "8"))
DAEMONS = 3
LEASE_SECONDS = 1.5


class Fleet:
    """Three servers and three daemons as processes of their own, on one database."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.servers = NatsServers(folder / "nats").start()
        cluster = {
            "nats": self.servers.urls,
            "monitoring": self.servers.monitoring,
            "partitions": 6,
            "lease_seconds": LEASE_SECONDS,
        }
        config = json.dumps({"cluster": cluster, "sinks": {"store": {"type": "postgresql", "dsn": dsn}}})
        self.daemons = [RunningLens(folder / f"d{number}", config) for number in range(DAEMONS)]
        for daemon in self.daemons:
            daemon.start()

    def end(self) -> None:
        """Leave nothing running."""
        for daemon in self.daemons:
            daemon.end()
        self.servers.stop()


@pytest.fixture
def fleet(tmp_path: Path, postgres_dsn: str) -> Iterator[Fleet]:
    started = Fleet(tmp_path, postgres_dsn)
    yield started
    started.end()


class Senders:
    """Threads that send records in turn to all daemons, and repeat what was not acknowledged."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._turn = itertools.count()
        self._over = threading.Event()
        self.rows: list[int] = []
        self.lines: list[int] = []
        self._threads = [
            threading.Thread(target=self._send_all, args=(self.rows, self._row)),
            threading.Thread(target=self._send_all, args=(self.lines, line)),
        ]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _row(self, step: int) -> Record:
        origin = Origin(workload_uid=f"rows-{step % 5}")
        return StepMetrics(
            origin=origin, data_source="wandb", run_id="r", row_step=step, sequence=step, values={"loss": float(step)}
        )

    def _send_all(self, acknowledged: list[int], make: Any) -> None:
        with httpx.Client(timeout=10) as client:
            for step in itertools.count(1):
                body = encode_envelope([make(step)])
                while not self._is_taken(client, body):
                    time.sleep(0.02)
                acknowledged.append(step)
                if self._over.wait(0.004):
                    return

    def _is_taken(self, client: httpx.Client, body: bytes) -> bool:
        daemon = self._fleet.daemons[next(self._turn) % DAEMONS]
        headers = {"Content-Type": "application/msgpack"}
        try:
            return client.post(f"{daemon.url}/api/v1/records", content=body, headers=headers).status_code == 200
        except httpx.HTTPError:
            return False


def kill_at_random(fleet: Fleet, seconds: float, rng: random.Random) -> int:
    """Kill a server or a daemon and start it again, or stop a daemon for a while, and so on; returns how often."""
    ends, killed = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        number = rng.randrange(DAEMONS)
        killed += 1
        fault = rng.choice(["server", "daemon", "sleep"])
        if fault == "server":
            fleet.servers.kill_one(number)
            time.sleep(rng.uniform(0.2, 1.0))
            fleet.servers.start_one(number)
            wait_for(fleet.servers.is_ready, 60, "JetStream has a leader")
        elif fault == "sleep":  # longer than its lease: it wakes up as one that owns nothing and does not know it
            process = fleet.daemons[number].process
            assert process is not None
            process.send_signal(signal.SIGSTOP)
            time.sleep(2 * LEASE_SECONDS)
            process.send_signal(signal.SIGCONT)
        else:
            daemon = fleet.daemons[number]
            daemon.kill()
            time.sleep(rng.uniform(0.2, 1.0))
            daemon.start()
    return killed


@pytest.mark.slow("three servers and three daemons are started, and killed for eight seconds")
def test_what_was_acknowledged_is_stored_once_whoever_is_killed(fleet: Fleet) -> None:
    with Senders(fleet) as sent:
        killed = kill_at_random(fleet, SOAK_SECONDS, random.Random(7))
    assert killed > 1
    asked = fleet.daemons[0]

    def rows() -> list[int]:
        jobs = [asked.points(f"rows-{job}", metrics="loss") for job in range(5)]
        return sorted(point["iteration"] for points in jobs for point in points)

    wait_for(lambda: len(rows()) >= len(sent.rows), 60, f"{len(sent.rows)} rows")
    assert rows() == sent.rows

    def steps() -> list[tuple[int, int]]:
        return sorted((point["iteration"], point["attempt"]) for point in asked.points("job", metrics="lm_loss"))

    wait_for(lambda: len(steps()) >= len(sent.lines), 60, f"{len(sent.lines)} steps of lines")
    found = steps()
    assert [step for step, _ in found] == sent.lines
    assert len({attempt for _, attempt in found}) == 1, "a job that goes on elsewhere is one attempt"
    print(f"killed {killed}, rows {len(sent.rows)}, lines {len(sent.lines)}")
