"""The one-machine default beside the last revision without clusters: a daemon that is alone must pay nothing for them.

Both run the same loads on the same PostgreSQL in turn, four times, in under four minutes: start, memory, threads, CPU
of a million points, the rate at which they are stored, and the p99 of the acknowledgement of one row; the best run of
each counts, because others on the machine only ever make a run worse. The revision is checked out of the repository's
history (`--before REVISION` names another, such as the one before a change); it runs with the packages of this
environment.

    python -m benchmarks.cluster_default [--quick] [--json] [--before REVISION]
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.cluster import METRICS, POINTS_PER_BODY, make_bodies, stored_rows
from benchmarks.harness import (
    Daemon,
    Figure,
    option_parser,
    percentile,
    postgres,
    report,
    spread_of,
    temporary_folder,
)
from benchmarks.ingest import logs_bodies, post_all

ROOT = Path(__file__).parents[1]
NOW = "this checkout"
FIRST_OF_CLUSTERS = "lens_core/cluster/cluster.py"
# The differences from run to run on a machine that does nothing else.
TOLERANCE = 1.05
UNITS = {
    "start until it answers": "s",
    "threads when idle": "threads",
    "memory when idle": "MiB",
    "CPU of an idle second": "ms",
    "CPU per million points": "s",
    "points stored a second": "points/s",
    "acknowledgement of one row, p99": "ms",
}
MORE_IS_BETTER = frozenset({"points stored a second"})


def git(*arguments: str) -> bytes:
    """The output of a command of git in this checkout."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def revision_before_clusters() -> str:
    """The parent of the revision that added clusters."""
    added = git("log", "--diff-filter=A", "--format=%H", "--", FIRST_OF_CLUSTERS).decode().split()
    if not added:
        raise SystemExit(
            "the history of this checkout does not reach back to the first cluster: name --before REVISION"
        )
    return f"{added[-1]}^"


def check_out(revision: str, folder: Path) -> Path:
    """The packages of a revision in a folder; compiled parts and fetched files are those of this checkout."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", revision, "lens_core", "plugins"))) as archive:
        archive.extractall(folder, filter="data")
    (folder / "lens_plugins").symlink_to("plugins")
    for path in git("ls-files", "-o", "-i", "--exclude-standard", "lens_core", "plugins").decode().splitlines():
        if path.endswith((".so", ".js", ".css")) and (folder / path).parent.is_dir():
            shutil.copy(ROOT / path, folder / path)
    return folder


@contextmanager
def packages_of(folder: Path | None) -> Iterator[None]:
    """Let daemons that are started meanwhile run the packages of a folder."""
    before = os.environ.get("PYTHONPATH")
    if folder is not None:
        os.environ["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


def config_of(dsn: str) -> str:
    """A configuration as of somebody who has one machine and a database."""
    return f'sinks: {{store: {{type: postgresql, dsn: "{dsn}"}}}}\nserver: {{listen: "127.0.0.1:0"}}\n'


def measure_daemon(folder: Path, dsn: str, name: str, points: int) -> Mapping[str, float]:
    """The figures of one daemon, by name."""
    daemon = Daemon(folder / name, config_of(dsn)).start()
    process = psutil.Process(daemon.pid)
    time.sleep(3.0)
    idle_from = daemon.cpu_seconds()
    time.sleep(5.0)
    found = {
        "start until it answers": daemon.ready_seconds,
        "threads when idle": float(process.num_threads()),
        "memory when idle": daemon.rss_mib(),
        "CPU of an idle second": (daemon.cpu_seconds() - idle_from) / 5.0 * 1000,
    }
    bodies = make_bodies(name, points)
    wanted = stored_rows(dsn) + len(bodies) * POINTS_PER_BODY // METRICS
    cpu, began = daemon.cpu_seconds(), time.perf_counter()
    post_all(daemon.url, "/api/v1/wandb/logs", bodies)
    while stored_rows(dsn) < wanted:
        time.sleep(0.05)
    seconds, total = time.perf_counter() - began, len(bodies) * POINTS_PER_BODY
    found["CPU per million points"] = (daemon.cpu_seconds() - cpu) / (total / 1e6)
    found["points stored a second"] = total / seconds
    single = logs_bodies(f"{name}-single", 300 * METRICS, METRICS, METRICS)
    found["acknowledgement of one row, p99"] = (
        percentile(post_all(daemon.url, "/api/v1/wandb/logs", single), 0.99) * 1e3
    )
    daemon.stop()
    return found


def measure(folder: Path, revision: str, *, quick: bool) -> list[Figure]:
    """All figures: the two in turn, each time the other one first."""
    points = 51_200 if quick else 512_000
    old = check_out(revision, folder / "before")
    found: dict[str, list[Mapping[str, float]]] = {NOW: [], revision: []}
    order = [(NOW, None), (revision, old)]
    with postgres(folder) as database:
        for number, (_, packages) in enumerate(order):  # Python compiles what it has not seen yet
            with packages_of(packages):
                Daemon(folder / f"first-{number}", config_of(database(f"first_{number}"))).start().stop()
        for number in range(1 if quick else 4):
            for name, packages in order if number % 2 else order[::-1]:
                short = "now" if packages is None else "before"
                with packages_of(packages):
                    dsn = database(short)
                    found[name].append(measure_daemon(folder, dsn, f"{short}-{number}", points))
    return [_compare(figure, found[NOW], found[revision], revision) for figure in UNITS]


def _compare(figure: str, now: list[Mapping[str, float]], before: list[Mapping[str, float]], revision: str) -> Figure:
    mine, theirs = [one[figure] for one in now], [one[figure] for one in before]
    best = max if figure in MORE_IS_BETTER else min
    lens, peer = best(mine), best(theirs)
    better, worse = (lens, peer) if figure in MORE_IS_BETTER else (peer, lens)
    ratio = better / worse if worse else 1.0
    return Figure(
        figure=figure,
        unit=UNITS[figure],
        lens=lens,
        peer=peer,
        peer_name=f"before clusters ({revision[:10]})",
        ratio=ratio,
        goal=f"ratio ≥ {1 / TOLERANCE:.2f}",
        holds=ratio >= 1 / TOLERANCE,
        spread=spread_of(mine),
    )


def main() -> None:
    """Options on the command line."""
    parser = option_parser(__doc__ or "")
    parser.add_argument("--before", default="", help="the revision beside this one; default: the last without clusters")
    asked = parser.parse_args()
    with temporary_folder() as folder:
        revision = asked.before or revision_before_clusters()
        report(measure(folder, revision, quick=asked.quick), as_json=asked.json)


if __name__ == "__main__":
    main()
