"""The training processes of this machine: their share of processors and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import psutil

from .sample import Rates, Value

_MARKS = ("RANK", "WORLD_SIZE")


class Processes:
    """Finds training processes; who has been looked at once is remembered, so that environments are read once."""

    def __init__(self, max_processes: int) -> None:
        self._max = max_processes
        self._known: dict[tuple[int, float], Mapping[str, str] | None] = {}

    def read(self, gpu_bytes: Mapping[int, float], rates: Rates) -> Iterator[Value]:
        """Their values now; `gpu_bytes` are those that use a GPU, with their memory there."""
        present: dict[tuple[int, float], Mapping[str, str] | None] = {}
        count = 0
        for process in psutil.process_iter():
            # Processes end while they are looked at, and others' may not be looked at.
            try:
                key = (process.pid, process.create_time())
                marks = self._known[key] if key in self._known else _marks_of(process)
                present[key] = marks
                if (marks is None and process.pid not in gpu_bytes) or count >= self._max:
                    continue
                count += 1
                yield from _values(process, key, marks or {}, gpu_bytes.get(process.pid), rates)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        self._known = present
        yield Value("host.training_processes", float(count))


def _marks_of(process: psutil.Process) -> Mapping[str, str] | None:
    """What its environment says about its place in a job; None when it has none."""
    try:
        environ = process.environ()
    except (psutil.AccessDenied, psutil.ZombieProcess, OSError):
        return None
    if not all(name in environ for name in _MARKS):
        return None
    return {name: environ[name] for name in ("RANK", "LOCAL_RANK") if environ.get(name, "").isdigit()}


def _values(
    process: psutil.Process,
    key: tuple[int, float],
    marks: Mapping[str, str],
    gpu_bytes: float | None,
    rates: Rates,
) -> Iterator[Value]:
    tags = (("pid", str(process.pid)), *((name.lower(), text) for name, text in marks.items()))
    times = process.cpu_times()
    rate = rates.rate(("process", *key), times.user + times.system, time.monotonic())
    yield Value("process.cpu.used_pct", None if rate is None else 100.0 * rate, tags)
    yield Value("process.memory.rss_bytes", float(process.memory_info().rss), tags)
    yield Value("process.threads", float(process.num_threads()), tags)
    if gpu_bytes is not None:
        yield Value("process.gpu.memory_bytes", gpu_bytes, tags)
