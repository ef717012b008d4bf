"""The peers of benchmarks/query.py, each asked for the same metric of the same run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg

from benchmarks.harness import peer_environment
from benchmarks.query_data import load_mlflow, mlflow_run, planted

_TENSORBOARD = """
import json, math, os, sys, time
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.data import provider
from tensorboard.context import RequestContext
folder, steps, spikes = sys.argv[1], int(sys.argv[2]), set(json.loads(sys.argv[3]))
if not os.path.exists(folder):
    writer = EventFileWriter(folder + ".unfinished", max_queue_size=100000, flush_secs=600)
    for step in range(steps):
        value = 1e6 if step in spikes else math.sin(step / 1e4)
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="m7", simple_value=value)])
        writer.add_event(event_pb2.Event(wall_time=1.7e9 + step, step=step, summary=summary))
    writer.close()
    os.rename(folder + ".unfinished", folder)
started = time.perf_counter()
multiplexer = plugin_event_multiplexer.EventMultiplexer(size_guidance={"tensors": 0, "scalars": 0})
multiplexer.AddRunsFromDirectory(folder)
multiplexer.Reload()
loaded = time.perf_counter() - started
source = data_provider.MultiplexerDataProvider(multiplexer, folder)
times = []
for _ in range(3):
    started = time.perf_counter()
    found = source.read_scalars(RequestContext(), experiment_id="", plugin_name="scalars", downsample=1000)
    times.append(time.perf_counter() - started)
steps_found = {datum.step for tags in found.values() for data in tags.values() for datum in data}
print(json.dumps({"loaded": loaded, "read": sorted(times)[1], "spikes": len(spikes & steps_found)}))
"""


def seconds_of_seeds_way(dsn: str, uid: str) -> float:
    """All rows of the workload are loaded and the metric is picked out of each, as the seeds' API does."""
    started = time.perf_counter()
    found = []
    with psycopg.connect(dsn) as connection, connection.cursor(name="rows") as cursor:
        cursor.itersize = 10_000
        cursor.execute(
            "select iteration, performance, created_at from training_performance"
            " where workload_uid = %s and data_source = 'wandb' order by iteration",
            [uid],
        )
        for iteration, performance, created_at in cursor:
            if "m7" in performance:
                found.append((performance["m7"], created_at, iteration))
    return time.perf_counter() - started


class MLflow:
    """A tracking server on a database of the same PostgreSQL, with the run in it."""

    def __init__(self, url: str, run_id: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=300)
        self._run_id = run_id

    def seconds_of_history(self) -> float:
        """metrics/get-history, page after page."""
        started = time.perf_counter()
        asked = {"run_id": self._run_id, "metric_key": "m7", "max_results": "25000"}
        while True:
            answer = self._client.get("/api/2.0/mlflow/metrics/get-history", params=asked).raise_for_status().json()
            if not answer.get("next_page_token"):
                return time.perf_counter() - started
            asked["page_token"] = answer["next_page_token"]

    def seconds_of_interval(self) -> float:
        """The call of its own page: a thousand points."""
        started = time.perf_counter()
        asked = {"run_ids": self._run_id, "metric_key": "m7", "max_results": "1000"}
        path = "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"
        self._client.get(path, params=asked).raise_for_status()
        return time.perf_counter() - started


@contextmanager
def mlflow(dsn: str, steps: int) -> Iterator[MLflow]:
    """Start the server; make a run and load it unless there is one."""
    binaries = peer_environment("mlflow", ["mlflow", "psycopg2-binary", "setuptools<81"])
    parts = dict(part.split("=", 1) for part in dsn.split())
    uri = f"postgresql+psycopg2://{parts['user']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binaries / "mlflow"), "server", "--backend-store-uri", uri, "--workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    environment = {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": "/var/tmp", "MLFLOW_DISABLE_TELEMETRY": "true"}
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url)
        run_id = mlflow_run(dsn)
        if run_id is None:
            asked = {"experiment_id": "0", "start_time": 1}
            made = httpx.post(f"{url}/api/2.0/mlflow/runs/create", json=asked, timeout=60)
            run_id = str(made.raise_for_status().json()["run"]["info"]["run_id"])
            load_mlflow(dsn, run_id, steps)
        yield MLflow(url, run_id)
    finally:
        server.terminate()
        server.wait()


def _wait(url: str, seconds: float = 180) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    raise RuntimeError("the MLflow server did not start")


def tensorboard(folder: Path, steps: int) -> dict[str, float]:
    """TensorBoard's data provider, everything kept: seconds to load the run, then to read 1,000 points."""
    binaries = peer_environment("tensorboard", ["tensorboard==2.21.0", "setuptools<81"])
    command = [str(binaries / "python"), "-c", _TENSORBOARD, str(folder), str(steps), json.dumps(planted(steps))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, env=dict(os.environ))
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
