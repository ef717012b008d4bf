"""A real torch job of several processes on this machine, which hangs where it is told to."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.plugins.sources.wandb_hook.environments import TORCH, environment, write_script

# rank, number of ranks, a file for a line at every step of rank 0, the number that never comes (-1: none), whose data
SCRIPT = r"""
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class Numbers(IterableDataset):
    # Endless numbers; from one of them on, none comes.
    def __init__(self, hang_at: int) -> None:
        self.hang_at = hang_at

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            while number == self.hang_at:
                time.sleep(0.2)
            yield number
            number += 1


def train(rank: int, log: str, hang_at: int) -> None:
    total = torch.zeros(4)
    for step, batch in enumerate(DataLoader(Numbers(hang_at), batch_size=1, num_workers=1)):
        loss = total + batch.sum()
        dist.all_reduce(loss)
        if rank == 0:
            with open(log, "a") as file:
                file.write(f"{time.time()} step {step}\n")
        time.sleep(0.05)


if __name__ == "__main__":
    rank, world, log, hang_at, guilty = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
    dist.init_process_group("gloo", init_method=f"file://{log}.rendezvous", rank=rank, world_size=world)
    train(rank, log, hang_at if str(rank) == guilty else -1)
"""


class RealJob:
    """One that runs: its processes by rank, and what rank 0 has logged."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
        self.processes = processes
        self.log = log

    @property
    def pids(self) -> list[int]:
        """The processes, by rank."""
        return [process.pid for process in self.processes]

    def steps(self) -> list[float]:
        """The time of each step of rank 0."""
        if not self.log.exists():
            return []
        return [float(line.split(" ", 1)[0]) for line in self.log.read_text().splitlines()]


@contextmanager
def real_job(
    work: Path, *, world: int = 4, hang_at: int = -1, guilty: int = 2, workload: str = "job"
) -> Iterator[RealJob]:
    """Start the ranks; they are killed at the end."""
    python = environment("torch-2.13.0", TORCH).python
    log = work / "training.txt"
    script = str(write_script(SCRIPT, work))
    processes = [
        subprocess.Popen(
            [python, script, str(rank), str(world), str(log), str(hang_at), str(guilty)],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(work),
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world),
                "WORKLOAD_UID": workload,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for rank in range(world)
    ]
    try:
        yield RealJob(processes, log)
    finally:
        for process in processes:
            os.killpg(process.pid, 9)
            process.wait(timeout=240)
