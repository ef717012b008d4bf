"""Measures the calls into components: how long each takes, and by how much the daemon's memory grows while they run.

Memory is read before and after each step that a component's coroutine makes in the event loop, so that what others do
while it waits is not counted for it. What a call allocates in threads of its own is not seen; a component with a
process of its own (`isolate: true`) shows all of its memory.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from ..base.self_metrics import SelfMetrics

logger = logging.getLogger("lens.memory")

T = TypeVar("T")
MEBIBYTE = 1024 * 1024
# The daemon's memory has to grow by so much before anybody is named, and by half again before it is said again.
SUSPICIOUS_BYTES = 256 * MEBIBYTE
_AGAIN = 1.5
# Of that growth, the share that one component must have.
_SHARE = 0.5


class MemoryGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """A component in whose calls most of the daemon's growth happened."""

    component: str
    distribution: str
    function: str
    grown_bytes: int
    calls: int

    def __str__(self) -> str:
        grown = f"{self.grown_bytes / MEBIBYTE:,.0f} MiB"
        return f"plugin {self.distribution}: {self.function} of {self.component} grew the daemon's memory by {grown}"


class CallMeter:
    """Measures the calls of one function of one component."""

    def __init__(
        self,
        component: str,
        function: str,
        distribution: str,
        metrics: SelfMetrics,
        read_memory: Callable[[], int] | None = None,
    ) -> None:
        self.component = component
        self.function = function
        self.distribution = distribution
        self.calls = 0
        self.grown_bytes = 0
        self._read_memory = read_memory or memory_bytes
        self._seconds = metrics.call_seconds.labels(component)
        self._grown = metrics.memory_growth.labels(component)

    async def measure(self, asked: Coroutine[Any, Any, T]) -> T:
        """Return or raise what the call does."""
        began = time.perf_counter()
        try:
            return await _Stepped(asked, self)
        finally:
            self.calls += 1
            self._seconds.observe(time.perf_counter() - began)
            self._grown.set(self.grown_bytes)

    def read_memory(self) -> int:
        """Return the memory of this process."""
        return self._read_memory()


class _Stepped(Generic[T]):
    """Awaits a coroutine step by step."""

    def __init__(self, asked: Coroutine[Any, Any, T], meter: CallMeter) -> None:
        self.asked = asked
        self._meter = meter

    def __await__(self) -> Generator[Any, Any, T]:
        meter, error = self._meter, None
        while True:
            before = meter.read_memory()
            try:
                waits_for = self.asked.send(None) if error is None else self.asked.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                meter.grown_bytes += meter.read_memory() - before
            error = None
            try:
                yield waits_for
            except BaseException as raised:  # noqa: BLE001 - a cancellation, too, is the coroutine's to see
                error = raised


class MemoryWatch:
    """Compares the daemon's memory with what it was at first, and names the component in whose calls it grew."""

    def __init__(self, metrics: SelfMetrics, read_memory: Callable[[], int] | None = None) -> None:
        self._metrics = metrics
        self._read_memory = read_memory or memory_bytes
        self._least = 0
        self._said: dict[str, float] = {}
        self.meters: dict[str, CallMeter] = {}
        self.growth: dict[str, MemoryGrowth] = {}

    def meter(self, component: str, function: str, distribution: str) -> CallMeter:
        """Return the meter of a component; after a reload it goes on counting."""
        found = self.meters.get(component)
        if found is None or (found.function, found.distribution) != (function, distribution):
            found = CallMeter(component, function, distribution, self._metrics, self._read_memory)
            self.meters[component] = found
        return found

    def check_memory(self) -> None:
        """Look once; what is found is logged and stays in `growth`."""
        now = self._read_memory()
        self._least = min(self._least or now, now)
        grown = now - self._least
        if grown < SUSPICIOUS_BYTES or not self.meters:
            return
        worst = max(self.meters.values(), key=lambda meter: meter.grown_bytes)
        if worst.grown_bytes < grown * _SHARE or grown < self._said.get(worst.component, 0.0) * _AGAIN:
            return
        self._said[worst.component] = grown
        found = self.growth[worst.component] = MemoryGrowth(
            component=worst.component,
            distribution=worst.distribution,
            function=worst.function,
            grown_bytes=min(worst.grown_bytes, grown),
            calls=worst.calls,
        )
        logger.warning("%s in %d calls", found, found.calls)

    def found(self) -> Iterable[MemoryGrowth]:
        """Return what was found so far, the worst first."""
        return sorted(self.growth.values(), key=lambda one: -one.grown_bytes)


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@functools.cache
def _statm(pid: int) -> int | None:
    """Open the figures of this process; its own, even if it was forked from one that has read them before."""
    try:
        return os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not on this system
        return None


def memory_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell."""
    file = _statm(os.getpid())
    return 0 if file is None else int(os.pread(file, 128, 0).split()[1]) * _PAGE_BYTES
