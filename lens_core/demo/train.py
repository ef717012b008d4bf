"""An ordinary training script on two ranks: it knows wandb and print, and nothing of Lens.

`lens demo` runs it under `lens run --log`. Without a rank it is the launcher of its ranks.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

from .faults import Planned, is_finite, plan_for
from .network import make_network
from .ranks import Peer, launch
from .spirals import spirals

SEED = 7
WIDTH = 32
BATCH = 64
STEP_SECONDS = 0.04
LOG_EVERY = 5


class Training:
    """One rank: its share of the points, the same weights as the other rank."""

    def __init__(self, rank: int, peer: Peer, seconds: float) -> None:
        self.rank = rank
        self.peer = peer
        self.plan = Planned(plan_for(seconds))
        self.steps = max(1, int((seconds - self.plan.plan.stall_seconds) / STEP_SECONDS))
        self.network = make_network(WIDTH, random.Random(SEED))
        self.rng = random.Random(SEED + 1 + rank)
        self.points = spirals(2000, self.rng)

    def step(self, number: int, elapsed: float) -> dict[str, float]:
        """One step of both ranks together; what there is to log."""
        batch = self.plan.spoil(self.rng.sample(self.points, BATCH), elapsed)
        gradient, loss, accuracy = self.network.gradient(batch)
        gradient = self.peer.average(gradient)
        rate = 0.6 / (1 + number / 2000)
        if is_finite(gradient):
            self.network.descend(gradient, rate)
        norm = math.sqrt(sum(part * part for part in gradient))
        return {"loss": loss, "accuracy": accuracy, "grad_norm": norm, "learning_rate": rate}

    def save(self, number: int, folder: Path) -> None:
        """A checkpoint, and the lines that say so."""
        file = folder / f"checkpoint-{number}.json"
        print_line(f"Writing checkpoint {file} at step {number}")
        file.write_text(json.dumps(self.network.weights()))
        print_line(f"Saved checkpoint to {file} at step {number}")


def print_line(line: str) -> None:
    """A line of the log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def train(run: Any, training: Training, seconds: float, folder: Path) -> int:
    """Train until the steps are done or the time is over; the number of steps logged."""
    training.peer.average([0.0])  # both begin together, so that what is planted comes at the same step
    began = time.monotonic()
    for number in range(1, training.steps + 1):
        step_began = time.perf_counter()
        elapsed = time.monotonic() - began
        metrics = training.step(number, elapsed)
        if training.rank == 1 and (pause := training.plan.stall_seconds(elapsed)):
            time.sleep(pause)  # the planted stall: the other rank waits for its gradient
        time.sleep(max(0.0, STEP_SECONDS - (time.perf_counter() - step_began)))
        took = time.perf_counter() - step_began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        run.log({**metrics, "samples_per_second": BATCH / took, "memory_used_gb": memory}, step=number)
        if training.rank == 0:
            print_step(training, number, metrics, took, elapsed, folder)
        ends = 1.0 if elapsed > seconds else 0.0
        if training.peer.average([ends])[0]:
            return number
    return training.steps


def print_step(
    training: Training, number: int, metrics: dict[str, float], took: float, elapsed: float, folder: Path
) -> None:
    """Print a step, as the first rank does."""
    if number % LOG_EVERY == 0 or not math.isfinite(metrics["loss"]):
        print_line(
            f"Step: {number}/{training.steps}, Loss: {metrics['loss']:.5f}, "
            f"Learning rate: {metrics['learning_rate']:.5e}, Iteration time: {took:.3f}s"
        )
    if training.plan.is_checkpoint(elapsed):
        training.save(number, folder)


def run_rank(seconds: float, folder: Path) -> int:
    """One rank; returns the exit code."""
    import wandb

    rank = int(os.environ["RANK"])
    config = {"width": WIDTH, "batch_size": BATCH, "seed": SEED, "ranks": 2, "optimizer": "sgd"}
    training = Training(rank, Peer.from_environment(), seconds)
    with wandb.init(project="lens-demo", group="demo", name=f"rank-{rank}", config=config) as run:
        steps = train(run, training, seconds, folder)
    (folder / f"steps-{rank}").write_text(str(steps))
    return 0


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit(launch(sys.argv[1:]))
    sys.exit(run_rank(float(sys.argv[1]), Path(sys.argv[2])))
