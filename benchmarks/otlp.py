"""Data points of OTLP metrics per second through Lens beside rotel, a collector in Rust: same client, one core each.

Bodies are those of Python's OpenTelemetry SDK, 1,000 points each: five gauges with 200 sets of four attributes, a
thousand gauges with one, and five counters with 200 sets, whose points have an exemplar each. Lens looks for the pod of
every series, makes remote write of it, has it on the disk before it answers, and sends it on to a null sink; rotel
answers and throws away what it got.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import psutil

from benchmarks.harness import Figure, options, peer_environment, report, spread_of, temporary_folder
from benchmarks.otlp_load import Job, Result
from benchmarks.remote_write import (
    LOAD_CORE,
    SERVER_CORE,
    Rate,
    Server,
    free_port,
    pinned,
    processor_seconds,
    wait_until,
)

GOAL = 150_000
POINTS = 1000


class Shape(NamedTuple):
    """The metrics of one request and the attribute sets of each; gauges, or counters whose points have exemplars."""

    metrics: int
    sets: int
    kind: str = "gauge"


SHAPES = {
    "5 metrics of 200 points": Shape(5, 200),
    "1,000 metrics of one point": Shape(1000, 1),
    "5 counters of 200 points with an exemplar each": Shape(5, 200, "counter"),
}
PACKAGES = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
# Run by an environment of its own, so that the SDK need not be in that of Lens.
MAKE_BODIES = """
import sys, time
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry import context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
folder, kind, metrics, sets, bodies = *sys.argv[1:3], *map(int, sys.argv[3:])
reader = InMemoryMetricReader()
resource = Resource.create({"service.name": "train", "k8s.pod.name": "job-worker-7", "k8s.namespace.name": "training"})
meter = MeterProvider([reader], resource=resource).get_meter("benchmark", "1.0")
create = {"gauge": meter.create_gauge, "counter": meter.create_counter}[kind]
instruments = [create(f"gpu.metric.{number}", unit="By") for number in range(metrics)]
span = trace.NonRecordingSpan(trace.SpanContext(2**127 + 7, 2**63 + 7, False, trace.TraceFlags(1)))
if kind == "counter":  # what is recorded inside a sampled span gets exemplars
    context.attach(trace.set_span_in_context(span))
for body in range(bodies):
    for instrument in instruments:
        record = instrument.set if kind == "gauge" else instrument.add
        for one in range(sets):
            record(body + one / 7, {"gpu": str(one % 8), "node": f"n{one // 8}", "model": "x-64gb", "kind": "hbm"})
    with open(f"{folder}/{body:04}", "wb") as file:
        file.write(encode_metrics(reader.get_metrics_data()).SerializeToString())
    time.sleep(0.002)
"""


def make_bodies(folder: Path, shape: Shape, bodies: int) -> Path:
    """A folder of requests as the SDK makes them, each with its own time."""
    made = folder / f"{shape.kind}-{shape.metrics}x{shape.sets}"
    made.mkdir()
    python = peer_environment("otlp-sdk", PACKAGES) / "python"
    subprocess.run(
        [str(python), "-c", MAKE_BODIES, str(made), shape.kind, str(shape.metrics), str(shape.sets), str(bodies)],
        check=True,
    )
    return made


@contextmanager
def lens(folder: Path, sink_port: int) -> Iterator[Server]:
    """A daemon with nothing but the source and the sink, and the disk between."""
    config = folder / "lens.yaml"
    config.write_text(
        "sources: {otlp: {target_info: false}}\n"
        f'sinks: {{out: {{type: prometheus, url: "http://127.0.0.1:{sink_port}/write"}}}}\n'
    )
    command = [sys.executable, "-m", "lens_core.cli", "up", "--announce-json", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(folder / "data"), "--config", str(config)]
    environment = {**os.environ, "LOG_LEVEL": "error"}
    process = subprocess.Popen(pinned(SERVER_CORE, command), stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["listening"]
        pod = {
            "uid": "uid-7",
            "name": "job-worker-7",
            "namespace": "training",
            "workloads": [{"uid": "j", "name": "job"}],
        }
        httpx.put(f"{url}/api/v1/directory", json={"pods": [pod]}).raise_for_status()
        yield Server(int(url.rpartition(":")[2]), "/v1/metrics", psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder / "data", ignore_errors=True)


@contextmanager
def rotel(folder: Path, sink_port: int) -> Iterator[Server]:
    """The collector from its makers' wheel, with an exporter that throws away."""
    python = peer_environment("rotel", ["rotel"]) / "python"
    where = [str(python), "-c", "import rotel; print(rotel.__path__[0])"]
    program = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()) / "rotel-agent"
    port = free_port()
    command = [str(program), "start", "--exporter", "blackhole", "--otlp-http-endpoint", f"127.0.0.1:{port}"]
    command += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}", "--pid-file", str(folder / "rotel.pid")]
    process = subprocess.Popen(
        pinned(SERVER_CORE, command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )
    try:
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/").status_code > 0)
        yield Server(port, "/v1/metrics", psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(20)


def load(server: Server, job: Job) -> Result:
    """Run the client and the sink in a process on the other core."""
    command = [sys.executable, "-m", "benchmarks.otlp_load", str(server.port)]
    done = subprocess.run(
        pinned(LOAD_CORE, command), input=msgspec.json.encode(job), stdout=subprocess.PIPE, check=True
    )
    return msgspec.json.decode(done.stdout, type=Result)


def measure(make: Callable[[Path, int], AbstractContextManager[Server]], folder: Path, job: Job) -> Rate:
    """One run; the warm-up is in no figure."""
    with make(folder, job.sink_port) as server:
        load(server, msgspec.structs.replace(job, rounds=1))
        before = processor_seconds(server)
        result = load(server, job)
        return Rate(result.points_per_second, result.sent / (processor_seconds(server) - before))


def figure_of(name: str, ours: list[Rate], theirs: list[Rate]) -> Figure:
    """Lens beside rotel, by the points acknowledged in a second."""
    our_wall, their_wall = (statistics.median(rate.wall for rate in rates) for rates in (ours, theirs))
    our_cpu, their_cpu = (statistics.median(rate.cpu for rate in rates) for rates in (ours, theirs))
    return Figure(
        figure=f"OTLP metrics, {name} a request",
        unit="points/s",
        lens=our_wall,
        peer=their_wall,
        peer_name="rotel, to nowhere",
        ratio=our_wall / their_wall,
        goal=f"≥ {GOAL:,} points/s",
        holds=our_wall >= GOAL,
        spread=f"{spread_of([rate.wall for rate in ours])}; per CPU second {our_cpu:,.0f}, the peer {their_cpu:,.0f}",
    )


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__ or "")
    runs, bodies, rounds = (1, 20, 5) if chosen.quick else (5, 50, 10)
    figures = []
    with temporary_folder() as folder:
        for name, shape in SHAPES.items():
            made = str(make_bodies(folder, shape, bodies))
            rates: dict[bool, list[Rate]] = {True: [], False: []}
            for _ in range(runs):
                for is_lens, make in ((True, lens), (False, rotel)):
                    job = Job(folder=made, points=POINTS, sink_port=free_port(), arrives=is_lens, rounds=rounds)
                    rates[is_lens].append(measure(make, folder, job))
            figures.append(figure_of(name, rates[True], rates[False]))
    report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
