"""Names the plugin whose code held the event loop, from the stack that was taken meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ..base.self_metrics import SelfMetrics
from ..plugin_host.host import PluginHost
from ..plugin_host.loading import Plugin
from .loop_watch import THRESHOLD_SECONDS, HeldFrame, LoopHold

logger = logging.getLogger("lens.blame")

_LOG_AT_MOST_EVERY_SECONDS = 5.0
_MAX_FRAMES = 40
_OWN_PACKAGES = {"lens_core", "lens_plugins"}


class Blocker(msgspec.Struct, kw_only=True):
    """A plugin whose function has held the event loop: how often, how long all in all, longest and last."""

    plugin: str
    distribution: str
    function: str
    times: int = 0
    seconds: float = 0.0
    longest_seconds: float = 0.0
    last_at: float = 0.0

    def __str__(self) -> str:
        return f"plugin {self.distribution}: {self.function} blocked the event loop for {self.longest_seconds:.1f} s"


class Blame:
    """Counts the holds of each plugin's functions and logs them."""

    def __init__(self, host: PluginHost, metrics: SelfMetrics) -> None:
        self._host = host
        self._metrics = metrics
        self._blockers: dict[tuple[str, str], Blocker] = {}
        self._logged_at: dict[str, float] = {}

    def record_hold(self, hold: LoopHold) -> None:
        """Count a hold for the plugin whose code is on its stack, if it is a plugin's.

        On a machine that gives the thread no processor any code seems to hold the loop: that time is nobody's.
        """
        seconds = hold.own_seconds
        if hold.is_idle or seconds < THRESHOLD_SECONDS:
            return
        found = self.owner(hold)
        if found is None:
            return
        plugin, function = found
        blocker = self._blockers.get((plugin.name, function))
        if blocker is None:
            blocker = Blocker(plugin=plugin.name, distribution=plugin.origin, function=function)
            self._blockers[plugin.name, function] = blocker
        blocker.times += 1
        blocker.seconds = round(blocker.seconds + seconds, 3)
        blocker.longest_seconds = max(blocker.longest_seconds, seconds)
        blocker.last_at = time.time()
        self._metrics.plugin_blocked.labels(plugin.name).inc(seconds)
        now = time.monotonic()
        if now - self._logged_at.get(plugin.name, float("-inf")) >= _LOG_AT_MOST_EVERY_SECONDS:
            self._logged_at[plugin.name] = now
            logger.warning("plugin %s: %s blocked the event loop for %.1f s", plugin.origin, function, seconds)

    def blockers(self) -> Sequence[Blocker]:
        """The plugins that held the loop, the worst first."""
        return sorted(self._blockers.values(), key=lambda one: -one.longest_seconds)

    def describe_tasks(self, loop: asyncio.AbstractEventLoop | None) -> str:
        """Describe the tasks of a loop that still wait in a plugin's code; safe in other threads."""
        if loop is None:
            return "none"
        found = []
        for task in asyncio.all_tasks(loop):
            frames = coroutine_frames(task.get_coro())
            owner = self.owner(LoopHold(began_at=0.0, seconds=0.0, stack=frames))
            if owner is not None:
                plugin, function = owner
                found.append(f"plugin {plugin.origin}: {function}, which waits in {frames[0]}")
        return "; ".join(sorted(found)) or "none of a plugin's"

    def owner(self, hold: LoopHold) -> tuple[Plugin, str] | None:
        """The plugin whose code is nearest to what held the loop, and its function that the host had called."""
        packages = [(package, plugin) for plugin in self._host.loaded() for package in _packages(plugin)]
        packages.sort(key=lambda pair: -len(pair[0]))
        owners = [next((owner for name, owner in packages if _is_in(frame.module, name)), None) for frame in hold.stack]
        nearest = next((owner for owner in owners if owner is not None), None)
        if nearest is None:
            return None
        frames = [frame for frame, owner in zip(hold.stack, owners, strict=True) if owner is nearest]
        return nearest, frames[-1].function


def coroutine_frames(coroutine: Any) -> list[HeldFrame]:
    """Return the frames of a coroutine that waits, the innermost first."""
    frames: list[HeldFrame] = []
    while coroutine is not None and len(frames) < _MAX_FRAMES:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            frames.append(HeldFrame(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name, module))
        measured = getattr(coroutine, "gi_frame", None)  # a call that is measured step by step
        inside = measured.f_locals.get("self") if measured is not None else None
        coroutine = getattr(inside, "asked", None) if inside is not None else getattr(coroutine, "cr_await", None)
    return frames[::-1]


def _packages(plugin: Plugin) -> set[str]:
    """The modules that are a plugin's: those it names, and all of its own distribution's package."""
    modules = {plugin.module, *(one.__module__ for one in plugin.classes)} - {""}
    whole = {module.split(".")[0] for module in modules} - _OWN_PACKAGES
    return modules if plugin.is_built_in else modules | whole


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")
