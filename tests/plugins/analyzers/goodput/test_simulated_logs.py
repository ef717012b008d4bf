"""Logs of simulated jobs in several formats: the ledger of each is the one that its script says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.goodput.facts import Ledger
from lens_plugins.analyzers.goodput.log_file import ledger_of_log

from tests.generated import examples
from tests.plugins.analyzers.goodput.test_command import BEGIN
from tests.plugins.analyzers.goodput.test_command import step as megatron_step

EPOCH = 1_700_000_000.0


def megatron(step: int, total: int) -> str:
    return (
        f" iteration {step:8}/{total:8} | consumed samples: {step * 512:12} | elapsed time per iteration (ms): 1000.0 |"
        f" learning rate: 3.000E-04 | global batch size:   512 | lm loss: 2.5{step % 10}E+00 | grad norm: 0.24 |"
    )


FORMATS = {
    "megatron": (
        megatron,
        (
            "saving checkpoint at iteration {:7d} to ckpt",
            "  successfully saved checkpoint from iteration {:7d} to ckpt",
        ),
        "Evaluating on 3200 samples",
        "  successfully loaded checkpoint from ckpt at iteration {}",
    ),
    "plain": (
        lambda step, total: f"Step: {step}/{total}, Loss: 2.5{step % 10}, Learning rate: 3.00000e-04",
        ("Writing checkpoint ckpt/{}.pt at step {}", "Saved checkpoint to ckpt/{}.pt at step {}"),
        "Starting evaluation",
        "successfully loaded checkpoint from ckpt/iter_{:07d}",
    ),
}


@dataclass
class Simulation:
    """A job whose log is written while its time goes by; `right` is where that went."""

    style: str
    pace: float
    every: int
    total: int
    time: float = 0.0
    lines: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    right: dict[str, float] = field(default_factory=dict)

    def print_line(self, text: str) -> None:
        self.lines.append(text)
        self.times.append(EPOCH + self.time)

    def spend(self, bucket: str, seconds: float) -> None:
        self.time += seconds
        self.right[bucket] = self.right.get(bucket, 0.0) + seconds

    def attempt(
        self, first: int, last: int, startup: float, save: tuple[int, float], evaluation: tuple[int, float]
    ) -> None:
        """Steps `first` to `last`; after each K steps a save, an evaluation, of so many seconds."""
        row, saves, evaluates, loads = FORMATS[self.style]
        self.print_line("INFO: [default] Starting worker group")
        self.spend("startup", startup)
        if first > 1:
            self.print_line(loads.format(first - 1))
        for step in range(first, last + 1):
            self.spend("productive", self.pace)
            if step % self.every == 0:
                self.print_line(row(step, self.total))
            if step % save[0] == 0 and step < last:
                self.print_line(saves[0].format(step, step))
                self.spend("checkpoint", save[1])
                self.print_line(saves[1].format(step, step))
            if step % evaluation[0] == 0 and step < last:
                self.print_line(evaluates)
                self.spend("evaluation", evaluation[1])

    def fail(self, resumed: int, last: int, tail: float, down: float) -> None:
        """Fail some seconds behind the last step, and let what is done again be lost."""
        self.spend("lost", tail)
        self.print_line("ERROR failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python")
        self.right["productive"] -= (last - resumed) * self.pace
        self.right["lost"] += (last - resumed) * self.pace
        self.spend("down", down)


@st.composite
def simulations(draw: st.DrawFn) -> Simulation:
    pace, every = draw(st.sampled_from([0.5, 2.0, 7.5, 30.0])), draw(st.sampled_from([1, 5, 10]))
    interval = pace * every
    # Pauses are far over the jitter of an interval, and come a whole number of intervals apart.
    save = (every * draw(st.integers(12, 20)), interval * draw(st.floats(0.5, 3)) + 1)
    evaluation = (every * draw(st.integers(14, 30)), interval * draw(st.floats(0.5, 20)) + 5)
    total = every * 400
    job = Simulation(draw(st.sampled_from(sorted(FORMATS))), pace, every, total)
    first = 1
    for _ in range(draw(st.integers(0, 2))):
        last = first - 1 + every * draw(st.integers(30, 60))
        job.attempt(first, last, draw(st.floats(8, 200)), save, evaluation)
        resumed = max((step for step in range(save[0], last, save[0]) if step >= first), default=first - 1)
        job.fail(resumed, last, draw(st.floats(0.1, 0.9)) * min(interval, 20.0), draw(st.floats(10, 600)))
        first = resumed + 1
    job.attempt(first, first - 1 + every * draw(st.integers(30, 60)), draw(st.floats(8, 200)), save, evaluation)
    job.print_line("[after training is done] datetime: 2026-01-01 00:00:00")
    return job


@given(simulations())
@settings(max_examples=examples(25), deadline=None)
def test_the_ledger_of_a_simulated_log_is_the_scripted_one(job: Simulation) -> None:
    lines = [line.encode() for line in job.lines]
    ledger = ledger_of_log(lambda: lines, "train.log", [f"{time}\n" for time in job.times])
    assert ledger.wall_seconds == pytest.approx(job.time, abs=1e-3)
    # An end is known to one logging interval, and the step at which an attempt begins likewise.
    near = 2 * job.pace * job.every * (1 + len(ledger.interruptions)) + 0.01 * job.time
    for bucket, seconds in ledger.buckets.items():
        assert seconds == pytest.approx(job.right.get(bucket, 0.0), abs=near), (bucket, job.right, ledger.buckets)
    for bucket in ("checkpoint", "evaluation", "down"):
        assert ledger.buckets[bucket] == pytest.approx(job.right.get(bucket, 0.0), rel=0.02, abs=1.0), bucket


@given(simulations(), st.randoms(use_true_random=False))
@settings(max_examples=examples(15), deadline=None)
def test_lines_in_any_order_give_the_same_ledger(job: Simulation, shuffled: random.Random) -> None:
    """Lines of one time keep their order, because nothing else tells it."""
    places = {time: shuffled.random() for time in job.times}
    pairs = sorted(zip(job.lines, job.times, strict=True), key=lambda pair: places[pair[1]])

    def ledger(pairs: Sequence[tuple[str, float]]) -> Ledger:
        return ledger_of_log(lambda: [line.encode() for line, _ in pairs], "log", [f"{time}\n" for _, time in pairs])

    assert ledger(pairs) == ledger(list(zip(job.lines, job.times, strict=True)))


def test_a_line_that_mentions_an_old_date_is_no_start() -> None:
    """Also where other lines are out of order."""
    lines = [f"{(BEGIN + timedelta(seconds=10 * at)).isoformat()} {megatron_step(at)}" for at in range(1, 101)]
    lines[40], lines[50] = lines[50], lines[40]
    lines.insert(60, "tokenizer of 2019-01-01 00:00:00 is old")
    ledger = ledger_of_log(lambda: [line.encode() for line in lines], "train.log")
    assert ledger.wall_seconds == 990
    assert ledger.buckets["productive"] == 990
