"""Charts out of the store: one metric of one long run among many, beside MLflow, TensorBoard and the seeds' way.

One run of 1,000,000 steps of 20 metrics (--quick: 50,000), asked over HTTP for 1,000 points of one metric; the same
with ten such runs (--quick: two) in the database; the whole metric as Arrow; what making blocks costs at ingestion.
All on one PostgreSQL. MLflow and TensorBoard hold the one metric only, in their favour.

    python -m benchmarks.query [--quick] [--json]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import Daemon, Figure, options, percentile, postgres, report, spread_of, temporary_folder
from benchmarks.ingest import LensRun, metrics_bodies
from benchmarks.query_data import has_spikes, load_run, make_blocks
from benchmarks.query_peers import mlflow, seconds_of_seeds_way, tensorboard

_CONFIG = """sinks: {{store: {{type: postgresql, dsn: "{dsn}", blocks: {blocks}}}}}
server: {{listen: "127.0.0.1:0"}}
"""


class Asking:
    """One daemon's API."""

    def __init__(self, daemon: Daemon) -> None:
        self._client = httpx.Client(base_url=daemon.url, timeout=120)

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        """A question about run-0."""
        return self._client.get(f"/api/v1/workloads/run-0/metrics/{path}", params=parameters).raise_for_status()

    def milliseconds(self, times: int, path: str, **parameters: Any) -> list[float]:
        """How long the same question takes, asked again and again, the first few left out."""
        found = []
        for number in range(times + 5):
            started = time.perf_counter()
            self.get(path, **parameters)
            if number >= 5:
                found.append((time.perf_counter() - started) * 1000)
        return found


def measure(folder: Path, *, steps: int, runs: int) -> list[Figure]:
    """All figures of this script: of a run of so many steps, alone and among so many runs."""
    figures: list[Figure] = []
    with postgres(folder) as database:
        dsn = database("lens")
        daemon = Daemon(folder / "lens", _CONFIG.format(dsn=dsn, blocks="false")).start()
        load_run(dsn, "run-0", steps)
        make_blocks(dsn)
        asking = Asking(daemon)
        alone, peers = _in_turns(folder, database, dsn, steps, asking)
        points = asking.get("data", metrics="m7", max_points=1000).json()["data"]
        seen = has_spikes(steps, [point["iteration"] for point in points])
        figures += _charts(alone, seen, peers, steps)
        for path in ("sources", "available"):
            p50 = statistics.median(asking.milliseconds(100, path))
            figures.append(_goal(f"{path}, p50", "ms", p50, "≤ 5", p50 <= 5))
        figures += _export(asking, daemon, steps)
        for number in range(1, runs):
            load_run(dsn, f"run-{number}", steps)
        make_blocks(dsn)
        among = asking.milliseconds(100, "data", metrics="m7", max_points=1000)
        growth = statistics.median(among) / statistics.median(alone)
        figures.append(_goal(f"the same among {runs} runs, times as long", "", growth, "< 1.5", growth < 1.5))
        daemon.stop()
        figures.append(_ingestion(folder, database, 100_000 if steps <= 100_000 else 500_000))
    return figures


def _in_turns(
    folder: Path, database: Callable[[str], str], dsn: str, steps: int, asking: Asking
) -> tuple[list[float], dict[str, float]]:
    """Milliseconds of Lens, and of each peer; what is quick enough is asked in turns with Lens."""
    lens: list[float] = []
    intervals: list[float] = []
    with mlflow(database("mlflow"), steps) as server:
        for _ in range(10):
            lens += asking.milliseconds(10, "data", metrics="m7", max_points=1000)
            intervals.append(server.seconds_of_interval() * 1000)
        found = {"MLflow bulk interval": statistics.median(intervals)}
        found["MLflow metric history"] = server.seconds_of_history() * 1000
    found["the seeds' way"] = seconds_of_seeds_way(dsn, "run-0") * 1000
    board = tensorboard(folder / "tensorboard", steps)
    found["TensorBoard's provider, run in memory"] = board["read"] * 1000
    found["TensorBoard's provider, with loading"] = (board["loaded"] + board["read"]) * 1000
    return lens, found


def _charts(alone: Sequence[float], seen: bool, peers: dict[str, float], steps: int) -> list[Figure]:
    name = f"1,000 points of one metric, {steps:,} x 20"
    p50, p99 = statistics.median(alone), percentile(alone, 0.99)
    figures = [
        _goal(f"{name}, p50", "ms", p50, "≤ 30", p50 <= 30, spread_of(alone)),
        _goal(f"{name}, p99", "ms", p99, "≤ 100", p99 <= 100),
        _goal("planted spikes seen", "", float(seen), "all", seen),
    ]
    for peer_name, peer in peers.items():
        wanted = 40 if peer_name.startswith("MLflow bulk") or peer_name.startswith("MLflow metric") else 20
        figures.append(
            Figure(
                figure=f"{name}, beside a peer",
                unit="ms",
                lens=p50,
                peer=peer,
                peer_name=peer_name,
                ratio=peer / p50,
                goal=f"≥ {wanted} times faster",
                holds=peer / p50 >= wanted,
            )
        )
    return figures


def _export(asking: Asking, daemon: Daemon, steps: int) -> list[Figure]:
    before = daemon.rss_mib()
    seconds = statistics.median(asking.milliseconds(3, "data", metrics="m7", format="arrow")) / 1000
    grown = max(0.0, daemon.rss_mib() - before)
    return [
        _goal(f"all {steps:,} points as Arrow", "s", seconds, "≤ 1.5", seconds <= 1.5),
        _goal("daemon RSS grown by it", "MiB", grown, "≤ 64", grown <= 64),
    ]


def _ingestion(folder: Path, database: Callable[[str], str], points: int) -> Figure:
    """Points per second with blocks and without, in turns; five metrics a step."""
    rates: dict[str, list[float]] = {"true": [], "false": []}
    for turn in range(3):
        for blocks, found in rates.items():
            name = f"ingest_{blocks}_{turn}"
            daemon = Daemon(folder / name, _CONFIG.format(dsn=database(name), blocks=blocks)).start()
            found.append(
                LensRun(daemon, "/api/v1/wandb/metrics", metrics_bodies("w", points, 5), points).points_per_second
            )
            daemon.stop()
    with_blocks, without = statistics.median(rates["true"]), statistics.median(rates["false"])
    return Figure(
        figure="stored while blocks are made, 5 metrics a step",
        unit="points/s",
        lens=with_blocks,
        peer=without,
        peer_name="without blocks",
        ratio=with_blocks / without,
        goal="≥ two thirds",
        holds=with_blocks >= without * 2 / 3,
        spread=spread_of(rates["true"]),
    )


def _goal(name: str, unit: str, value: float, goal: str, holds: bool, spread: str = "") -> Figure:
    return Figure(figure=name, unit=unit, lens=value, goal=goal, holds=holds, spread=spread)


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__ or "")
    with temporary_folder() as folder:
        steps, runs = (50_000, 2) if chosen.quick else (1_000_000, 10)
        report(measure(folder, steps=steps, runs=runs), as_json=chosen.json)


if __name__ == "__main__":
    main()
