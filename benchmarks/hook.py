"""What the hook costs a training process, beside no hook at all, upstream's exporter and swanlab's sync_wandb.

Every run is a process of its own with real wandb (offline); runs of all variants alternate, and what is reported is the
median over the runs of each one's median. "down" has nobody listening, "slow" answers after half a second.

    python -m benchmarks.hook [--quick] [--json] [--part NAME ...] [--repeats N]

All of it takes about ten minutes; `--part` takes some of it, `--repeats` another number of runs than the usual one.
What `--quick` says about training pace is coarse: with 300 calls a median is good to about 10 µs; the spread says.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Figure, option_parser, report, spread_of
from benchmarks.hook_runs import ROOT, Receiver, Results, alternate, receivers, run_job

HOOK = ROOT / "plugins" / "sources" / "wandb_hook"
VARIANTS = ("none", "lens up", "lens down", "lens slow", "exporter", "swanlab")
RECEIVERS = ("lens up", "lens down", "lens slow")


class Size:
    """How much is measured: quick or whole, and how often."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._quick: bool = chosen.quick
        self._repeats: int | None = chosen.repeats

    def of(self, quick: int, whole: int) -> int:
        """A size."""
        return quick if self._quick else whole

    def runs(self, quick: int, whole: int) -> int:
        """A number of runs."""
        return self._repeats or self.of(quick, whole)

    def variants(self) -> tuple[str, ...]:
        """What whole runs compare."""
        return ("none", "lens up", "exporter") if self._quick else VARIANTS


def middle(results: Results, variant: str, key: str) -> float:
    """The median over a variant's runs."""
    return statistics.median(result[key] for result in results[variant])


def differences(results: Results, variant: str, key: str) -> list[float]:
    """What each run of a variant took more than the run without a hook that stood beside it."""
    return [run[key] - none[key] for run, none in zip(results[variant], results["none"], strict=True)]


def added(results: Results, key: str, label: str, goal_us: float | None = None) -> list[Figure]:
    """What each variant adds to wandb's own call: the median of the paired differences."""
    figures = [Figure(figure=f"{label}: wandb.log alone", unit="µs", lens=round(middle(results, "none", key), 1))]
    exporter = statistics.median(differences(results, "exporter", key))
    for variant in [name for name in results if name.startswith("lens")]:
        values = differences(results, variant, key)
        more = statistics.median(values)
        figures.append(
            Figure(
                figure=f"{label}: added, receiver {variant.split()[1]}",
                unit="µs",
                lens=round(more, 1),
                peer=round(exporter, 1),
                peer_name="exporter 0.2.0",
                ratio=round(exporter / max(more, 1.0), 1),
                goal=f"≤ {goal_us:g} µs" if goal_us is not None else "",
                holds=more <= goal_us if goal_us is not None else None,
                spread=spread_of(values),
            )
        )
    if "swanlab" in results:
        swanlab = statistics.median(differences(results, "swanlab", key))
        figures.append(Figure(figure=f"{label}: added by swanlab.sync_wandb", unit="µs", lens=round(swanlab, 1)))
    return figures


def switched_figures(size: Size) -> list[Figure]:
    """At training pace within one process, every other call with the hook on."""
    figures = []
    with receivers() as urls:
        results = alternate("switched", size.of(300, 1000), size.runs(1, 5), RECEIVERS, urls)
    for variant, runs in results.items():
        more, base = (statistics.median(run[key] for run in runs) for key in ("median", "off"))
        error = statistics.median(run["error"] for run in runs) / len(runs) ** 0.5
        figures.append(
            Figure(
                figure=f"one log per 10 ms, added to the median, receiver {variant.split()[1]}",
                unit="µs",
                lens=round(more, 1),
                peer=round(base, 1),
                peer_name="wandb.log itself",
                goal="≤ 20 µs and ≤ 3 %",
                holds=more <= min(20.0, 0.03 * base),
                spread=f"± {error:.1f}; {spread_of([run['median'] for run in runs])}",
            )
        )
    return figures


def block_figures(size: Size) -> list[Figure]:
    """A burst within one process, every other block of calls with the hook on, plus all that the worker burns."""
    figures = []
    with receivers() as urls:
        results = alternate("blocks", size.of(10_000, 20_000), size.runs(1, 7), RECEIVERS, urls)
    for variant, runs in results.items():
        value = statistics.median(run["added"] for run in runs)
        worker = statistics.median(run["worker"] for run in runs)
        figures.append(
            Figure(
                figure=f"burst, added per call with the worker, receiver {variant.split()[1]}",
                unit="µs",
                lens=round(value, 1),
                peer=round(statistics.median(run["off"] for run in runs), 1),
                peer_name="wandb.log itself",
                goal="≤ 15 µs",
                holds=value <= 15.0,
                spread=f"worker {worker:.1f}; {spread_of([run['added'] for run in runs])}",
            )
        )
    return figures


def wrapper_figures(size: Size) -> list[Figure]:
    """The wrapper around nothing."""
    runs = [run_job("lens up", "wrapper", 3000) for _ in range(size.runs(1, 7))]
    figures = []
    for key, limit in (("median", 4.0), ("p99", 15.0)):
        values = [run[key] for run in runs]
        value = statistics.median(values)
        figures.append(
            Figure(
                figure=f"wrapper alone, 5 scalars, {key}",
                unit="µs",
                lens=round(value, 2),
                goal=f"≤ {limit:g} µs",
                holds=value <= limit,
                spread=spread_of(values),
            )
        )
    return figures


def start_figures(size: Size) -> list[Figure]:
    """Starting Python with the hook installed: idle, and armed; beside an empty .pth."""
    with tempfile.TemporaryDirectory(prefix="lens-hook-benchmark-") as work:
        folders = {}
        for name in ("empty", "hook"):
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{work}/{name}"], check=True)
            folders[name] = next(Path(f"{work}/{name}/lib").glob("python*/site-packages"))
        (folders["empty"] / "empty.pth").write_text("")
        (folders["hook"] / "lens_hook.pth").write_text((HOOK / "lens_hook.pth").read_text())
        subprocess.run(["cp", "-r", str(HOOK / "lens_hook"), str(folders["hook"])], check=True)
        cases = {
            "empty": (f"{work}/empty/bin/python", {}),
            "idle": (f"{work}/hook/bin/python", {}),
            "armed": (f"{work}/hook/bin/python", {"POD_NAME": "p"}),
        }
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for number in range(size.of(40, 300)):
            for name, (python, variables) in cases.items():
                begun = time.perf_counter()
                subprocess.run([python, "-c", "pass"], env={"PATH": "/usr/bin:/bin", **variables}, check=True)
                if number > 2:
                    taken[name].append((time.perf_counter() - begun) * 1e3)
    base = statistics.median(taken["empty"])
    figures = []
    for name, limit in (("idle", 0.6), ("armed", 2.5)):
        value = statistics.median(taken[name]) - base
        least = min(taken[name]) - min(taken["empty"])
        figures.append(
            Figure(
                figure=f"starting Python, {name}, over an empty .pth",
                unit="ms",
                lens=round(value, 2),
                goal=f"≤ {limit:g} ms",
                holds=value <= limit,
                spread=f"difference of minima {least:.2f}",
            )
        )
    return figures


def footprint_figures(size: Size) -> list[Figure]:
    """Memory, threads and descriptors, and the import of wandb."""
    repeats = size.runs(1, 5)
    with receivers() as urls:
        prints = alternate("footprint", 0, repeats, ("none", "lens up", "exporter"), urls)
        imports = alternate("import", 0, repeats + 2, ("none", "lens up"), urls)
    figures: list[Figure] = []
    for key, unit, limit in (("rss_mib", "MiB", 25.0), ("threads", "", 1.0), ("descriptors", "", 3.0)):
        base = middle(prints, "none", key)
        value, peer = middle(prints, "lens up", key) - base, middle(prints, "exporter", key) - base
        figures.append(
            Figure(
                figure=f"{key} added to a logging process",
                unit=unit,
                lens=round(value, 1),
                peer=round(peer, 1),
                peer_name="exporter 0.2.0",
                goal=f"≤ {limit:g}",
                holds=value <= limit,
            )
        )
    value = middle(imports, "lens up", "hook_ms")
    figures.append(
        Figure(
            figure="import wandb, time spent in the hook",
            unit="ms",
            lens=round(value, 1),
            peer=round(middle(imports, "none", "ms"), 1),
            peer_name="import wandb itself",
            goal="≤ 20 ms",
            holds=value <= 20.0,
            spread=spread_of([run["hook_ms"] for run in imports["lens up"]]),
        )
    )
    return figures


def delivery_figures(size: Size) -> list[Figure]:
    """Points that arrive of those logged as fast as the loop goes, with the exit straight after."""
    calls = size.of(5_000, 200_000)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="lens-hook-benchmark-") as spool:
        for label, variant, more in (
            ("disk spool", "lens up", {"PRIMUS_LENS_SPOOL_PATH": spool}),
            ("memory", "lens up", {}),
            ("", "exporter", {}),
        ):
            receiver = Receiver()
            variables = {"PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "60", **more}
            run_job(variant, "burst", calls, receiver.url, variables)
            arrived = receiver.points / (5 * (calls + 50))
            receiver.close()
            if variant == "exporter":
                figures = [_with_peer(figure, arrived * 100) for figure in figures]
                continue
            figures.append(
                Figure(
                    figure=f"delivered of {5 * calls:,} points in a burst, {label}",
                    unit="%",
                    lens=round(100 * arrived, 3),
                    goal="100 %" if label == "disk spool" else "",
                    holds=arrived == 1.0 if label == "disk spool" else None,
                )
            )
    return figures


def _with_peer(figure: Figure, peer: float) -> Figure:
    return Figure(
        figure=figure.figure,
        unit=figure.unit,
        lens=figure.lens,
        peer=round(peer, 3),
        peer_name="exporter 0.2.0",
        ratio=round(figure.lens / max(peer, 0.001), 1),
        goal=figure.goal,
        holds=figure.holds,
    )


def paced_figures(size: Size) -> list[Figure]:
    """Whole runs at training pace, with peers."""
    with receivers() as urls:
        results = alternate("paced", size.of(100, 400), size.runs(1, 5), size.variants(), urls)
    figures = added(results, "median", "one log per 10 ms, median of whole runs")
    return figures + added(results, "p99", "one log per 10 ms, p99 of whole runs")


def burst_figures(size: Size) -> list[Figure]:
    """Whole runs of a burst, with peers."""
    with receivers() as urls:
        results = alternate("burst", size.of(3000, 10_000), size.runs(1, 7), size.variants(), urls)
    figures = added(results, "wall", "burst, wall time per call of whole runs")
    return figures + added(results, "cpu", "burst, processor time per call, all threads")


PARTS: dict[str, Callable[[Size], list[Figure]]] = {
    "wrapper": wrapper_figures,
    "switched": switched_figures,
    "blocks": block_figures,
    "paced": paced_figures,
    "burst": burst_figures,
    "start": start_figures,
    "footprint": footprint_figures,
    "delivery": delivery_figures,
}


def main() -> None:
    """Measure and print."""
    parser = option_parser(__doc__ or "")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given more than once")
    parser.add_argument("--repeats", type=int, metavar="N", help="this many runs of everything")
    chosen = parser.parse_args()
    size = Size(chosen)
    report([figure for name in chosen.part or PARTS for figure in PARTS[name](size)], as_json=chosen.json)


if __name__ == "__main__":
    main()
