"""One process's stacks by py-spy: non-blocking first, limited in time and size, killed when it takes too long."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from lens_core import LensError
from lens_core.plugin_api.diagnosis import RankStack, ThreadStack, is_python, own_frames

from .processes import RankProcess

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
    """What a rank does now. `native` frames need the process to be paused for some milliseconds. Never raises."""
    known = RankStack(
        rank=process.rank,
        local_rank=process.local_rank,
        world_size=process.world_size,
        pid=process.pid,
        command=process.command,
    )
    try:
        threads, is_native = _read(process.pid, native and may_pause, may_pause)
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


def _read(pid: int, native: bool, may_pause: bool) -> tuple[list[dict[str, Any]], bool]:
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
