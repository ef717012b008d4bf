"""A cluster on one daemon with its own PostgreSQL: thousands of ranks start, go on, lose it and come back.

No peer: what is asked is how many ranks one daemon carries. The ranks (`fleet_load.py`) are a process of their own on
the same machine, so that CPU seconds are reported rather than walls: of the daemon, of its database, of the load. While
the ranks run, somebody looks at the list, a chart, the status and `/metrics`, every two seconds each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import psutil

from .fleet_load import RANKS_PER_POD, Job
from .harness import Daemon, Figure, option_parser, percentile, report, temporary_folder

DRAIN_SECONDS = 60.0
LOOKS = ("overview?limit=50", "glance", "chart", "status", "metrics")


class Used:
    """CPU seconds of processes by what they are."""

    def __init__(self, daemon: Daemon, load: psutil.Process) -> None:
        self._daemon, self._load = daemon, load
        self._database: dict[int, float] = {}  # by process: what those that have ended took stays
        self._last = self._now()

    def _now(self) -> dict[str, float]:
        with contextlib.suppress(psutil.Error):  # while it is being restarted there are none
            for child in psutil.Process(self._daemon.pid).children(recursive=True):
                self._database[child.pid] = max(_cpu(child), self._database.get(child.pid, 0.0))
        database = sum(self._database.values())
        return {"daemon": self._daemon_cpu(), "database": database, "load": _cpu(self._load)}

    def _daemon_cpu(self) -> float:
        with contextlib.suppress(psutil.Error):
            return self._daemon.cpu_seconds()
        return 0.0

    def take(self) -> dict[str, float]:
        """Since the last call."""
        now = self._now()
        found = {name: round(now[name] - self._last[name], 2) for name in now}
        self._last = now
        return found


def _cpu(process: psutil.Process) -> float:
    try:
        used = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(used.user + used.system)


class Onlooker:
    """Asks for what a person has on the screen, and notes how long it took."""

    def __init__(self, url: str, job: Job) -> None:
        self._url = url
        pod = f"00000000-{job.seed:04}-0000-0000-{0:012}"
        self._workload = pod if job.by_pod else f"fleet-{job.seed}-0"
        self.took: dict[str, list[float]] = {look: [] for look in LOOKS}
        self.failed: dict[str, int] = {}
        self.bytes: dict[str, int] = {}

    def _path(self, look: str) -> str:
        if look == "chart":
            metric = "train/metric_0"
            return f"/api/v1/workloads/{self._workload}/metrics/data?metrics={metric}&max_points=1000&data_source=wandb"
        if look == "glance":
            return f"/api/v1/glance?uid={self._workload}"
        return "/metrics" if look == "metrics" else f"/api/v1/{look}"

    async def watch(self) -> None:
        """Until cancelled."""
        async with httpx.AsyncClient(timeout=60, base_url=self._url) as client:
            await asyncio.gather(*(self._repeat(client, look) for look in LOOKS))

    async def _repeat(self, client: httpx.AsyncClient, look: str) -> None:
        while True:
            begun = time.perf_counter()
            try:
                answer = await client.get(self._path(look))
                self.bytes[look] = len(answer.content)
                if answer.status_code != 200:
                    self.failed[f"{look} {answer.status_code}"] = self.failed.get(f"{look} {answer.status_code}", 0) + 1
            except httpx.HTTPError as error:
                key = f"{look} {type(error).__name__}"
                self.failed[key] = self.failed.get(key, 0) + 1
            self.took[look].append(time.perf_counter() - begun)
            await asyncio.sleep(2.0)

    def figures(self) -> dict[str, str]:
        """Median and worst of each, in ms, and the size of the last answer."""
        return {
            look: f"{percentile(took, 0.5) * 1e3:.0f}/{max(took) * 1e3:.0f} ms {self.bytes.get(look, 0)} B"
            for look, took in self.took.items()
            if took
        } | {name: str(count) for name, count in self.failed.items()}


async def _restart(daemon: Daemon, at: float, away: float) -> None:
    await asyncio.sleep(at)
    took = await asyncio.to_thread(daemon.stop)
    await asyncio.sleep(away)
    await asyncio.to_thread(daemon.start)
    say(f"restarted: stopped in {took:.1f} s, away {away:.0f} s, ready after {daemon.ready_seconds:.1f} s")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of about five seconds. CPU in seconds, times of answers in seconds."""

    requests: int
    rows: int
    p50: float
    p99: float
    cpu: dict[str, float]
    rss_mib: int


async def let_run(daemon: Daemon, job: Job, onlooker: Onlooker, restart_at: float, away: float) -> list[Sample]:
    """Let the ranks run once, and say what each five seconds took."""
    target = urlsplit(daemon.url)
    job = msgspec.structs.replace(job, host=target.hostname or "", port=target.port or 0)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fleet_load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    used = Used(daemon, psutil.Process(process.pid))
    process.stdin.write(msgspec.json.encode(job))
    process.stdin.close()
    helpers = [asyncio.create_task(onlooker.watch())]
    if restart_at:
        helpers.append(asyncio.create_task(_restart(daemon, restart_at, away)))
    say(f"{job.ranks} ranks in {job.jobs} jobs, a row every {job.step_seconds} s, for {job.seconds} s")
    samples: list[Sample] = []
    seconds: list[dict[str, Any]] = []
    acknowledged = 0
    while line := await asyncio.to_thread(process.stdout.readline):
        seconds.append(json.loads(line))
        acknowledged += seconds[-1]["rows"]
        if len(seconds) == 5:
            samples.append(_sample(seconds, daemon, used))
            seconds = []
    for helper in helpers:
        helper.cancel()
    process.wait()
    say(f"{acknowledged} rows were acknowledged")
    return samples


def _sample(seconds: list[dict[str, Any]], daemon: Daemon, used: Used) -> Sample:
    answers = Counter[str]()
    for second in seconds:
        answers.update(second["answers"])
    rss, files = _held(daemon)
    sample = Sample(
        requests=answers["200"],
        rows=sum(second["rows"] for second in seconds),
        p50=sorted(second["p50"] for second in seconds)[len(seconds) // 2],
        p99=max(second["p99"] for second in seconds),
        cpu=used.take(),
        rss_mib=rss,
    )
    last, connects = seconds[-1], sum(second["connects"] for second in seconds)
    say(
        f"{last['at']:6.1f} s  open {last['open']:6}  answers {dict(answers)}  rows {sample.rows:6}  new {connects:5}"
        f"  {sample.p50 * 1e3:5.0f} ms, p99 {sample.p99 * 1e3:5.0f}  cpu {sample.cpu}  {rss} MiB, {files} files"
    )
    return sample


def _held(daemon: Daemon) -> tuple[int, int]:
    """Resident MiB and open files; nothing while it is away."""
    try:
        process = psutil.Process(daemon.pid)
        return process.memory_info().rss >> 20, process.num_fds()
    except psutil.Error:
        return 0, 0


async def measure(job: Job, folder: Path, options: argparse.Namespace) -> list[Figure]:
    """Start a daemon, let the ranks run, say what that took."""
    daemon = Daemon(folder / "data", port=free_port()).start()
    before = daemon.rss_mib()
    if job.by_pod:
        await _tell_pods(daemon.url, job)
    onlooker = Onlooker(daemon.url, job)
    samples = await let_run(daemon, job, onlooker, options.restart_at, options.away)
    ended = time.perf_counter()
    while daemon.pending() and time.perf_counter() - ended < DRAIN_SECONDS:
        await asyncio.sleep(0.1)
    say(f"drained in {time.perf_counter() - ended:.1f} s, {daemon.pending()} records pending")
    say(f"looks: {onlooker.figures()}")
    daemon.stop()
    return figures(job, samples, before, onlooker)


def figures(job: Job, samples: list[Sample], rss_before: float, onlooker: Onlooker) -> list[Figure]:
    """The second half of the time is the steady state, once all ranks are there."""
    steady = samples[len(samples) // 2 :]
    requests = max(1, sum(sample.requests for sample in steady))
    ranks = job.ranks * (RANKS_PER_POD if job.relayed else 1)

    def cpu(name: str) -> float:
        return sum(sample.cpu[name] for sample in steady)

    def one(figure: str, unit: str, value: float) -> Figure:
        return Figure(figure=f"{ranks} ranks: {figure}", unit=unit, lens=value)

    rows = sum(sample.rows for sample in steady) * (ranks // job.ranks)
    peak = max(sample.rss_mib for sample in samples)
    return [
        one("requests a second", "1/s", requests / (5.0 * len(steady))),
        one("rows a second", "1/s", rows / (5.0 * len(steady))),
        one("CPU of the daemon", "cores", cpu("daemon") / (5.0 * len(steady))),
        one("CPU of its database", "cores", cpu("database") / (5.0 * len(steady))),
        one("CPU of the daemon for each request", "ms", 1000.0 * cpu("daemon") / requests),
        one("answer, median", "ms", 1000.0 * percentile([sample.p50 for sample in steady], 0.5)),
        one("answer, worst p99 of a second", "ms", 1000.0 * max(sample.p99 for sample in samples)),
        one("memory of the daemon", "MiB", peak),
        one("memory for each 1,000 connections", "MiB", 1000.0 * (peak - rss_before) / job.ranks),
        one("list of the page, median", "ms", 1000.0 * percentile(onlooker.took[LOOKS[0]], 0.5)),
        one("chart of a job, median", "ms", 1000.0 * percentile(onlooker.took["chart"], 0.5)),
    ]


def say(text: str) -> None:
    """Print the progress, beside the figures."""
    print(text, file=sys.stderr, flush=True)


async def _tell_pods(url: str, job: Job) -> None:
    per_job = max(1, job.ranks // job.jobs)
    pods = [
        {
            "record": "pod",
            "uid": f"00000000-{job.seed:04}-0000-0000-{pod:012}",
            "name": f"fleet-{job.seed}-{pod}",
            "namespace": "training",
            "node": f"node-{pod}",
            "workloads": [
                {
                    "uid": f"fleet-{job.seed}-{pod * RANKS_PER_POD // per_job}",
                    "name": f"fleet-{job.seed}-{pod * RANKS_PER_POD // per_job}",
                }
            ],
        }
        for pod in range(job.ranks // RANKS_PER_POD)
    ]
    body = msgspec.json.encode({"version": 1, "producer": "fleet", "origin": {}, "records": pods})
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/api/v1/records", content=body, timeout=60)
        print("pods:", answer.status_code, answer.text[:200])


def main() -> None:
    """Options on the command line."""
    parser = option_parser("how many ranks one daemon carries")
    parser.add_argument("--ranks", type=int, help="default: 10,000, quick 1,000")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--start", type=float, default=30.0, help="within so many seconds all ranks start")
    parser.add_argument("--step", type=float, default=5.0, help="seconds from row to row")
    parser.add_argument("--flush", type=float, default=1.0, help="PRIMUS_LENS_FLUSH_INTERVAL_SECONDS")
    parser.add_argument("--seconds", type=float, help="default: 60, quick 25")
    parser.add_argument("--by-pod", action="store_true", help="ranks know their pod alone")
    parser.add_argument(
        "--relayed", action="store_true", help="each rank stands for a node's daemon with eight of them"
    )
    parser.add_argument("--restart-at", type=float, default=0.0, help="end the daemon after so many seconds")
    parser.add_argument("--away", type=float, default=0.0, help="and start it again after so many more")
    parser.add_argument("--keep", type=Path, help="a folder to leave the data in")
    options = parser.parse_args()
    job = Job(
        host="",
        port=0,
        ranks=options.ranks or (1000 if options.quick else 10_000),
        jobs=options.jobs,
        start_seconds=5.0 if options.quick else options.start,
        seconds=options.seconds or (25.0 if options.quick else 60.0),
        step_seconds=options.step,
        flush_seconds=options.flush,
        by_pod=options.by_pod,
        relayed=options.relayed,
    )
    with contextlib.nullcontext(options.keep) if options.keep else temporary_folder() as folder:
        folder.mkdir(parents=True, exist_ok=True)
        report(asyncio.run(measure(job, folder, options)), as_json=options.json)


if __name__ == "__main__":
    main()
