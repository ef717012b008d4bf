"""CPU seconds of a million points with 1, 2 and 4 daemons of a cluster, beside one daemon with its SQLite spool.

The same bodies go in turn to all daemons, and a load ends when PostgreSQL has every row. The first load comes as fast
as the daemons take it: the rate. The second one comes at a pace that is the same for all, and CPU is that of the
daemons meanwhile: on a machine that is full, two processes that share the caches of a core take more CPU than one for
the same work, whatever they do. The NATS servers' own CPU is a figure beside it. The work must not grow with the
daemons: the goal is that 1, 2 and 4 of them differ by at most a tenth. What a daemon takes when nothing comes is there
once for each daemon, whatever comes: it is measured before the loads, and the same comparison without it stands beside.

    python -m benchmarks.cluster [--quick] [--json]
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg

from benchmarks.harness import Daemon, Figure, options, postgres, report, spread_of, temporary_folder
from benchmarks.ingest import logs_bodies, post_all
from tests.nats_servers import NatsServers

SIZES = (1, 2, 4)
JOBS = 32
METRICS = 8
POINTS_PER_BODY = 800  # 100 rows
ALONE = "one daemon with its SQLite spool"
PACE = 40_000  # points a second of all senders together
IDLE_SECONDS = 10.0
PATIENCE_SECONDS = 600.0
TOLERANCE = 1.10


def make_bodies(name: str, points: int) -> list[bytes]:
    """Bodies of many jobs, whose partitions are therefore shared out."""
    per_job = points // JOBS // POINTS_PER_BODY * POINTS_PER_BODY
    by_job = [logs_bodies(f"{name}-{job}", per_job, METRICS, POINTS_PER_BODY) for job in range(JOBS)]
    return [body for bodies in zip(*by_job, strict=True) for body in bodies]


def stored_rows(dsn: str) -> int:
    """The rows that the store counts."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select coalesce(sum(rows), 0) from lens_stream").fetchone()
    return int(found[0]) if found is not None else 0


class Servers:
    """The NATS servers, whose CPU is looked at."""

    def __init__(self, folder: Path) -> None:
        before = {child.pid for child in psutil.Process().children()}
        self.nats = NatsServers(folder / "nats").start()
        self._processes = [child for child in psutil.Process().children() if child.pid not in before]

    def cpu_seconds(self) -> float:
        """The CPU that all servers have taken."""
        used = [process.cpu_times() for process in self._processes]
        return sum(one.user + one.system for one in used)


class Run:
    """Two loads on some daemons that are one cluster, or on one that is alone."""

    def __init__(self, folder: Path, dsn: str, name: str, daemons: int, servers: Servers | None, points: int) -> None:
        config = {"sinks": {"store": {"type": "postgresql", "dsn": dsn}}, "server": {"listen": "127.0.0.1:0"}}
        if servers is not None:
            urls, monitoring = servers.nats.urls, servers.nats.monitoring
            section = {"nats": urls, "monitoring": monitoring, "name": name, "partitions": 16}
            config |= {"cluster": section, "spool": {"max_bytes": 128 * 1024 * 1024}}
        running = [Daemon(folder / f"{name}-{number}", json.dumps(config)).start() for number in range(daemons)]
        self.dsn, self.points = dsn, 0
        time.sleep(5.0)  # until the leases are shared out, and what runs at the start has run
        cpu = sum(map(Daemon.cpu_seconds, running))
        time.sleep(IDLE_SECONDS)
        idle = (sum(map(Daemon.cpu_seconds, running)) - cpu) / IDLE_SECONDS
        self.idle_daemon = idle / daemons * 1000
        began = time.perf_counter()
        self.post(running, make_bodies(f"{name}-first", points), None)
        self.points_per_second = self.points / (time.perf_counter() - began)
        self.points = 0
        cpu, nats = sum(map(Daemon.cpu_seconds, running)), servers.cpu_seconds() if servers is not None else 0.0
        began = time.perf_counter()
        self.post(running, make_bodies(name, points), PACE / daemons)
        seconds = time.perf_counter() - began
        millions = self.points / 1e6
        self.daemon_cpu = (sum(map(Daemon.cpu_seconds, running)) - cpu) / millions
        self.working_cpu = self.daemon_cpu - idle * seconds / millions
        self.nats_cpu = (servers.cpu_seconds() - nats) / millions if servers is not None else 0.0
        for daemon in running:
            daemon.stop()

    def post(self, running: Sequence[Daemon], bodies: Sequence[bytes], pace: float | None) -> None:
        """Send to all daemons in turn, and wait until all is stored; `pace` is in points a second of each daemon."""
        self.points += len(bodies) * POINTS_PER_BODY
        wanted = stored_rows(self.dsn) + self.points // METRICS
        began = time.perf_counter()
        with ThreadPoolExecutor(len(running)) as pool:
            shares = [in_time(bodies[number :: len(running)], pace) for number in range(len(running))]
            list(pool.map(lambda daemon, share: post_all(daemon.url, "/api/v1/wandb/logs", share), running, shares))
        while (rows := stored_rows(self.dsn)) < wanted:
            if time.perf_counter() - began > PATIENCE_SECONDS:
                raise RuntimeError(f"{rows} of {wanted} rows are stored after {PATIENCE_SECONDS:g} s")
            time.sleep(0.1)


def in_time(bodies: Sequence[bytes], pace: float | None) -> Iterator[bytes]:
    """Yield each body when it is due at so many points a second."""
    began = time.perf_counter()
    for number, body in enumerate(bodies):
        if pace is not None:
            time.sleep(max(0.0, began + number * POINTS_PER_BODY / pace - time.perf_counter()))
        yield body


def measure(folder: Path, *, quick: bool) -> list[Figure]:
    """All figures of this script: alternating, so that the machine's moods reach all of them."""
    points = 51_200 if quick else 1_024_000
    runs: dict[int, list[Run]] = {0: [], **{size: [] for size in SIZES}}
    with postgres(folder) as database:
        servers = Servers(folder)
        try:
            for number in range(1 if quick else 3):
                runs[0].append(Run(folder, database("alone"), f"alone-{number}", 1, None, points))
                for size in SIZES:
                    runs[size].append(Run(folder, database(f"of_{size}"), f"of-{size}-{number}", size, servers, points))
        finally:
            servers.nats.stop()
    return figures_of(runs)


def figures_of(runs: dict[int, list[Run]]) -> list[Figure]:
    """The figures out of all runs; those of size 0 are of the daemon that is alone."""
    cpu = {size: [run.daemon_cpu for run in some] for size, some in runs.items()}
    rates = {size: [run.points_per_second for run in some] for size, some in runs.items()}
    idle_alone = [run.idle_daemon for run in runs[0]]
    figures = []
    for size in SIZES:
        name = f"cluster of {size}"
        figures.append(_beside(f"{name}: CPU of the daemons per million points", "s", cpu[size], cpu[0]))
        figures.append(
            _beside(f"{name}: points stored a second", "points/s", rates[size], rates[0], is_more_better=True)
        )
        nats = [run.nats_cpu for run in runs[size]]
        figures.append(
            Figure(
                figure=f"{name}: CPU of the NATS servers per million points",
                unit="s",
                lens=statistics.median(nats),
                spread=spread_of(nats),
            )
        )
        idle = [run.idle_daemon for run in runs[size]]
        figures.append(_beside(f"{name}: CPU of each daemon when nothing comes", "ms/s", idle, idle_alone))
    figures.append(_compare_sizes("most CPU of 1, 2 and 4 daemons, the least beside it", cpu, f"ratio ≤ {TOLERANCE:g}"))
    working = {size: [run.working_cpu for run in some] for size, some in runs.items()}
    figures.append(_compare_sizes("the same without what they take when nothing comes", working))
    return figures


def _compare_sizes(figure: str, cpu: dict[int, list[float]], goal: str = "") -> Figure:
    medians = [statistics.median(cpu[size]) for size in SIZES]
    most, least = max(medians), min(medians)
    return Figure(
        figure=figure,
        unit="s",
        lens=most,
        peer=least,
        peer_name="the least",
        ratio=most / least,
        goal=goal,
        holds=most / least <= TOLERANCE if goal else None,
    )


def _beside(
    figure: str, unit: str, mine: Sequence[float], alone: Sequence[float], *, is_more_better: bool = False
) -> Figure:
    lens, peer = statistics.median(mine), statistics.median(alone)
    ratio = lens / peer if is_more_better else peer / lens
    return Figure(figure=figure, unit=unit, lens=lens, peer=peer, peer_name=ALONE, ratio=ratio, spread=spread_of(mine))


def main() -> None:
    """Options on the command line."""
    asked = options(__doc__ or "")
    with temporary_folder() as folder:
        report(measure(folder, quick=asked.quick), as_json=asked.json)


if __name__ == "__main__":
    main()
