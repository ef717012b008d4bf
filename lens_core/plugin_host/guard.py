"""Watching the calls into one component: what it raises is counted and shown, and after many in a row it is paused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from .host import PluginHost
from .info import ComponentKind

logger = logging.getLogger("lens.guard")

PAUSE_AFTER = 20
PAUSE_SECONDS = 60.0


Measure = Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]


class Guard:
    """One component's guard. A paused component is tried again after `pause_seconds`; one success ends the pause.

    `measure` wraps each call of a handler. Sinks are never paused here: the delivery's own backoff waits longer and
    longer, and nothing of theirs may be lost.
    """

    def __init__(
        self,
        host: PluginHost,
        kind: ComponentKind,
        name: str,
        *,
        pauses: bool = True,
        pause_after: int = PAUSE_AFTER,
        pause_seconds: float = PAUSE_SECONDS,
        why_not_started: Callable[[], str] = lambda: "",
        measure: Measure = lambda asked: asked,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.measure = measure
        self._why_not_started = why_not_started
        self._host = host
        self._kind = kind
        self._name = name
        self._pauses = pauses
        self._pause_after = pause_after
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._paused_until = 0.0
        self._in_a_row = 0

    def record_failure(self, error: BaseException) -> None:
        """The component's own code raised."""
        self._in_a_row = self._host.record_failure(self._name, error, kind=self._kind)
        if self._pauses and self._in_a_row >= self._pause_after:
            self._paused_until = self._clock() + self._pause_seconds
            reason = f"failed {self._in_a_row} times in a row; the last time: {type(error).__name__}: {error}"
            self._host.pause(self._name, reason, kind=self._kind)
            logger.error("Paused. %s=%s reason=%s", self._kind, self._name, reason)

    def succeeded(self) -> None:
        """A call went well."""
        if self._in_a_row:
            self._in_a_row = 0
            self._paused_until = 0.0
            self._host.record_success(self._name, kind=self._kind)

    def seconds_paused(self) -> float:
        """The seconds until it may be called again; 0 when it may be."""
        return max(0.0, self._paused_until - self._clock())

    def why_paused(self) -> str:
        """The reason while it is paused or not started, else ''."""
        if reason := self._why_not_started():
            return f"it is not started: {reason}"
        return self._host.paused(self._name, kind=self._kind) if self.seconds_paused() else ""
