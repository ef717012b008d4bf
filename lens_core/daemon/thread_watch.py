"""Finds threads of plugins that compute without end: they take the interpreter from everybody else."""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import msgspec
import psutil

from ..base.self_metrics import SelfMetrics
from .blame import Blame
from .loop_watch import HeldFrame, LoopHold

logger = logging.getLogger("lens.threads")

# Of the time between two looks, the share that one call has to compute.
BUSY_SHARE = 0.15
_MAX_FRAMES = 60


class BusyThread(msgspec.Struct, kw_only=True):
    """A plugin's function that computes in a thread, without a pause; `last_at` is when it was last seen."""

    plugin: str
    distribution: str
    function: str
    thread: str
    cpu_seconds: float = 0.0
    last_at: float = 0.0

    def __str__(self) -> str:
        return f"plugin {self.distribution}: {self.function} has kept a thread busy for {self.cpu_seconds:.0f} s"


class ThreadWatch:
    """Compares what each thread computes between two looks."""

    def __init__(
        self,
        blame: Blame,
        metrics: SelfMetrics,
        *,
        cpu_seconds: Callable[[], Mapping[int, float]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._blame = blame
        self._metrics = metrics
        self._cpu_seconds = cpu_seconds or thread_cpu_seconds
        self._clock = clock
        self._looked_at = 0.0
        # By thread: the call that it was in, and what the thread had computed by then. The frame itself is kept until
        # the next look: another call could get the address of one that is gone.
        self._before: dict[int, tuple[FrameType, float]] = {}
        self._busy: dict[tuple[str, str, str], BusyThread] = {}

    def check_threads(self) -> None:
        """Look once; the same call that has computed for a good part of the time since the last look is named."""
        now, used = self._clock(), self._cpu_seconds()
        elapsed, self._looked_at = now - self._looked_at, now
        stacks = sys._current_frames()
        before, self._before = self._before, {}
        for thread in threading.enumerate():
            frame, native = stacks.get(thread.ident or 0), thread.native_id or 0
            if frame is None or native not in used or thread is threading.current_thread():
                continue
            frames, calls = _frames(frame)
            found = self._blame.owner(LoopHold(began_at=0.0, seconds=0.0, stack=frames))
            if found is None:
                continue
            plugin, function = found
            call = max(at for at, one in enumerate(frames) if one.function == function)
            self._before[native] = (calls[call], used[native])
            last = before.get(native)
            if last is not None and last[0] is calls[call]:
                computed = used[native] - last[1]
                if computed >= BUSY_SHARE * elapsed:
                    self._record(plugin.name, plugin.origin, function, thread.name, computed)

    def busy(self) -> Sequence[BusyThread]:
        """The threads that were found, the worst first."""
        return sorted(self._busy.values(), key=lambda one: -one.cpu_seconds)

    def _record(self, plugin: str, distribution: str, function: str, thread: str, computed: float) -> None:
        found = self._busy.get((plugin, function, thread))
        is_new = found is None
        if found is None:
            found = BusyThread(plugin=plugin, distribution=distribution, function=function, thread=thread)
            self._busy[plugin, function, thread] = found
        found.cpu_seconds = round(found.cpu_seconds + computed, 3)
        found.last_at = time.time()
        self._metrics.plugin_busy.labels(plugin).inc(computed)
        if is_new:
            logger.warning("%s (thread %s)", found, thread)


def _frames(frame: FrameType | None) -> tuple[list[HeldFrame], list[FrameType]]:
    """The frames of a thread, the innermost first, described and as they are."""
    found: list[HeldFrame] = []
    calls: list[FrameType] = []
    while frame is not None and len(found) < _MAX_FRAMES:
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        found.append(HeldFrame(code.co_filename, frame.f_lineno or 0, code.co_name, module))
        calls.append(frame)
        frame = frame.f_back
    return found, calls


def thread_cpu_seconds() -> Mapping[int, float]:
    """Return the CPU time of each thread of this process by its native number; empty where the system does not tell."""
    try:
        return {one.id: one.user_time + one.system_time for one in _process(os.getpid()).threads()}
    except psutil.Error:
        return {}


@functools.cache
def _process(pid: int) -> psutil.Process:
    """Return a process; to make one takes longer than to read the times of its threads."""
    return psutil.Process(pid)
