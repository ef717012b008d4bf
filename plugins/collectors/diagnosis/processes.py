"""The processes of this node's ranks: who has a RANK in its environment, the oldest of each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from .data import NODE_RANK

# Processes of one job agree in these; other jobs on the node differ in one of them.
_JOB = ("WORKLOAD_UID", "POD_UID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")


class Owner(NamedTuple):
    """Whose process it is, by its environment."""

    workload_uid: str = ""
    pod_uid: str = ""
    pod_name: str = ""
    namespace: str = ""
    node_rank: int | None = None


class RankProcess(NamedTuple):
    """One rank's process; numbers that nobody said are None."""

    pid: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    command: str
    owner: Owner = Owner()


def find_ranks(own_job: Mapping[str, str] | None = None, limit: int | None = None) -> list[RankProcess]:
    """The ranks that run here: all of the machine, or those of the job whose variables `own_job` are.

    A launcher (that has no rank itself) finds those that it has started. The children of a rank (data loaders)
    inherit its environment; only the first of each line is a rank. A job without ranks is what the caller has
    launched, else the caller itself. Of a job, no process of another user is looked at, nor one of another session
    that does not say that it belongs to this job.
    """
    if own_job is None:
        return (_ranks_among(psutil.process_iter(), {}) or list(children_of(os.getpid())))[:limit]
    if _numbers(own_job) == (None, None):
        below = _ranks_among(psutil.Process().children(recursive=True), {})
        if below:
            return below[:limit]
    wanted = {name: own_job[name] for name in _JOB if own_job.get(name)}
    ranks = _ranks_among(_same_job(psutil.process_iter(), is_named=_names_job(wanted)), wanted)
    return (ranks or _without_ranks())[:limit]


def _names_job(wanted: Mapping[str, str]) -> bool:
    """Whether these variables tell one job from another; an address alone, or torchrun's default id, does not."""
    run_id = wanted.get("TORCHELASTIC_RUN_ID", "none")
    by_address = "MASTER_ADDR" in wanted and "MASTER_PORT" in wanted
    return by_address or run_id != "none" or not wanted.keys().isdisjoint(("WORKLOAD_UID", "POD_UID", "SLURM_JOB_ID"))


def _same_job(processes: Iterable[psutil.Process], *, is_named: bool) -> Iterator[psutil.Process]:
    """Those of this user and this session; of other sessions (torchrun gives each rank one) only of a named job."""
    user, session = os.getuid(), os.getsid(0)
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real == user and (is_named or os.getsid(process.pid) == session):
                yield process


def _without_ranks() -> list[RankProcess]:
    """The programs that this process has launched; its own process if it is the training itself."""
    own = psutil.Process()
    launched = []
    for rank in children_of(own.pid):
        with contextlib.suppress(psutil.Error):
            command = psutil.Process(rank.pid).cmdline()
            # Data loaders and resource trackers: forked, or started by multiprocessing.
            if command != own.cmdline() and not any("multiprocessing" in argument for argument in command):
                launched.append(rank)
    return launched or [_rank(own, _environment(own))]


def _ranks_among(processes: Iterable[psutil.Process], wanted: Mapping[str, str]) -> list[RankProcess]:
    found: dict[int, tuple[psutil.Process, Mapping[str, str]]] = {}
    for process in processes:
        environment = _environment(process)
        if _number(environment, _RANK) is None and _number(environment, _LOCAL_RANK) is None:
            continue
        if all(environment.get(name) == value for name, value in wanted.items()) and is_python(process):
            found[process.pid] = (process, environment)
    ranks = [_rank(process, env) for process, env in found.values() if not _is_child_of_rank(process, env, found)]
    return sorted(ranks, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.local_rank or 0, rank.pid))


def by_pids(pids: Sequence[int]) -> list[RankProcess]:
    """These processes, or the ranks that they have started (a launcher's); those that are gone are left out."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            environment = _environment(process)
            below = [] if _numbers(environment) != (None, None) else _ranks_among(process.children(recursive=True), {})
            found += below or [_rank(process, environment)]
    return found


def children_of(pid: int) -> Iterator[RankProcess]:
    """The Python processes directly below a process, numbered in the order in which they were started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = sorted(psutil.Process(pid).children(), key=lambda child: child.pid)
        for process in children:
            if is_python(process):
                yield _rank(process, _environment(process))


def is_python(process: psutil.Process) -> bool:
    """Whether a process is a Python interpreter."""
    try:
        names = (process.name(), Path(process.exe()).name)
    except (psutil.Error, OSError):
        return False
    return any(name.startswith(("python", "pypy", "pt_main", "torchrun")) for name in names)


def _is_child_of_rank(
    process: psutil.Process,
    environment: Mapping[str, str],
    found: Mapping[int, tuple[psutil.Process, Mapping[str, str]]],
) -> bool:
    try:
        parent = found.get(process.ppid())
    except psutil.Error:
        return True  # it is gone
    return parent is not None and _numbers(parent[1]) == _numbers(environment)


def _numbers(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    return _number(environment, _RANK), _number(environment, _LOCAL_RANK)


def _rank(process: psutil.Process, environment: Mapping[str, str]) -> RankProcess:
    return RankProcess(
        process.pid,
        _number(environment, _RANK),
        _number(environment, _LOCAL_RANK),
        _number(environment, _WORLD_SIZE),
        _command(process),
        _owner(environment),
    )


def _owner(environment: Mapping[str, str]) -> Owner:
    names = ("WORKLOAD_UID", "POD_UID", "POD_NAME", "POD_NAMESPACE")
    workload_uid, pod_uid, pod_name, namespace = (environment.get(name, "") for name in names)
    return Owner(workload_uid, pod_uid, pod_name, namespace, _number(environment, NODE_RANK))


def _command(process: psutil.Process) -> str:
    """The script's name alone: arguments may hold secrets."""
    try:
        arguments = process.cmdline()[1:]
    except (psutil.Error, OSError):
        return ""
    script = next((argument for argument in arguments if not argument.startswith("-")), "")
    return Path(script).name[:100] if script.endswith(".py") else ""


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}  # somebody else's process, or one that has just ended


def _number(environment: Mapping[str, str], names: Sequence[str]) -> int | None:
    values = (environment.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit() and len(value) < 10), None)
