"""The ledger of a job of a million steps, and the sums of a fleet: `python -m benchmarks.goodput [--quick] [--json]`.

No peer makes a ledger that adds up out of rows and events; Google's calculator reads its own recorder's entries in a
cloud log, and cannot be run on these. Faults are scripted, so that the right ledger is known.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from lens_plugins.analyzers.goodput.facts import BUCKETS, Attempt, Facts, Rows, Span
from lens_plugins.analyzers.goodput.fleet import FleetBooks, Job
from lens_plugins.analyzers.goodput.ledger import ledger_of
from lens_plugins.analyzers.regressions.finding import Points
from lens_plugins.analyzers.regressions.loss import find_spikes

STEP = 1.0
START, SAVE, EVALUATION, DOWN, HANG = 120.0, 12.0, 60.0, 300.0, 1800.0
BLOOM = [2.20, 2.22, 2.595, 2.24, 2.35, 5.10, 3.49, 3.21, 2.80]
BLOOM_NORMS = [0.24, 0.95, 2.4, 15.9, 145.0, 960.0]


def scripted(steps: int) -> tuple[Facts, dict[str, float]]:
    """A job that saves, evaluates, is killed, hangs and has a slow quarter; and its right ledger."""
    attempts, expected = [], dict.fromkeys(BUCKETS, 0.0)
    parts, time_now, done = 4, 0.0, 0
    each = steps // parts
    for part in range(parts):
        begun = time_now
        first = done + 1
        paces = np.full(each, STEP if part != 1 else 1.1 * STEP)
        numbers = np.arange(first, first + each)
        pauses = np.where(numbers % 500 == 0, SAVE, 0.0) + np.where(numbers % 5000 == 0, EVALUATION, 0.0)
        # A row is logged at the end of its step; what pauses comes behind it.
        times = begun + START + np.cumsum(paces) + np.concatenate([[0.0], np.cumsum(pauses)[:-1]])
        saved, evaluated = numbers[numbers % 500 == 0], numbers[numbers % 5000 == 0]
        at = {int(number): float(times[number - first]) for number in saved}
        saves = [Span(at[int(number)], at[int(number)] + SAVE, int(number)) for number in saved if number < numbers[-1]]
        runs = [
            Span(at[int(number)] + SAVE, at[int(number)] + SAVE + EVALUATION, int(number))
            for number in evaluated
            if number < numbers[-1]
        ]
        end = float(times[-1]) + (HANG if part == 2 else 0.0)
        is_last = part == parts - 1
        cause = "" if is_last else ("collective_timeout" if part == 2 else "process_terminated")
        attempts.append(
            Attempt(
                columns=[Rows(numbers, times)],
                start=begun,
                end=end,
                cause=cause,
                ended_cleanly=is_last,
                resumed_from=first - 1,
                gpus=8,
                saves=saves,
                evaluations=runs,
            )
        )
        lost = 0 if is_last else each // 10
        work = float(paces.sum())
        expected["startup"] += START
        expected["checkpoint"] += SAVE * len(saves)
        expected["evaluation"] += EVALUATION * len(runs)
        expected["productive"] += (each - lost) * STEP
        expected["lost"] += lost * STEP
        expected["slow"] += work - each * STEP
        if part == 2:
            expected["stalled"] += HANG - float(paces[-1])
            expected["lost"] += float(paces[-1])
        done += each - lost
        time_now = end
        if not is_last:
            expected["down"] += DOWN
            time_now += DOWN
    return Facts(attempts=attempts), expected


def fleet_of(path: Path, jobs: int, days: int) -> FleetBooks:
    """The sums of jobs that each ran for a third of the days."""
    books = FleetBooks(path)
    random_numbers = np.random.default_rng(0)
    today = int(time.time() // 86400)
    for number in range(jobs):
        first = today - days + int(random_numbers.integers(0, max(1, days * 2 // 3)))
        seconds = dict.fromkeys(BUCKETS, 7200.0)
        lived = [(first + day, seconds, seconds) for day in range(max(1, days // 3))]
        books.book(
            Job(uid=f"job-{number}", name=f"job-{number % 50}", namespace="team", framework="megatron"), lived, []
        )
    return books


def detectors(losses: np.ndarray) -> dict[str, bool]:
    """Apply the rules that others use to a spike: each of their tests on the losses behind the first hundred."""
    running = [float(np.mean(losses[max(0, i - 100) : i])) for i in range(100, len(losses))]
    ratios = losses[100:] / np.array(running)
    in_a_row = max((len(part) for part in "".join("x" if one >= 2 else " " for one in ratios).split()), default=0)
    return {
        "2x running mean, 5 in a row (llm-foundry)": in_a_row >= 5,
        "3x running mean (Lightning)": bool(np.any(ratios >= 3)),
        "10x maximum of the first 100 (Megatron)": bool(np.any(losses[100:] >= 10 * losses[:100].max())),
    }


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    steps, jobs = (100_000, 1_000) if options.quick else (1_000_000, 10_000)
    facts, expected = scripted(steps)
    figures = []
    took = []
    for _ in range(3):
        began = time.perf_counter()
        ledger = ledger_of(facts)
        took.append(time.perf_counter() - began)
    figures.append(_figure(f"ledger of {steps:,} steps", "s", float(np.median(took)), 1.0))
    off = max(abs(ledger.buckets[name] - expected[name]) for name in BUCKETS) / ledger.wall_seconds
    figures.append(_figure("largest error of a bucket, scripted faults", "share of the wall time", off, 0.001))
    with tempfile.TemporaryDirectory() as folder:
        books = fleet_of(Path(folder) / "fleet.sqlite3", jobs, 30)
        took = []
        for by in ("cause", "framework", "name"):
            began = time.perf_counter()
            books.answer(int(time.time() // 86400) - 30, by)
            took.append(time.perf_counter() - began)
        books.close()
    figures.append(_figure(f"sums of {jobs:,} jobs over 30 days", "s", float(np.median(took)), 0.3))
    losses = np.concatenate([np.random.default_rng(0).normal(2.218, 0.015, 100), BLOOM, np.full(40, 2.25)])
    iterations = np.arange(1000, 1000 + len(losses))
    norms = np.concatenate([np.full(100, 0.236), BLOOM_NORMS, np.full(len(losses) - 106, 0.3)])
    points = [Points(iterations, 106.0 * np.arange(len(losses)), values) for values in (losses, norms)]
    found = find_spikes(*points)
    seen = {f"Lens: {one.type} at the {one.iteration - 1099}th of the nine losses": True for one in found}
    if options.json:
        for figure in figures:
            print(json.dumps(figure))
        print(json.dumps({"figure": "rules on BLOOM's spike", "sees": {**seen, **detectors(losses)}}))
        return
    for figure in figures:
        state = "holds" if figure["holds"] else "MISSED"
        print(f"{figure['figure']:<50} {figure['lens']:.4g} {figure['unit']} (goal {figure['goal']:g}: {state})")
    print("BLOOM's spike:")
    for rule, sees in {**seen, **detectors(losses)}.items():
        print(f"  {rule}: {'sees it' if sees else 'silent'}")


def _figure(name: str, unit: str, value: float, goal: float) -> dict[str, object]:
    return {
        **{"figure": name, "unit": unit, "lens": value, "peer": None, "peer_name": "none", "ratio": None},
        **{"goal": goal, "holds": value <= goal},
    }


if __name__ == "__main__":
    main()
