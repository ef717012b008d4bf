"""The ledger of a job of a million steps, and the sums of a fleet: `python -m benchmarks.goodput [--quick] [--json]`.

Faults are scripted, so that the right ledger is known. No peer makes a ledger that adds up out of rows and events.
Google's calculator reads the entries of its own recorder; it is given those that a job with these faults would have
recorded, and runs in an environment of its own. The rules of others for spikes run beside ours on the losses of BLOOM.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from lens_plugins.analyzers.goodput.facts import BUCKETS, Attempt, Facts, Rows, Span
from lens_plugins.analyzers.goodput.fleet import FleetBooks, Job
from lens_plugins.analyzers.goodput.ledger import ledger_of
from lens_plugins.analyzers.regressions.finding import Points
from lens_plugins.analyzers.regressions.loss import find_spikes

from benchmarks.harness import Figure, options, peer_environment, report

STEP = 1.0
EPOCH = 1_700_000_000.0
PEER_STEPS = 20_000
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
        # A row is logged at the end of its step; what pauses comes after it.
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


def other_rules(losses: np.ndarray) -> dict[str, bool]:
    """Apply the rules that others use to a spike: each of their tests on the losses after the first hundred."""
    places = range(100, len(losses))
    of_hundred = np.array([losses[index] / np.mean(losses[index - 100 : index]) for index in places])
    of_ten = np.array([losses[index] / np.mean(losses[index - 10 : index]) for index in places])
    in_a_row = max((len(part) for part in "".join("x" if one >= 2 else " " for one in of_hundred).split()), default=0)
    return {
        "2x running mean of 100, 5 in a row (llm-foundry)": in_a_row >= 5,
        "2x over the running mean of 10 (Lightning)": bool(np.any(of_ten - 1 >= 2)),
        "10x maximum of the first 100 (Megatron)": bool(np.any(losses[100:] >= 10 * losses[:100].max())),
    }


def google(facts: Facts, folder: Path) -> tuple[float, float]:
    """Return the goodput that Google's calculator finds in what its recorder would have written, and its seconds."""
    python = peer_environment("goodput-peer", ["ml-goodput-measurement==0.2.3"]) / "python"
    script = Path(__file__).with_name("goodput_peer_job.py")
    command = [str(python), str(script), str(folder)]
    done = subprocess.run(command, input=json.dumps(entries_of(facts)), capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["goodput"] / 100, answer["seconds"]


def entries_of(facts: Facts) -> list[dict[str, object]]:
    """The entries of Google's recorder: starts of the job, of the accelerators and of steps, saves and evaluations."""
    entries: list[tuple[float, dict[str, object]]] = []

    def record(moment: float, **entry: object) -> None:
        entries.append((moment, {"job_name": "job", **entry}))

    for attempt in facts.attempts:
        [columns] = attempt.columns
        begun = EPOCH + (attempt.start or 0.0)
        record(begun, job_start_time=begun)
        record(begun, tpu_init_start_time=begun)
        ready = EPOCH + float(columns.times[0]) - STEP
        record(ready, tpu_init_end_time=ready)
        # A step begins where the pauses after the one before it end.
        pauses = {span.step: EPOCH + span.end for span in (*attempt.saves, *attempt.evaluations)}
        before = ready
        for number, ended in zip(columns.steps.tolist(), columns.times.tolist(), strict=True):
            record(before, step_count=number, step_start_time=before)
            before = pauses.get(number, EPOCH + ended)
        for kind, spans in (("save", attempt.saves), ("evaluation", attempt.evaluations)):
            for span in spans:
                start, end = EPOCH + span.start, EPOCH + span.end
                record(start, custom_badput_event_type=kind, custom_badput_event_start_time=start)
                record(end, custom_badput_event_type=kind, custom_badput_event_end_time=end)
    ended = EPOCH + (facts.attempts[-1].end or 0.0)
    record(ended, job_end_time=ended)
    return [entry for _, entry in sorted(entries, key=lambda one: one[0])]


def ledger_figures(steps: int, folder: Path) -> list[Figure]:
    """Time the ledger of one job and compare it with the right one; Google's calculator gets fewer steps."""
    facts, expected = scripted(steps)
    took = []
    for _ in range(3):
        began = time.perf_counter()
        ledger = ledger_of(facts)
        took.append(time.perf_counter() - began)
    off = max(abs(ledger.buckets[name] - expected[name]) for name in BUCKETS) / ledger.wall_seconds
    fewer, right = scripted(PEER_STEPS)
    began = time.perf_counter()
    own = ledger_of(fewer)
    own_took = time.perf_counter() - began
    theirs, their_took = google(fewer, folder)
    whole = sum(right.values())
    assert own.goodput is not None
    return [
        _figure(f"ledger of {steps:,} steps", "s", float(np.median(took)), 1.0),
        _figure("largest error of a bucket, scripted faults", "share of the wall time", off, 0.001),
        Figure(
            figure=f"seconds for a job of {PEER_STEPS:,} steps",
            unit="s",
            lens=own_took,
            peer=their_took,
            peer_name="ml-goodput-measurement",
            ratio=their_took / own_took,
        ),
        Figure(
            figure="goodput of that job, off by",
            unit="percentage points",
            lens=100 * abs(own.goodput - right["productive"] / whole),
            peer=100 * abs(theirs - right["productive"] / whole),
            peer_name="ml-goodput-measurement",
        ),
    ]


def fleet_figure(jobs: int, folder: Path) -> Figure:
    """Time the questions about all jobs."""
    books = fleet_of(folder / "fleet.sqlite3", jobs, 30)
    took = []
    for by in ("cause", "framework", "name"):
        began = time.perf_counter()
        books.answer(int(time.time() // 86400) - 30, by)
        took.append(time.perf_counter() - began)
    books.close()
    return _figure(f"sums of {jobs:,} jobs over 30 days", "s", float(np.median(took)), 0.3)


def spike_rules() -> dict[str, bool]:
    """Run our rules and others' on BLOOM's spike; whether each sees it."""
    losses = np.concatenate([np.random.default_rng(0).normal(2.218, 0.015, 100), BLOOM, np.full(40, 2.25)])
    iterations = np.arange(1000, 1000 + len(losses))
    norms = np.concatenate([np.full(100, 0.236), BLOOM_NORMS, np.full(len(losses) - 106, 0.3)])
    points = [Points(iterations, 106.0 * np.arange(len(losses)), values) for values in (losses, norms)]
    ours = {f"Lens: {one.type}, at loss {one.iteration - 1099} of nine": True for one in find_spikes(*points)}
    return {**ours, **other_rules(losses)}


def main() -> None:
    """Measure, and print a line for each figure."""
    chosen = options(__doc__ or "")
    steps, jobs = (100_000, 1_000) if chosen.quick else (1_000_000, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        figures = [*ledger_figures(steps, Path(folder)), fleet_figure(jobs, Path(folder))]
    seen = spike_rules()
    report(figures, as_json=chosen.json)
    if chosen.json:
        print(json.dumps({"figure": "rules on BLOOM's spike", "sees": seen}))
        return
    print("BLOOM's spike:")
    for rule, sees in seen.items():
        print(f"  {rule}: {'sees it' if sees else 'silent'}")


def _figure(name: str, unit: str, value: float, goal: float) -> Figure:
    return Figure(figure=name, unit=unit, lens=value, goal=f"<= {goal:g}", holds=value <= goal)


if __name__ == "__main__":
    main()
