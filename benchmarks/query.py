"""Charts out of the store: one metric of one long run among many, beside MLflow, TensorBoard and the seeds' way.

One run of 1,000,000 steps of 20 metrics (--quick: 50,000), asked over HTTP for 1,000 points of one metric; the same
with ten such runs (--quick: two) in the database; a run ten times as long; the whole metric as Arrow; what making
blocks costs at ingestion.
All on one PostgreSQL. MLflow and TensorBoard hold the one metric only, in their favour. The daemon's memory is that at
its highest while the export goes on.

    python -m benchmarks.query [--quick] [--json]

Loading ten runs and the long one takes 15 minutes and 15 GB. With --keep they are loaded once, and each part can be
measured alone:

    python -m benchmarks.query --keep FOLDER --part load      # again, until it says that all is there
    python -m benchmarks.query --keep FOLDER --part charts    # or another of PARTS
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.harness import Daemon, Figure, option_parser, percentile, report, spread_of, temporary_folder
from benchmarks.ingest import LensRun, metrics_bodies
from benchmarks.query_data import has_spikes, until_blocks_are_made
from benchmarks.query_peers import mlflow, seconds_of_seeds_way, tensorboard
from benchmarks.query_world import CONFIG, Asking, World, world

_LOADING_SECONDS = 60.0
_CHART: dict[str, Any] = {"metrics": "m7", "max_points": 1000}


def charts(made: World) -> list[Figure]:
    """1,000 points of one metric of the run alone; the catalogue's routes."""
    with made.daemon(made.dsn_alone) as asking:
        times = asking.milliseconds(300, "data", **_CHART)
        points = asking.get("data", **_CHART).json()["data"]
        seen = has_spikes(made.steps, [point["iteration"] for point in points])
        p50, p99 = statistics.median(times), percentile(times, 0.99)
        figures = [
            _goal(f"{_name(made)}, p50", "ms", p50, "≤ 30", p50 <= 30, spread_of(times)),
            _goal(f"{_name(made)}, p99", "ms", p99, "≤ 100", p99 <= 100),
            _goal("planted spikes seen", "", float(seen), "all", seen),
        ]
        for path in ("sources", "available"):
            p50 = statistics.median(asking.milliseconds(100, path))
            figures.append(_goal(f"{path}, p50", "ms", p50, "≤ 5", p50 <= 5))
    return figures


def beside_mlflow(made: World) -> list[Figure]:
    """In turns with the call of MLflow's own page; its whole history once, which takes long."""
    lens: list[float] = []
    intervals: list[float] = []
    with made.daemon(made.dsn_alone) as asking, mlflow(made.database("mlflow"), made.steps) as server:
        for _ in range(10):
            lens += asking.milliseconds(10, "data", **_CHART)
            intervals.append(server.seconds_of_interval() * 1000)
        history = server.seconds_of_history() * 1000
    return [
        _beside(made, lens, "MLflow bulk interval", statistics.median(intervals), 40),
        _beside(made, lens, "MLflow metric history", history, 40),
    ]


def beside_the_seeds_way(made: World) -> list[Figure]:
    """All rows loaded and filtered, on the same database."""
    with made.daemon(made.dsn_alone) as asking:
        lens = asking.milliseconds(50, "data", **_CHART)
        return [_beside(made, lens, "the seeds' way", seconds_of_seeds_way(made.dsn_alone, "run-0") * 1000, 20)]


def beside_tensorboard(made: World) -> list[Figure]:
    """TensorBoard's provider with the run in memory, and from its start."""
    with made.daemon(made.dsn_alone) as asking:
        lens = asking.milliseconds(50, "data", **_CHART)
        board = tensorboard(made.folder / "tensorboard", made.steps)
    loaded = (board["loaded"] + board["read"]) * 1000
    return [
        _beside(made, lens, "TensorBoard's provider, run in memory", board["read"] * 1000, 20),
        _beside(made, lens, "TensorBoard's provider, with loading", loaded, 20),
    ]


def growth(made: World) -> list[Figure]:
    """The same question to a database with one run and to one with many, whose runs are asked one after the other."""
    alone: list[float] = []
    among: list[float] = []
    with made.daemon(made.dsn_alone) as one, made.daemon(made.dsn_among) as many:
        for run in range(made.runs):
            alone += one.milliseconds(20, "data", **_CHART)
            among += many.milliseconds(20, "data", run, **_CHART)
    grown = statistics.median(among) / statistics.median(alone)
    figure = Figure(
        figure=f"{_name(made)}, among {made.runs} runs, p50",
        unit="ms",
        lens=statistics.median(among),
        peer=statistics.median(alone),
        peer_name="alone",
        ratio=grown,
        goal="< 1.5 times as long",
        holds=grown < 1.5,
        spread=spread_of(among),
    )
    return [figure]


def long(made: World) -> list[Figure]:
    """Whole-run charts of a run of ten times as many steps beside those of the run, in turns, in one database."""
    if not made.load_long():
        sys.exit("not all runs are loaded yet; give --part long again")
    times: dict[int, list[float]] = {0: [], 1: []}
    with made.daemon(made.dsn_long) as asking:
        for _ in range(10):
            for run, found in times.items():
                found += asking.milliseconds(10, "data", run, **_CHART)
        points = asking.get("data", 1, **_CHART).json()["data"]
    seen = has_spikes(10 * made.steps, [point["iteration"] for point in points])
    short, tenfold = (statistics.median(found) for found in times.values())
    figure = Figure(
        figure=f"1,000 points of one metric, {10 * made.steps:,} steps, p50",
        unit="ms",
        lens=tenfold,
        peer=short,
        peer_name=f"{made.steps:,} steps",
        ratio=tenfold / short,
        goal="< 1.5 times as long",
        holds=tenfold < 1.5 * short,
        spread=spread_of(times[1]),
    )
    return [figure, _goal("planted spikes of it seen", "", float(seen), "all", seen)]


def export(made: World) -> list[Figure]:
    """All points of one metric as Arrow, and the memory that it takes."""
    with made.daemon(made.dsn_alone) as asking:
        asking.milliseconds(20, "data", **_CHART)
        before = asking.daemon.rss_mib()
        times: list[float] = []
        highest = asking.highest_rss_mib(lambda: times.extend(_exports(asking)))
    seconds = statistics.median(times) / 1000
    return [
        _goal(f"all {made.steps:,} points as Arrow", "s", seconds, "≤ 1.5", seconds <= 1.5, spread_of(times)),
        _goal("daemon RSS grown by it", "MiB", highest - before, "≤ 64", highest - before <= 64),
    ]


def _exports(asking: Asking) -> list[float]:
    return asking.milliseconds(5, "data", metrics="m7", format="arrow")


def ingestion(made: World) -> list[Figure]:
    """Points per second without blocks and with, in turns, five metrics a step.

    Blocks give way to writing, so that most of them are made afterwards: how long after is the second figure.
    """
    points = 100_000 if made.steps <= 100_000 else 500_000
    stored: dict[str, list[float]] = {"true": [], "false": []}
    later: list[float] = []
    for turn in range(3):
        for blocks, found in stored.items():
            seconds, blocks_later = _ingested(made, f"ingest_{blocks}_{turn}", blocks, points)
            found.append(points / seconds)
            if blocks == "true":
                later.append(blocks_later)
    without = statistics.median(stored["false"])
    rate = statistics.median(stored["true"])
    figure = Figure(
        figure="stored while blocks are made, 5 metrics a step",
        unit="points/s",
        lens=rate,
        peer=without,
        peer_name="without blocks",
        ratio=rate / without,
        goal="≥ two thirds",
        holds=rate >= without * 2 / 3,
        spread=spread_of(stored["true"]),
    )
    lag = Figure(figure="all blocks made after the last row", unit="s", lens=statistics.median(later))
    return [figure, lag]


def _ingested(made: World, name: str, blocks: str, points: int) -> tuple[float, float]:
    """Seconds until so many points were stored, and from then on until all blocks were made."""
    with temporary_folder() as folder, made.emptied(name) as dsn:
        daemon = Daemon(folder / name, CONFIG.format(dsn=dsn, blocks=blocks)).start()
        try:
            bodies = metrics_bodies("w", points, 5)
            run = LensRun(daemon, "/api/v1/wandb/metrics", bodies, points)
            stored = time.perf_counter()
            if blocks == "true":
                until_blocks_are_made(dsn)
            return points / run.points_per_second, time.perf_counter() - stored
        finally:
            daemon.stop()


def _name(made: World) -> str:
    return f"1,000 points of one metric, {made.steps:,} x 20"


def _beside(made: World, lens: Sequence[float], peer_name: str, peer: float, wanted: int) -> Figure:
    p50 = statistics.median(lens)
    return Figure(
        figure=f"{_name(made)}, beside a peer",
        unit="ms",
        lens=p50,
        peer=peer,
        peer_name=peer_name,
        ratio=peer / p50,
        goal=f"≥ {wanted} times faster",
        holds=peer / p50 >= wanted,
    )


def _goal(name: str, unit: str, value: float, goal: str, holds: bool, spread: str = "") -> Figure:
    return Figure(figure=name, unit=unit, lens=value, goal=goal, holds=holds, spread=spread)


PARTS: dict[str, Callable[[World], list[Figure]]] = {
    "charts": charts,
    "mlflow": beside_mlflow,
    "seeds": beside_the_seeds_way,
    "tensorboard": beside_tensorboard,
    "growth": growth,
    "long": long,
    "export": export,
    "ingestion": ingestion,
}


def _chosen() -> argparse.Namespace:
    parser = option_parser(__doc__ or "")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where runs are loaded once and found again")
    parser.add_argument("--part", choices=["load", *PARTS], help="one part alone, out of --keep")
    chosen = parser.parse_args()
    if chosen.part and not chosen.keep:
        parser.error("--part needs --keep")
    return chosen


def main() -> None:
    """Measure and print."""
    chosen = _chosen()
    steps, runs = (50_000, 2) if chosen.quick else (1_000_000, 10)
    folder = nullcontext(chosen.keep) if chosen.keep else temporary_folder()
    seconds = _LOADING_SECONDS if chosen.part else float("inf")
    with folder as where, world(where, steps=steps, runs=runs, loading_seconds=seconds) as made:
        if chosen.part != "long" and not made.load():
            sys.exit("not all runs are loaded yet; give --part load again")
        parts = [PARTS[chosen.part]] if chosen.part in PARTS else [] if chosen.part else list(PARTS.values())
        for part in parts:
            report(part(made), as_json=chosen.json)
    if chosen.part == "load":
        print("all runs are loaded", file=sys.stderr)


if __name__ == "__main__":
    main()
