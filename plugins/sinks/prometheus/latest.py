"""The latest value of every training series, for a Prometheus that scrapes: bounded in number and in age."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lens_core.self_metrics import SelfMetrics

from .names import PREFIX
from .training import Point

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
LAST_UPDATE = f"{PREFIX}last_update_timestamp_seconds"


class _Held(NamedTuple):
    point: Point
    seen_at: float


class LatestValues:
    """Holds at most `max_series`; one that was not renewed for `expire_seconds` is forgotten.

    A new series is refused when it is full: those that are there stay complete. `clock` is monotonic.
    """

    def __init__(
        self,
        max_series: int,
        expire_seconds: float,
        metrics: SelfMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_series = max_series
        self._expire_seconds = expire_seconds
        self._metrics = metrics
        self._clock = clock
        self._held: dict[bytes, _Held] = {}
        self._swept_at = clock()

    def take(self, points: Iterable[Point]) -> None:
        """Remember these points; an older one never replaces a newer one."""
        now = self._clock()
        for point in points:
            held = self._held.get(point.slot)
            if held is None and len(self._held) >= self._max_series:
                self._sweep(now)
                if len(self._held) >= self._max_series:
                    self._metrics.scrape_refused.inc()
                    continue
            if held is None or held.point.stamp <= point.stamp:
                self._held[point.slot] = _Held(point, now)
        self._metrics.scrape_series.set(len(self._held))

    def _sweep(self, now: float) -> None:
        """Forget what is too old; at most once a second, because a full table asks for it with every new series."""
        if now - self._swept_at < 1.0:
            return
        self._swept_at = now
        self._held = {slot: held for slot, held in self._held.items() if now - held.seen_at < self._expire_seconds}

    def exposition(self) -> bytes:
        """All values in the text format, by name; and when the newest of them was."""
        self._swept_at = -math.inf
        self._sweep(self._clock())
        self._metrics.scrape_series.set(len(self._held))
        lines: list[str] = []
        name = ""
        for point in sorted((held.point for held in self._held.values()), key=lambda point: point.series):
            if point.series.name != name:
                name = point.series.name
                lines.append(f"# TYPE {name} gauge")
            lines.append(f"{name}{point.series.text} {_number(point.value)}")
        newest = max((held.point.stamp for held in self._held.values()), default=None)
        if newest is not None:
            lines += [f"# TYPE {LAST_UPDATE} gauge", f"{LAST_UPDATE} {newest / 1000}"]
        return "".join(f"{line}\n" for line in lines).encode()


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
