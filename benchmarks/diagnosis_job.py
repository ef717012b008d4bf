"""The real job that the diagnosis benchmark looks at: ranks that reduce over gloo, and hang where they are told to.

`python diagnosis_job.py RANK WORLD FILE HANG_AT`: rank 0 writes the time of each step; rank 1's HANG_AT never comes.
"""

from __future__ import annotations

import sys
import time

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]


def batch(rank: int, step: int, hang_at: int) -> torch.Tensor:
    """One batch; the one that hangs never comes."""
    while rank == 1 and step == hang_at:
        time.sleep(0.2)
    return torch.full((1024,), float(step))


def train(rank: int, log: str, hang_at: int) -> None:
    """The loop: a step of a tenth of a second."""
    with open(log, "a") as file:
        for step in range(1_000_000):
            total = batch(rank, step, hang_at)
            dist.all_reduce(total)
            if rank == 0:
                file.write(f"{time.time()}\n")
                file.flush()
            time.sleep(0.1)


if __name__ == "__main__":
    rank, world, log, hang_at = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    dist.init_process_group("gloo", init_method=f"file://{log}.rendezvous", rank=rank, world_size=world)
    train(rank, log, hang_at)
