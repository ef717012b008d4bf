"""Points acknowledged and stored per second, beside an MLflow tracking server on the same PostgreSQL.

Lens: bodies of 1,000 points (as many as MLflow takes at once) and of 5,000 (1,000 rows of five metrics, as the hook
sends them) through /api/v1/wandb/metrics and /wandb/logs, two clients, steps of 5 and of 50 metrics; time runs from the
first byte until the last row is committed in PostgreSQL (fsync on). Blocks, the copies that charts are drawn from, give
way to writing and are mostly made between the runs; the last figure of throughput is that of a load which outlasts
their patience, so that they are made within it. MLflow: `log_batch` of 1,000 metrics over its REST API, two clients,
two workers. What bounds Lens on two cores is the daemon's one interpreter: it takes two to five times the CPU time
that PostgreSQL does.

    python -m benchmarks.ingest [--quick] [--json]
"""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.harness import (
    Daemon,
    Figure,
    options,
    peer_environment,
    percentile,
    postgres,
    report,
    spread_of,
    temporary_folder,
)

POINTS_PER_BODY = 5000
BODY_SIZES = (1000, POINTS_PER_BODY)
MLFLOW_BATCH = 1000  # the most that MLflow takes at once
CLIENTS = 2
LONG_POINTS = 3_000_000  # 600,000 rows, more than twice as many as wait for blocks under load


def metrics_bodies(workload: str, points: int, per_step: int, per_body: int = POINTS_PER_BODY) -> list[bytes]:
    """Bodies of /wandb/metrics."""
    bodies = []
    for first in range(0, points, per_body):
        metrics = [
            {
                "name": f"train/metric_{number % per_step}",
                "value": number * 0.37,
                "step": number // per_step,
                "timestamp": 1_700_000_000 + number // per_step,
                "tags": {},
            }
            for number in range(first, first + per_body)
        ]
        body = {"source": "wandb", "workload_uid": workload, "pod_name": "p", "run_id": "r", "metrics": metrics}
        bodies.append(json.dumps(body).encode())
    return bodies


def logs_bodies(workload: str, points: int, per_step: int, per_body: int = POINTS_PER_BODY) -> list[bytes]:
    """Bodies of /wandb/logs."""
    bodies = []
    steps_per_body = per_body // per_step
    for first in range(0, points // per_step, steps_per_body):
        logs = [
            {
                "step": step,
                "timestamp": 1_700_000_000 + step,
                "data": {f"train/metric_{n}": (step * per_step + n) * 0.37 for n in range(per_step)},
            }
            for step in range(first, first + steps_per_body)
        ]
        bodies.append(json.dumps({"workload_uid": workload, "pod_name": "p", "run_id": "r", "logs": logs}).encode())
    return bodies


def post_all(url: str, path: str, bodies: Iterable[bytes]) -> list[float]:
    """Post bodies from several clients, each on one connection; the seconds of every request."""
    address = urlsplit(url)
    latencies: list[float] = []
    queue = iter(bodies)
    lock = threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=60)
        headers = {"Content-Type": "application/json"}
        while True:
            with lock:
                body = next(queue, None)
            if body is None:
                break
            started = time.perf_counter()
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {answer[:200]!r}")
            latencies.append(time.perf_counter() - started)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


class LensRun:
    """The figures of one run of Lens: points per second, latencies of acknowledgements, memory."""

    def __init__(self, daemon: Daemon, path: str, bodies: Sequence[bytes], points: int) -> None:
        started = time.perf_counter()
        self.latencies = post_all(daemon.url, path, bodies)
        self.acknowledged_seconds = time.perf_counter() - started
        while daemon.pending():
            time.sleep(0.05)
        self.points_per_second = points / (time.perf_counter() - started)
        self.rss_mib = daemon.rss_mib()


def mlflow_points_per_second(dsn: str, seconds: float) -> float:
    """Measure what an MLflow tracking server stores in the same time."""
    binaries = peer_environment("mlflow", ["mlflow", "psycopg2-binary", "setuptools<81"])
    parts = dict(part.split("=", 1) for part in dsn.split())
    uri = f"postgresql+psycopg2://{parts['user']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binaries / "mlflow"), "server", "--backend-store-uri", uri, "--workers", str(CLIENTS)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    environment = {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": "/var/tmp", "MLFLOW_DISABLE_TELEMETRY": "true"}
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        _wait_for_port(port)
        return _log_batches(port, seconds)
    finally:
        server.terminate()
        server.wait()


def _wait_for_port(port: int, seconds: float = 120) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the MLflow server did not start")


def _log_batches(port: int, seconds: float) -> float:
    ends = time.monotonic() + seconds
    stored = [0] * CLIENTS

    def call(connection: http.client.HTTPConnection, path: str, body: object) -> dict[str, dict[str, dict[str, str]]]:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/api/2.0/mlflow/{path}", json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"MLflow {path}: {response.status} {answer[:300]!r}")
        found: dict[str, dict[str, dict[str, str]]] = json.loads(answer)
        return found

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        run = call(connection, "runs/create", {"experiment_id": "0", "start_time": int(time.time() * 1000)})
        run_id = run["run"]["info"]["run_id"]
        step = 0
        while time.monotonic() < ends:
            metrics = [
                {
                    "key": f"train/metric_{n % 5}",
                    "value": n * 0.37,
                    "timestamp": 1_700_000_000_000,
                    "step": step + n // 5,
                }
                for n in range(MLFLOW_BATCH)
            ]
            call(connection, "runs/log-batch", {"run_id": run_id, "metrics": metrics})
            stored[number] += MLFLOW_BATCH
            step += MLFLOW_BATCH // 5

    started = time.monotonic()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(stored) / (time.monotonic() - started)


class Case(NamedTuple):
    """One kind of load."""

    path: str
    per_step: int
    per_body: int

    def bodies(self, workload: str, points: int) -> list[bytes]:
        """Make bodies with a number of its points."""
        make = metrics_bodies if self.path == "metrics" else logs_bodies
        return make(workload, points, self.per_step, self.per_body)


CASES = [Case(path, steps, size) for size in BODY_SIZES for path in ("metrics", "logs") for steps in (5, 50)]


class Measured:
    """The figures of all runs of one daemon."""

    def __init__(self) -> None:
        self.rates: dict[Case, list[float]] = {}
        self.peers: list[float] = []
        self.latencies: list[float] = []
        self.rss_mib = 0.0

    def run(self, daemon: Daemon, case: Case, name: str, points: int) -> float:
        """Points per second of one run."""
        run = LensRun(daemon, f"/api/v1/wandb/{case.path}", case.bodies(name, points), points)
        self.latencies += run.latencies
        self.rss_mib = max(self.rss_mib, run.rss_mib)
        return run.points_per_second


def measure(folder: Path, *, quick: bool) -> list[Figure]:
    """All figures of this script."""
    points = 200_000 if quick else 1_000_000
    figures: list[Figure] = []
    with postgres(folder) as database:
        config = (
            f'sinks: {{store: {{type: postgresql, dsn: "{database("lens")}"}}}}\nserver: {{listen: "127.0.0.1:0"}}\n'
        )
        daemon = Daemon(folder / "lens", config).start()
        idle = daemon.rss_mib()
        done = Measured()
        for number in range(1 if quick else 3):
            for case in CASES:
                rate = done.run(daemon, case, f"w-{'-'.join(map(str, case))}-{number}", points)
                done.rates.setdefault(case, []).append(rate)
            done.peers.append(mlflow_points_per_second(database(f"mlflow_{number}"), 10 if quick else 20))
        figures += _throughput(done)
        if not quick:
            rate = done.run(daemon, CASES[0], "w-long", LONG_POINTS)
            figures.append(Figure(figure="the first of these, blocks made within it", unit="points/s", lens=rate))
        p99 = percentile(done.latencies, 0.99) * 1000
        figures.append(_goal("acknowledgement p99 at that rate", "ms", p99, "≤ 250", p99 <= 250))
        figures.append(_goal("daemon RSS at that rate", "MiB", done.rss_mib, "≤ 250", done.rss_mib <= 250))
        figures.append(_goal("daemon RSS idle", "MiB", idle, "≤ 120", idle <= 120))
        stop = daemon.stop()
        figures.append(_goal("stopping", "s", stop, "≤ 5", stop <= 5))
    figures += _embedded(folder)
    return figures


def _throughput(done: Measured) -> list[Figure]:
    peer = statistics.median(done.peers)
    return [
        Figure(
            figure=f"stored, /wandb/{case.path}, {case.per_step} metrics a step, bodies of {case.per_body:,}",
            unit="points/s",
            lens=(rate := statistics.median(found)),
            peer=peer,
            peer_name="MLflow log_batch",
            ratio=rate / peer,
            goal="≥ 100,000 and ≥ 30 × MLflow",
            holds=rate >= 100_000 and rate >= 30 * peer,
            spread=spread_of(found),
        )
        for case, found in done.rates.items()
    ]


def _embedded(folder: Path) -> list[Figure]:
    daemon = Daemon(folder / "embedded")
    daemon.start().stop()
    ready = daemon.start().ready_seconds
    daemon.stop()
    return [_goal("ready on an existing data directory, embedded PostgreSQL", "s", ready, "≤ 3", ready <= 3)]


def _goal(name: str, unit: str, value: float, goal: str, holds: bool) -> Figure:
    return Figure(figure=name, unit=unit, lens=value, goal=goal, holds=holds)


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__ or "")
    with temporary_folder() as folder:
        report(measure(folder, quick=chosen.quick), as_json=chosen.json)


if __name__ == "__main__":
    main()
