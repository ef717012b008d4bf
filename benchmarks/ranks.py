"""One job of very many ranks: a change of a pod, a tick of the detectors, a chart of all ranks, news for a live view.

Directory and detectors are measured in this process, at a hundredth of the size and at the full size: what costs the
change, and not what there is, costs the same at both. Chart and news are asked of a daemon with its own PostgreSQL, to
which every rank has sent a few rows.

    python -m benchmarks.ranks [--quick] [--json]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from benchmarks.harness import Daemon, Figure, options, report, spread_of, temporary_folder
from lens_core import Device, LogLine, Origin, Pod
from lens_core.base.self_metrics import SelfMetrics
from lens_core.config.loading import load_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.directory.directory import Directory
from lens_core.plugin_host.host import PluginHost

RANKS, QUICK_RANKS = 100_000, 2_000
SHARE = 100
TIMES = 200
STEPS = 3
PER_BODY = 2_000
JOB = "ranks-job"
CHART_GOAL_MS = 500.0


def cpu_microseconds(work: Callable[[], Any], times: int) -> list[float]:
    """The CPU time of each of several calls, in microseconds."""
    taken = []
    for _ in range(times):
        started = time.process_time_ns()
        work()
        taken.append((time.process_time_ns() - started) / 1000)
    return taken


def pods(count: int) -> list[Pod]:
    """A pod for each rank, eight of them on a node."""
    return [
        Pod(
            uid=f"uid-{rank}",
            name=f"worker-{rank}",
            namespace="training",
            node=f"node-{rank // 8}",
            phase="Running",
            devices=[Device(kind="gpu_id", id=str(rank % 8))],
        )
        for rank in range(count)
    ]


def directory_times(count: int) -> dict[str, list[float]]:
    """Microseconds of a pod that moved, and of a record of one that is known as it is."""
    directory = Directory()
    known = pods(count)
    directory.record_pods(known)
    moves = iter(range(10**9))

    def move() -> None:
        pod = known[0]
        directory.record_pods([msgspec.structs.replace(pod, node=f"elsewhere-{next(moves)}")])

    return {
        "a pod that moved": cpu_microseconds(move, TIMES),
        "a pod record that says nothing new": cpu_microseconds(lambda: directory.record_pods(known[1:2]), TIMES),
    }


def tick_times(count: int) -> dict[str, list[float]]:
    """Microseconds of a tick while so many jobs go on, none of them due."""
    detectors = make_detectors(load_config(None, PluginHost.load(), {}).detectors)
    now = 1_000_000.0
    processor = DetectorProcessor(detectors, SelfMetrics(), clock=lambda: now)
    for step in range(1, 1 + STEPS):
        now += 10.0
        lines = [
            LogLine(origin=Origin(workload_uid=f"job-{number}"), text=f"step: {step} loss: 2.5", event_time=now)
            for number in range(count)
        ]
        processor.process(lines)
    return {"a tick with nothing due": cpu_microseconds(lambda: processor.process([]), TIMES)}


def growth_figures(ranks: int) -> list[Figure]:
    """Each of them at a hundredth of the size and at the full size."""
    figures = []
    for measure in (directory_times, tick_times):
        few, many = measure(max(10, ranks // SHARE)), measure(ranks)
        for name, values in many.items():
            first = statistics.median(few[name])
            figures.append(
                Figure(
                    figure=f"{name}, {ranks:,} ranks",
                    unit="µs",
                    lens=statistics.median(values),
                    peer=first,
                    peer_name=f"{max(10, ranks // SHARE):,} ranks",
                    ratio=statistics.median(values) / first,
                    spread=spread_of(values),
                )
            )
    return figures


def send_rows(url: str, ranks: int, steps: int) -> None:
    """Let every rank send a row of each of the first steps."""
    with httpx.Client(base_url=url, timeout=120) as client:
        for begin in range(0, ranks, PER_BODY):
            some = range(begin, min(ranks, begin + PER_BODY))
            post(client, [row(rank, step) for rank in some for step in range(steps)])


def row(rank: int, step: int) -> dict[str, Any]:
    """One rank's row of one step."""
    return {
        "record": "step_metrics",
        "origin": {"workload_uid": JOB, "rank": rank},
        "data_source": "wandb",
        "run_id": "run",
        "row_step": step,
        "iteration": step,
        "values": {"loss": 2.0 + rank % 7 + 1.0 / (1 + step)},
        "event_time": 1_790_000_000.0 + step,
    }


def post(client: httpx.Client, rows: Sequence[dict[str, Any]]) -> None:
    """Send rows and wait for the acknowledgement."""
    client.post("/api/v1/records", json={"version": 1, "producer": "benchmark", "records": rows}).raise_for_status()


def wait_until_stored(daemon: Daemon, seconds: float) -> None:
    """Wait until no record waits for the store."""
    ends = time.monotonic() + seconds
    while daemon.pending():
        if time.monotonic() > ends:
            raise SystemExit("the store did not take the rows in time")
        time.sleep(0.2)


def store_figures(folder: Path, ranks: int) -> list[Figure]:
    """A chart of all ranks, and the CPU time of the daemon for one row's news to a live view."""
    daemon = Daemon(folder / "daemon").start()
    try:
        send_rows(daemon.url, ranks, STEPS)
        wait_until_stored(daemon, 1800)
        with httpx.Client(base_url=daemon.url, timeout=120) as client:
            charts = [chart_milliseconds(client) for _ in range(7)]
            news = [news_milliseconds(daemon, client, STEPS + number) for number in range(7)]
    finally:
        daemon.stop()
    return [
        Figure(
            figure=f"a chart of a job of {ranks:,} ranks",
            unit="ms",
            lens=statistics.median(charts),
            goal=f"≤ {CHART_GOAL_MS:g} ms",
            holds=statistics.median(charts) <= CHART_GOAL_MS,
            spread=spread_of(charts),
        ),
        Figure(
            figure=f"CPU of the daemon until a live view of {ranks:,} ranks has one new row",
            unit="ms",
            lens=statistics.median(news),
            spread=spread_of(news),
        ),
    ]


def chart_milliseconds(client: httpx.Client) -> float:
    """The time of one answer, by the clock."""
    started = time.perf_counter()
    answer = client.get(f"/api/v1/workloads/{JOB}/metrics/data?metrics=loss&max_points=1000")
    taken = (time.perf_counter() - started) * 1000
    assert answer.raise_for_status().json()["data"], "the chart is empty"
    return taken


def news_milliseconds(daemon: Daemon, client: httpx.Client, step: int) -> float:
    """CPU time of the daemon from a row of one rank to its point on an open stream."""
    with (
        httpx.Client(base_url=daemon.url, timeout=120) as other,
        other.stream("GET", f"/api/v1/workloads/{JOB}/stream?metrics=loss") as stream,
    ):
        lines = stream.iter_lines()
        while "ready" not in next(lines):
            pass
        before = daemon.cpu_seconds()
        post(client, [row(0, step)])
        while "event: points" not in next(lines):
            pass
        return (daemon.cpu_seconds() - before) * 1000


def main() -> None:
    """Measure and report."""
    chosen = options(__doc__ or "")
    ranks = QUICK_RANKS if chosen.quick else RANKS
    figures = growth_figures(ranks)
    with temporary_folder() as folder:
        figures += store_figures(folder, ranks)
    report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
