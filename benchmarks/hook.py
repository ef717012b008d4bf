"""Cost of the hook in a training process, beside no hook at all, upstream's exporter and swanlab's sync_wandb.

Every run is a process of its own with real wandb (offline); runs of all variants alternate, and what is reported is the
median over the runs of each one's median. "down" has nobody listening, "slow" answers after half a second.

    python -m benchmarks.hook [--quick] [--json] [--part NAME ...] [--repeats N] [--receiver NAME]

Whole processes differ by more than the hook costs, so what is decided by is measured within one process, the hook on
and off by turns (`paired`, `blocks`); the whole runs beside them (`paced`, `burst`) see what that cannot: the start,
and the mere presence of the hook and its thread.

All of it takes about 25 minutes; `--part` takes some of it, `--repeats` another number of runs than the usual one.
What `--quick` says about training pace is coarse; the interval says how coarse.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

from benchmarks.harness import Figure, option_parser, report, spread_of
from benchmarks.hook_life import delivery_figures, footprint_figures, start_figures
from benchmarks.hook_runs import Results, Size, alternate, middle, receivers, run_job
from benchmarks.hook_trackers import tracker_figures


def differences(results: Results, variant: str, key: str) -> list[float]:
    """Return the extra time of each run of a variant over the run without a hook beside it."""
    return [run[key] - none[key] for run, none in zip(results[variant], results["none"], strict=True)]


def added(results: Results, key: str, label: str, goal_us: float | None = None) -> list[Figure]:
    """Return the time that each variant adds to wandb's own call: the median of the paired differences."""
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


def paired_figures(size: Size) -> list[Figure]:
    """At training pace within one process, blocks of calls with the hook on and off in pairs."""
    figures = []
    with receivers() as urls:
        results = alternate("paired", size.of(400, 6000), size.runs(1, 2), size.receivers(), urls)
    for variant, runs in results.items():
        base = statistics.median(run["off"] for run in runs)
        worker = statistics.median(run["worker"] for run in runs)
        whole, around = ([value for run in runs for value in run[key]] for key in ("whole", "around"))
        for label, values in (("", whole), ("outside wandb's method, ", around)):
            more = statistics.median(values)
            figures.append(
                Figure(
                    figure=f"one log per 10 ms, {label}added, {variant.split()[1]}",
                    unit="µs",
                    lens=round(more, 1),
                    peer=round(base, 1),
                    peer_name="wandb.log itself",
                    goal="≤ 20 µs and ≤ 3 %",
                    holds=more <= min(20.0, 0.03 * base),
                    spread=f"{interval(values)} by {len(values)} pairs; worker {worker:.0f} a call, beside it",
                )
            )
    return figures


def interval(values: Sequence[float]) -> str:
    """The interval that holds the true median with 95 %, by drawing the values repeatedly."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2000))
    return f"{medians[50]:.1f} to {medians[1949]:.1f}"


def block_figures(size: Size) -> list[Figure]:
    """A burst within one process, every other block of calls with the hook on, plus all that the worker burns."""
    figures = []
    with receivers() as urls:
        results = alternate("blocks", size.of(10_000, 20_000), size.runs(1, 7), size.receivers(), urls)
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
    "paired": paired_figures,
    "blocks": block_figures,
    "paced": paced_figures,
    "burst": burst_figures,
    "start": start_figures,
    "footprint": footprint_figures,
    "delivery": delivery_figures,
    "trackers": tracker_figures,
}


def main() -> None:
    """Measure and print."""
    parser = option_parser(__doc__ or "")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given more than once")
    parser.add_argument("--repeats", type=int, metavar="N", help="this many runs of everything")
    parser.add_argument("--receiver", choices=["up", "down", "slow"], help="paired and blocks: with this one alone")
    chosen = parser.parse_args()
    size = Size(chosen)
    report([figure for name in chosen.part or PARTS for figure in PARTS[name](size)], as_json=chosen.json)


if __name__ == "__main__":
    main()
