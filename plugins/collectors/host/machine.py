"""Samples of the machine and of the training processes on it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, NamedTuple

import msgspec
import psutil
from msgspec import Meta


class HostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the host collector.

    `node`: the machine's name; NODE_NAME or the host name when left out. `tags`: on every metric. `disks`, `network`,
    `gpus`, `processes`: what is looked at besides processors and memory. `interfaces`, `mounts`: only those that match
    one of these patterns (* and ?). `max_processes`: of the training processes (those with RANK and WORLD_SIZE in
    their environment, and those that use a GPU) at most so many. `kernel_log`: where the kernel's messages about errors
    of GPUs are read, /dev/kmsg; '' for nowhere.
    """

    node: str = ""
    tags: dict[str, str] = {}
    disks: bool = True
    network: bool = True
    gpus: bool = True
    processes: bool = True
    interfaces: list[str] = msgspec.field(default_factory=lambda: ["*"])
    mounts: list[str] = msgspec.field(default_factory=lambda: ["*"])
    max_processes: Annotated[int, Meta(ge=0)] = 64
    kernel_log: str = "/dev/kmsg"


class Value(NamedTuple):
    """One value; None is "no data"."""

    name: str
    value: float | None
    tags: tuple[tuple[str, str], ...] = ()


class Rates:
    """Turns counters into rates per second; a counter that was seen once, or that began anew, has none yet."""

    def __init__(self) -> None:
        self._before: dict[tuple[object, ...], tuple[float, float]] = {}
        self._now: dict[tuple[object, ...], tuple[float, float]] = {}

    def rate(self, key: tuple[object, ...], counter: float, at: float) -> float | None:
        """The counter's growth per second since the last round."""
        self._now[key] = (counter, at)
        before = self._before.get(key)
        if before is None or at <= before[1] or counter < before[0]:
            return None
        return (counter - before[0]) / (at - before[1])

    def next_round(self) -> None:
        """Forget counters that were not seen in this round."""
        self._before, self._now = self._now, {}


# File systems that hold nothing of their own.
_UNREAL = frozenset(("squashfs", "overlay", "tmpfs", "devtmpfs", "proc", "sysfs", "cgroup2", "iso9660"))


def read_machine(settings: HostSettings, rates: Rates) -> Iterator[Value]:
    """All values of the machine now. A part that this system does not have is left out."""
    yield from _processors(rates)
    yield from _memory()
    if settings.disks:
        yield from _mounts(settings)
        yield from _devices(rates)
    if settings.network:
        yield from _network(settings, rates)


def _processors(rates: Rates) -> Iterator[Value]:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Guest time is part of user time.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    now = time.monotonic()
    idle_rate = rates.rate(("idle",), idle, now)
    total_rate = rates.rate(("total",), total, now)
    used = None if idle_rate is None or not total_rate else 100.0 * min(1.0, max(0.0, 1 - idle_rate / total_rate))
    yield Value("host.cpu.used_pct", used)
    yield Value("host.cpu.count", float(psutil.cpu_count() or 0) or None)
    for minutes, load in zip((1, 5, 15), os.getloadavg(), strict=True):
        yield Value("host.cpu.load", load, (("minutes", str(minutes)),))


def _memory() -> Iterator[Value]:
    memory = psutil.virtual_memory()
    yield Value("host.memory.total_bytes", float(memory.total))
    yield Value("host.memory.available_bytes", float(memory.available))
    yield Value("host.memory.used_pct", float(memory.percent))
    swap = psutil.swap_memory()
    yield Value("host.swap.used_bytes", float(swap.used))


def _mounts(settings: HostSettings) -> Iterator[Value]:
    seen: set[str] = set()
    for partition in psutil.disk_partitions(all=False):
        wanted = any(fnmatchcase(partition.mountpoint, pattern) for pattern in settings.mounts)
        if partition.fstype in _UNREAL or partition.device in seen or not wanted:
            continue
        seen.add(partition.device)
        try:
            usage = psutil.disk_usage(partition.mountpoint)
        except OSError:
            continue  # a mount that this user may not look into, or that is gone: it has no data
        tags = (("mount", partition.mountpoint),)
        yield Value("host.disk.total_bytes", float(usage.total), tags)
        yield Value("host.disk.free_bytes", float(usage.free), tags)
        yield Value("host.disk.used_pct", float(usage.percent), tags)


def _devices(rates: Rates) -> Iterator[Value]:
    now = time.monotonic()
    for device, counters in (psutil.disk_io_counters(perdisk=True, nowrap=False) or {}).items():
        if device.startswith(("loop", "ram")):
            continue
        tags = (("device", device),)
        for name, counter in (("read", counters.read_bytes), ("written", counters.write_bytes)):
            rate = rates.rate((device, name), counter, now)
            yield Value(f"host.disk.{name}_bytes_per_second", rate, tags)


def _network(settings: HostSettings, rates: Rates) -> Iterator[Value]:
    now = time.monotonic()
    for interface, counters in psutil.net_io_counters(pernic=True, nowrap=False).items():
        if interface == "lo" or not any(fnmatchcase(interface, pattern) for pattern in settings.interfaces):
            continue
        tags = (("interface", interface),)
        found = {
            "received_bytes": counters.bytes_recv,
            "sent_bytes": counters.bytes_sent,
            "errors": counters.errin + counters.errout,
            "dropped_packets": counters.dropin + counters.dropout,
        }
        for name, counter in found.items():
            rate = rates.rate((interface, name), counter, now)
            yield Value(f"host.network.{name}_per_second", rate, tags)


_MARKS = ("RANK", "WORLD_SIZE")


class Processes:
    """Finds training processes; who has been looked at once is remembered, so that environments are read once."""

    def __init__(self, max_processes: int) -> None:
        self._max = max_processes
        self._known: dict[tuple[int, float], Mapping[str, str] | None] = {}

    def read_processes(self, gpu_bytes: Mapping[int, float], rates: Rates) -> Iterator[Value]:
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
                yield from _process_values(process, key, marks or {}, gpu_bytes.get(process.pid), rates)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        self._known = present
        yield Value("host.training_processes", float(count))


def _marks_of(process: psutil.Process) -> Mapping[str, str] | None:
    """Return the marks in its environment of its place in a job; None when there are none."""
    try:
        environ = process.environ()
    except (psutil.AccessDenied, psutil.ZombieProcess, OSError):
        return None
    if not all(name in environ for name in _MARKS):
        return None
    return {name: environ[name] for name in ("RANK", "LOCAL_RANK") if environ.get(name, "").isdigit()}


def _process_values(
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
