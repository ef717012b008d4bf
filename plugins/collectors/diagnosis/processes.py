"""Finds training processes and reads their stacks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from lens_core import LensError
from lens_core.plugin_api.diagnosis import RankStack, ThreadStack, is_python, own_frames

from .base import NODE_RANK

# Processes of one job agree in these; other jobs on the node differ in one of them.
_JOB = ("WORKLOAD_UID", "POD_UID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")


class Owner(NamedTuple):
    """The owner of a process, by its environment."""

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
    if _parse_ranks(own_job) == (None, None):
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
    return launched or [_make_rank_process(own, _environment(own))]


def _ranks_among(processes: Iterable[psutil.Process], wanted: Mapping[str, str]) -> list[RankProcess]:
    found: dict[int, tuple[psutil.Process, Mapping[str, str]]] = {}
    for process in processes:
        environment = _environment(process)
        if _parse_variable(environment, _RANK) is None and _parse_variable(environment, _LOCAL_RANK) is None:
            continue
        if all(environment.get(name) == value for name, value in wanted.items()) and is_python_process(process):
            found[process.pid] = (process, environment)
    ranks = [
        _make_rank_process(process, env)
        for process, env in found.values()
        if not _is_child_of_rank(process, env, found)
    ]
    return sorted(ranks, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.local_rank or 0, rank.pid))


def by_pids(pids: Sequence[int]) -> list[RankProcess]:
    """These processes, or the ranks that they have started (a launcher's); those that are gone are left out."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            environment = _environment(process)
            below = (
                [] if _parse_ranks(environment) != (None, None) else _ranks_among(process.children(recursive=True), {})
            )
            found += below or [_make_rank_process(process, environment)]
    return found


def children_of(pid: int) -> Iterator[RankProcess]:
    """The Python processes directly below a process, numbered in the order in which they were started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = sorted(psutil.Process(pid).children(), key=lambda child: child.pid)
        for process in children:
            if is_python_process(process):
                yield _make_rank_process(process, _environment(process))


def is_python_process(process: psutil.Process) -> bool:
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
    return parent is not None and _parse_ranks(parent[1]) == _parse_ranks(environment)


def _parse_ranks(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    return _parse_variable(environment, _RANK), _parse_variable(environment, _LOCAL_RANK)


def _make_rank_process(process: psutil.Process, environment: Mapping[str, str]) -> RankProcess:
    return RankProcess(
        process.pid,
        _parse_variable(environment, _RANK),
        _parse_variable(environment, _LOCAL_RANK),
        _parse_variable(environment, _WORLD_SIZE),
        _command(process),
        _owner(environment),
    )


def _owner(environment: Mapping[str, str]) -> Owner:
    names = ("WORKLOAD_UID", "POD_UID", "POD_NAME", "POD_NAMESPACE")
    workload_uid, pod_uid, pod_name, namespace = (environment.get(name, "") for name in names)
    return Owner(workload_uid, pod_uid, pod_name, namespace, _parse_variable(environment, NODE_RANK))


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


def _parse_variable(environment: Mapping[str, str], names: Sequence[str]) -> int | None:
    values = (environment.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit() and len(value) < 10), None)


TIMEOUT_SECONDS = 5.0
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
MAX_THREADS = 64
MAX_FRAMES = 128
# A dump without stopping the process may be torn; it is tried so often before the process is stopped for it.
_TRIES = 2
_PATH_PARTS = 4


class StackError(LensError):
    """The stacks of a process could not be read; says why and what helps."""


def executable() -> str | None:
    """py-spy beside this interpreter, or on the path; None without one."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")


def stack_of(process: RankProcess, *, native: bool = False, may_pause: bool = True) -> RankStack:
    """Return the stack of a rank. `native` frames need the process to be paused for some milliseconds. Never raises."""
    known = RankStack(
        rank=process.rank,
        local_rank=process.local_rank,
        world_size=process.world_size,
        pid=process.pid,
        command=process.command,
    )
    try:
        threads, is_native = _dump_stacks(process.pid, native and may_pause, may_pause)
    except StackError as error:
        return msgspec.structs.replace(known, error=str(error))
    cpu_seconds, io_bytes = _used(process.pid)
    return msgspec.structs.replace(
        known,
        threads=tuple(_thread(thread) for thread in threads),
        mark=_mark(threads[0]["frames"]) if threads else "",
        is_native=is_native,
        cpu_seconds=cpu_seconds,
        io_bytes=io_bytes,
    )


def _dump_stacks(pid: int, native: bool, may_pause: bool) -> tuple[list[dict[str, Any]], bool]:
    attempts = [["--native"]] if native else []
    attempts += [["--nonblocking"]] * _TRIES
    attempts += [[]] if may_pause else []
    error = StackError("py-spy was not run")
    ends = time.monotonic() + TIMEOUT_SECONDS
    for options in attempts:
        if time.monotonic() >= ends:
            break
        try:
            threads = _dump(pid, options, ends - time.monotonic())
        except StackError as problem:
            error = problem
            if not psutil.pid_exists(pid):
                raise StackError("the process has ended") from None
            continue
        if any(thread["frames"] for thread in threads):
            return _main_first(threads, pid), "--native" in options
        error = StackError("no thread has a Python frame")
    raise error


def _dump(pid: int, options: list[str], seconds: float) -> list[dict[str, Any]]:
    program = executable()
    if program is None:
        raise StackError('py-spy is not installed: pip install "lens-agent[stacks]"')
    command = [program, "dump", "--json", "--locals", "--pid", str(pid), *options]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise StackError(f"py-spy took longer than {TIMEOUT_SECONDS:g} s") from None
    except OSError as error:
        raise StackError(f"py-spy cannot be run: {error}") from None
    if done.returncode != 0:
        raise StackError(_words(done.stderr.decode("utf-8", "replace")))
    if len(done.stdout) > MAX_OUTPUT_BYTES:
        raise StackError(f"py-spy answered with {len(done.stdout)} bytes; at most {MAX_OUTPUT_BYTES} are read")
    try:
        found = msgspec.json.decode(done.stdout, type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise StackError(f"py-spy's answer cannot be read: {error}") from None
    return found[:MAX_THREADS]


def _words(error: str) -> str:
    if "ermission" in error or "ptrace" in error.lower():
        return "no permission to read the process: run as the same user, with the capability SYS_PTRACE"
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return f"py-spy: {lines[-1][:200]}" if lines else "py-spy failed without a word"


def _main_first(threads: list[dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    return sorted(
        threads, key=lambda thread: (thread.get("os_thread_id") != pid, thread.get("thread_name") != "MainThread")
    )


def _thread(thread: dict[str, Any]) -> ThreadStack:
    frames = tuple(_frame(frame) for frame in thread["frames"][:MAX_FRAMES])
    return ThreadStack(thread.get("thread_name") or str(thread.get("os_thread_id", "")), frames)


def _frame(frame: dict[str, Any]) -> str:
    path = "/".join(Path(str(frame["filename"])).parts[-_PATH_PARTS:]).lstrip("/")
    line = frame.get("line") or 0
    return f"{frame['name']} ({path}:{line})" if line else f"{frame['name']} ({path})"


def _mark(frames: list[dict[str, Any]]) -> str:
    """A hash of where the training's own frames are and of their local variables; '' when they have none."""
    python = [frame for frame in frames if is_python(str(frame["filename"]))]
    texts = tuple(_frame(frame) for frame in python)
    kept = own_frames(texts)
    # Own frames are the outer ones; the innermost that is kept may be a library's, whose variables do not count.
    outer = python[len(python) - len(kept) + (0 if kept == texts else 1) :]
    values = [(v["name"], v.get("addr"), v.get("repr")) for frame in outer for v in frame.get("locals") or ()]
    if not values:
        return ""
    return hashlib.sha256(repr((kept, values)).encode("utf-8", "replace")).hexdigest()[:16]


def _used(pid: int) -> tuple[float, int]:
    """Seconds of CPU and bytes read and written in all the process's life; zeros where that is not told."""
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        io = process.io_counters()
    except (psutil.Error, OSError):
        return 0.0, 0
    return round(times.user + times.system, 2), int(io.read_chars + io.write_chars)
