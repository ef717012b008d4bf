"""Cost of the diagnosis on a training node, and the time until a hang is noticed; beside DLRover's ways.

The job is real: torch processes that reduce over gloo. DLRover's ways: stacks by `py-spy dump --native` process after
process (which stops each of them), a verdict from XPU timer's flag, which its rule cannot give before 600 seconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from lens_plugins.collectors.diagnosis import StackCollector
from lens_plugins.collectors.diagnosis.processes import executable

from .harness import Daemon, Figure, options, peer_environment, report, spread_of, temporary_folder

JOB = Path(__file__).with_name("diagnosis_job.py")
TORCH = ("torch==2.13.0", "numpy")
DLROVER_SECONDS = 600.0
CONFIG = """
collectors:
  stacks: {}
sinks:
  store: {type: postgresql}
pipelines:
  all: {from: [stacks], to: [store]}
"""
# The agent in a process of its own, as in a launcher: what it and its children use after its start.
AGENT = """
import sys, time, resource
from lens_plugins.collectors.diagnosis import DiagnosisAgent
class Client:
    def report_diagnosis_agent_metrics(self, data): pass
def used():
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in found)
agent = DiagnosisAgent(training_log_file=sys.argv[1])
[stacks] = [collector for collector in agent.collectors if collector.what == "stack"]
stacks._pids = [int(pid) for pid in sys.argv[3].split(",")]
agent.set_client(Client())
before, began = used(), time.monotonic()
agent.start()
time.sleep(float(sys.argv[2]))
agent.stop()
print((used() - before) / (time.monotonic() - began) * 100)
"""


class Job:
    """Its processes, and the steps that rank 0 has made."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
        self.processes = processes
        self.log = log

    @property
    def pids(self) -> list[int]:
        """The processes, by rank."""
        return [process.pid for process in self.processes]

    def steps(self) -> list[float]:
        """Return the time of each step."""
        return [float(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def wait_for_steps(self, count: int) -> None:
        """Until so many steps are made."""
        ends = time.monotonic() + 120
        while len(self.steps()) < count:
            assert time.monotonic() < ends, "the job does not run"
            time.sleep(0.1)


@contextmanager
def job(folder: Path, name: str, world: int, hang_at: int = -1) -> Iterator[Job]:
    """Start the ranks; they are killed at the end."""
    python = str(peer_environment("diagnosis-torch", TORCH) / "python")
    log = folder / f"{name}.log"
    processes = []
    for rank in range(world):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(world), "WORKLOAD_UID": name, "OMP_NUM_THREADS": "1"}
        command = [python, str(JOB), str(rank), str(world), str(log), str(hang_at)]
        environment = {**os.environ, **variables}
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
    try:
        yield Job(processes, log)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def stacks_of_eight(folder: Path, rounds: int) -> Figure:
    """Seconds for the stacks of 8 processes; the peer stops each of them."""
    ours: list[float] = []
    theirs: list[float] = []
    with job(folder, "eight", 8) as running:
        running.wait_for_steps(5)
        for _ in range(rounds):
            started = time.perf_counter()
            found = StackCollector(pids=running.pids).collect_data()
            ours.append(time.perf_counter() - started)
            assert len(found) == 8, found
            assert all(stack.frames for stack in found.values()), found
            started = time.perf_counter()
            for pid in running.pids:
                command = [str(executable()), "dump", "--native", "--pid", str(pid)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            theirs.append(time.perf_counter() - started)
    lens, peer = statistics.median(ours), statistics.median(theirs)
    return Figure(
        figure="stacks of 8 processes",
        unit="s",
        lens=lens,
        peer=peer,
        peer_name="py-spy --native, one after another",
        ratio=peer / lens,
        goal="under 5 s",
        holds=lens < 5,
        spread=spread_of(ours),
    )


def cost_of_the_agent(folder: Path, seconds: float) -> Figure:
    """Share of a core that all collectors use at their default intervals, beside a job of 8 ranks."""
    with job(folder, "cost", 8) as running:
        running.wait_for_steps(5)
        pids = ",".join(map(str, running.pids))
        command = [sys.executable, "-c", AGENT, str(running.log), str(seconds), pids]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    share = float(done.stdout.splitlines()[-1])
    return Figure(
        figure="collectors at default intervals, 8 ranks",
        unit="% of a core",
        lens=share,
        goal="under 1 %",
        holds=share < 1,
        spread=f"over {seconds:g} s",
    )


def time_to_verdict(folder: Path, rounds: int) -> Figure:
    """Seconds from the last step of a job that hangs to the daemon's yes, all at its defaults."""
    found = []
    for number in range(rounds):
        name = f"hang{number}"
        daemon = Daemon(folder / f"lens{number}", CONFIG).start()
        try:
            with job(folder, name, 4, hang_at=200) as running:
                running.wait_for_steps(200)
                found.append(_until_hung(daemon, running, name))
        finally:
            daemon.stop()
    lens = statistics.median(found)
    return Figure(
        figure="from a hang to the verdict, 4 ranks",
        unit="s",
        lens=lens,
        peer=DLROVER_SECONDS,
        peer_name="DLRover 0.6.1, the least that its rule allows",
        ratio=DLROVER_SECONDS / lens,
        goal="under 90 s",
        holds=max(found) < 90,
        spread=spread_of(found),
    )


def _until_hung(daemon: Daemon, running: Job, name: str) -> float:
    while True:
        time.sleep(0.5)
        response = httpx.get(f"{daemon.url}/api/v1/workloads/{name}/diagnosis", timeout=30)
        if response.status_code == 503:
            continue  # the store comes up
        hang = response.raise_for_status().json()["hang"]
        waited = time.time() - running.steps()[-1]
        if hang["verdict"] == "yes":
            assert hang["ranks"] == ["1"], hang
            return waited
        assert waited < 300, hang


def main() -> None:
    """Measure and print. `--quick` leaves the hang out, which takes a minute by itself."""
    chosen = options(__doc__ or "")
    with temporary_folder() as folder:
        figures = [
            stacks_of_eight(folder, 3 if chosen.quick else 9),
            cost_of_the_agent(folder, 20.0 if chosen.quick else 120.0),
        ]
        if not chosen.quick:
            figures.append(time_to_verdict(folder, 3))
        report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
