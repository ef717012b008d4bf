"""Samples per second through Lens beside vmagent: the same client, the same null sink, one pinned core each.

Lens attaches four labels (pod and workload) to every series, vmagent three fixed ones. Bodies hold 2,000 series of ten
labels with one sample each. `steady`: the same label sets with every request; `new`: none was seen before. Beside them
the recorded requests of real senders, of ten hosts and of new ones.

Fixed labels are less work than labels that depend on the series: Lens looks for the pod. What vmagent takes for three
labels made of the pod's name by relabelling is a figure of its own, without a goal.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import psutil

from benchmarks.harness import Figure, options, report, spread_of, temporary_folder
from benchmarks.remote_write_load import Job, Result

SERVER_CORE, LOAD_CORE = "0", "1"
PODS = 100
LIVE_SERIES = 100_000
VMAGENT = "vmagent, 3 extra labels"
BY_POD = "new vmagent by pod"
# Requests that Prometheus and vmagent have sent, and how many series each has.
RECORDED = {"prom242_node_500": 500, "vmagent179_node_513": 513}
BODIES = Path(__file__).parent.parent / "tests" / "data" / "remote_write_bodies"
PEERS = {"steady": "Lens without it", BY_POD: "vmagent, 3 labels by pod"}
# Three labels that are made of the pod's name.
RELABEL = """
- {source_labels: [pod], regex: "job-worker-(.+)", target_label: pod_uid, replacement: "uid-of-pod-$1"}
- {source_labels: [pod], regex: "job-worker-(.+)", target_label: workload_name, replacement: "job-$1"}
- {source_labels: [pod], regex: "job-worker-(.+)", target_label: workload_uid, replacement: "uid-of-job-$1"}
"""


class Server(NamedTuple):
    """A measured server: its address for remote write, and its process."""

    port: int
    path: str
    process: psutil.Process


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pinned(core: str, command: Sequence[str]) -> list[str]:
    """The command on one core, where there is more than one and taskset."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", core, *command] if taskset and (os.cpu_count() or 1) > 1 else [*command]


@contextmanager
def lens(folder: Path, sink_port: int, *, spool: str = "memory", copies: str = "none") -> Iterator[Server]:
    """A daemon with nothing but the source and the sink."""
    config = folder / "lens.yaml"
    config.write_text(
        f"sources: {{remote_write: {{copies: {copies}}}}}\n"
        f'sinks: {{out: {{type: prometheus, url: "http://127.0.0.1:{sink_port}/write"}}}}\n'
        f"spool: {{kind: {spool}}}\n"
    )
    command = [sys.executable, "-m", "lens_core.cli", "up", "--announce-json", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(folder / "data"), "--config", str(config)]
    environment = {**os.environ, "LOG_LEVEL": "error"}
    process = subprocess.Popen(pinned(SERVER_CORE, command), stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["listening"]
        pods = [
            {
                "uid": f"uid-of-pod-{number}",
                "name": f"job-worker-{number}",
                "namespace": "training",
                "workloads": [{"uid": f"uid-of-job-{number // 8}", "name": f"job-{number // 8}"}],
            }
            for number in range(PODS)
        ]
        httpx.put(f"{url}/api/v1/directory", json={"pods": pods}).raise_for_status()
        yield Server(int(url.rpartition(":")[2]), "/prometheus", psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder / "data", ignore_errors=True)


@contextmanager
def vmagent(folder: Path, sink_port: int, *, by_pod: bool = False) -> Iterator[Server]:
    """Debian's vmagent with three labels for every series, fixed ones or made of the pod's name."""
    port = free_port()
    given = {"pod_uid": "uid-of-pod-7", "workload_name": "job-0", "workload_uid": "uid-of-job-0"}
    labels = [f"-remoteWrite.label={name}={value}" for name, value in given.items()]
    if by_pod:
        rules = folder / "relabel.yaml"
        rules.write_text(RELABEL)
        labels = [f"-remoteWrite.relabelConfig={rules}"]
    command = [
        "vmagent",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-remoteWrite.url=http://127.0.0.1:{sink_port}/write",
        f"-remoteWrite.tmpDataPath={folder / 'vmagent'}",
        *labels,
        "-remoteWrite.flushInterval=200ms",
        "-loggerLevel=ERROR",
    ]
    process = subprocess.Popen(pinned(SERVER_CORE, command), env={**os.environ, "GOMAXPROCS": "1"})
    try:
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/health").is_success)
        yield Server(port, "/api/v1/write", psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder / "vmagent", ignore_errors=True)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a server that starts."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        try:
            if condition():
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError("the server did not start")


def load(server: Server, job: Job) -> Result:
    """Run the client and the sink in a process on the other core."""
    command = [sys.executable, "-m", "benchmarks.remote_write_load", "127.0.0.1", str(server.port), server.path]
    done = subprocess.run(
        pinned(LOAD_CORE, command), input=msgspec.json.encode(job), stdout=subprocess.PIPE, check=True
    )
    return msgspec.json.decode(done.stdout, type=Result)


def rss_mib(server: Server) -> float:
    """Resident memory of the server's process."""
    return float(server.process.memory_info().rss) / 2**20


class Rate(NamedTuple):
    """Samples per second, and per second of the server's processor time (which others on the machine do not change)."""

    wall: float
    cpu: float


class Candidate(NamedTuple):
    """One measurement: a server that writes to a port, with label sets that are new in every round or not."""

    make: Callable[[int], AbstractContextManager[Server]]
    fresh: bool
    rounds: int
    recorded: str = ""

    def rate(self) -> Rate:
        """Measure it once."""
        job = Job(sink_port=free_port(), rounds=self.rounds, fresh=self.fresh, warm_rounds=3)
        if self.recorded:
            path = str(BODIES / f"{self.recorded}.snappy")
            job = msgspec.structs.replace(job, recorded=path, series=RECORDED[self.recorded])
        with self.make(job.sink_port) as server:
            return measure(server, job)


def candidates(folder: Path, rounds: int) -> dict[str, Candidate]:
    """All of them, in the order in which they take turns."""
    recorded = {}
    for name in RECORDED:
        for fresh, kind in ((False, name), (True, f"{name} new")):
            recorded[kind] = Candidate(lambda port: lens(folder, port), fresh, rounds, name)
            recorded[f"{kind} vmagent"] = Candidate(lambda port: vmagent(folder, port), fresh, rounds, name)
    return recorded | {
        "steady": Candidate(lambda port: lens(folder, port), False, rounds),
        "steady vmagent": Candidate(lambda port: vmagent(folder, port), False, rounds),
        "disk": Candidate(lambda port: lens(folder, port, spool="disk"), False, rounds),
        "copies": Candidate(lambda port: lens(folder, port, copies="only"), False, rounds // 2),
        "new": Candidate(lambda port: lens(folder, port), True, rounds),
        "new vmagent": Candidate(lambda port: vmagent(folder, port), True, rounds),
        BY_POD: Candidate(lambda port: vmagent(folder, port, by_pod=True), True, rounds),
    }


def rates(folder: Path, *, quick: bool) -> dict[str, list[Rate]]:
    """All rates, the candidates by turns."""
    runs, rounds = (2, 20) if quick else (5, 100)
    found: dict[str, list[Rate]] = {}
    for _ in range(runs):
        for name, candidate in candidates(folder, rounds).items():
            found.setdefault(name, []).append(candidate.rate())
    return found


def measure(server: Server, job: Job) -> Rate:
    """One run: the warm-up is in a process of its own, so that it is in no figure."""
    load(server, msgspec.structs.replace(job, rounds=job.warm_rounds, warm_rounds=0, generation=1_000_000))
    before = processor_seconds(server)
    result = load(server, msgspec.structs.replace(job, warm_rounds=0))
    return Rate(result.samples_per_second, result.arrived / (processor_seconds(server) - before))


def processor_seconds(server: Server) -> float:
    """User and system time of the server so far."""
    times = server.process.cpu_times()
    return float(times.user + times.system)


def memory(folder: Path, *, quick: bool) -> list[Figure]:
    """Resident memory at 100,000 live series, then after many series that live for one round."""
    with lens(folder, port := free_port(), spool="disk") as server:
        groups = LIVE_SERIES // 2000
        load(server, Job(sink_port=port, groups=groups, rounds=2 if quick else 4, warm_rounds=1))
        live = rss_mib(server)
        peaks: list[float] = []
        made = 0
        generations = 4 if quick else 20
        for _ in range(2 if quick else 5):
            churn = Job(sink_port=port, groups=5, rounds=generations, warm_rounds=0, fresh=True, generation=made)
            load(server, churn)
            made += generations
            peaks.append(rss_mib(server))
    series = 5 * 2000 * generations * len(peaks)
    return [
        goal("RSS at 100,000 live series", "MiB", live, "≤ 200", live <= 200),
        goal(f"RSS after {series:,} more series, each seen once", "MiB", max(peaks), "< 250", max(peaks) < 250),
    ]


def goal(name: str, unit: str, value: float, text: str, holds: bool) -> Figure:
    """A figure with a goal and without a peer."""
    return Figure(figure=name, unit=unit, lens=value, goal=text, holds=holds)


def figures_of(found: dict[str, list[Rate]]) -> list[Figure]:
    """The rates as figures."""

    def at_least(factor: float) -> Callable[[float, float], bool]:
        return lambda lens, peer: lens >= factor * peer

    return [
        compared(found, "steady", "enrich and forward, label sets seen before", "≥ 2.5 × vmagent", at_least(2.5)),
        compared(found, "new", "enrich and forward, new label sets", "≥ 2 × vmagent", at_least(2)),
        compared(found, "new", "the same, beside labels by pod", "", None, peer=BY_POD),
        *(
            compared(found, f"{name}{kind}", f"recorded, {name}{kind}", "≥ 1.5 × vmagent", at_least(1.5))
            for name in RECORDED
            for kind in ("", " new")
        ),
        compared(found, "copies", "the seed's way: a copy per workload", "", None, peer="steady vmagent"),
        compared(
            found,
            "disk",
            "the same through the disk spool",
            "≥ 60 %",
            lambda lens, peer: lens >= 0.6 * peer,
            peer="steady",
        ),
    ]


def compared(
    found: dict[str, list[Rate]],
    name: str,
    text: str,
    wanted: str,
    holds: Callable[[float, float], bool] | None,
    peer: str = "",
) -> Figure:
    """One rate beside a peer's; the figure's name says what both do with a second of processor time."""
    peer = peer or f"{name} vmagent"
    ours, theirs = (statistics.median(rate.wall for rate in found[key]) for key in (name, peer))
    our_cpu, their_cpu = (statistics.median(rate.cpu for rate in found[key]) for key in (name, peer))
    processor = f"per CPU second {our_cpu:,.0f}, the peer {their_cpu:,.0f}"
    return Figure(
        figure=text,
        unit="samples/s",
        lens=ours,
        peer=theirs,
        peer_name=PEERS.get(peer, VMAGENT),
        ratio=ours / theirs,
        goal=wanted,
        holds=holds(ours, theirs) if holds is not None else None,
        spread=f"{spread_of([rate.wall for rate in found[name]])}; {processor}",
    )


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__ or "")
    if shutil.which("vmagent") is None:
        sys.exit("vmagent is not installed: apt-get install victoria-metrics")
    with temporary_folder() as folder:
        figures = figures_of(rates(folder, quick=chosen.quick))
        figures += memory(folder, quick=chosen.quick)
        report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
