"""An ordinary training script: it knows wandb and nothing of Lens. `lens demo` runs it under `lens run`."""

from __future__ import annotations

import os
import sys
import time

from .network import training_steps


def main(seconds: float) -> int:
    """Train for so many seconds; returns the number of steps logged."""
    import wandb

    steps = 0
    ends = time.monotonic() + seconds
    with wandb.init(project="lens-demo", config={"width": 32, "batch_size": 64, "framework": "none"}) as run:
        started = time.perf_counter()
        for metrics in training_steps(seed=os.getpid()):
            took = time.perf_counter() - started
            run.log({**metrics, "samples_per_second": 64 / took if took else 0.0})
            steps += 1
            if time.monotonic() > ends:
                return steps
            # A pause as a real step would take, so that the demo leaves the machine alone.
            time.sleep(0.02)
            started = time.perf_counter()
    return steps


if __name__ == "__main__":
    sys.stdout.write(f"{main(float(sys.argv[1]))}\n")
