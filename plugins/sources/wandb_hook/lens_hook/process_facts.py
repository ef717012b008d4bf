"""Facts about this process that do not change: its start, and its place among the ranks of its job.

Read once for each process, from `/proc` and the variables that launchers set. No device is asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from .settings import integer

_NODES = ("GROUP_WORLD_SIZE", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "PET_NNODES")
_LOCAL = (
    "LOCAL_WORLD_SIZE",
    "SLURM_NTASKS_PER_NODE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "PET_NPROC_PER_NODE",
)
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
_START_FIELD = 19  # of /proc/self/stat, counted after the name of the process: ticks since the machine's start


def process_facts(environment: Mapping[str, str]) -> dict[str, float | int | str]:
    """Return the known ones of: started_at, world_size, local_world_size, nodes, visible_gpus, restart_count, run."""
    world = integer(environment, "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    local = integer(environment, *_LOCAL)
    nodes = integer(environment, *_NODES)
    if nodes is None and world and local and world % local == 0:
        nodes = world // local
    found = {
        "started_at": started_at(),
        "world_size": world,
        "local_world_size": local,
        "nodes": nodes,
        "visible_gpus": _visible_gpus(environment),
        "restart_count": integer(environment, "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"),
        "run": environment.get("TORCHELASTIC_RUN_ID", "").strip()[:200] or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def started_at() -> float | None:
    """Return the start of this process, in seconds since the epoch; None where the system does not say it."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[_START_FIELD])
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        age = uptime - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return round(time.time() - age, 3) if 0.0 <= age <= uptime else None


def _visible_gpus(environment: Mapping[str, str]) -> int | None:
    """Count the devices that a launcher or a scheduler lets this process see; None where nobody said it."""
    for variable in _VISIBLE:
        if variable in environment:
            names = [name.strip() for name in environment[variable].split(",")]
            count = 0
            for name in names:  # a number, or a device's UUID; what follows anything else is not seen
                if not name.isdigit() and not name.startswith(("GPU-", "MIG-")):
                    break
                count += 1
            return count
    return None
