"""Processors, memory, disks and network by psutil."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase

import psutil

from .sample import Rates, Value
from .settings import HostSettings

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
