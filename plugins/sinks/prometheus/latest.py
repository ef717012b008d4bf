"""The latest value of every training series, for a Prometheus that scrapes: bounded in number and in age."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
from prometheus_client import Counter, Gauge

from lens_core import MetricGroup, SelfMetrics

from .selectors import METRIC_NAME, Selector
from .training import PREFIX, Point, Series

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
LAST_UPDATE = f"{PREFIX}last_update_timestamp_seconds"


class _Held(NamedTuple):
    point: Point
    seen_at: float


class Kept(msgspec.Struct, frozen=True):
    """A value on the disk: text, because JSON has no NaN."""

    labels: dict[str, str]
    slot: bytes
    value: str
    stamp: int
    age_seconds: float


class Snapshot(msgspec.Struct, frozen=True):
    """All of them; `taken_at` in seconds since 1970."""

    taken_at: float = 0.0
    values: list[Kept] = []


class PrometheusMetrics(MetricGroup):
    """Series that the store refused, and those that /federate shows."""

    def __init__(self, metrics: SelfMetrics) -> None:
        self.refused = Counter(
            "lens_prometheus_refused_series_total",
            "Series that the store refused.",
            ["component", "reason"],
            registry=metrics.registry,
        )
        self.federate_series = Gauge("lens_federate_series", "Series held for /federate.", registry=metrics.registry)
        self.federate_refused = Counter(
            "lens_federate_refused_total", "Values over the cap of /federate.", registry=metrics.registry
        )


class LatestValues:
    """Holds at most `max_series`; one that was not renewed for `expire_seconds` is forgotten.

    A new series is refused when it is full: those that are there stay complete. `clock` is monotonic.
    """

    def __init__(
        self,
        max_series: int,
        expire_seconds: float,
        metrics: PrometheusMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_series = max_series
        self._expire_seconds = expire_seconds
        self._metrics = metrics
        self._clock = clock
        self._held: dict[bytes, _Held] = {}
        self._swept_at = clock()
        # Whether there is something that the last snapshot does not hold.
        self.renewed = False

    def update_points(self, points: Iterable[Point]) -> None:
        """Remember these points; an older one never replaces a newer one."""
        now = self._clock()
        for point in points:
            held = self._held.get(point.slot)
            if held is None and len(self._held) >= self._max_series:
                self._sweep(now)
                if len(self._held) >= self._max_series:
                    self._metrics.federate_refused.inc()
                    continue
            if held is None or held.point.stamp <= point.stamp:
                self._held[point.slot] = _Held(point, now)
                self.renewed = True
        self._metrics.federate_series.set(len(self._held))

    def _sweep(self, now: float) -> None:
        """Forget what is too old; at most once a second, because a full table asks for it with every new series."""
        if now - self._swept_at < 1.0:
            return
        self._swept_at = now
        self._held = {slot: held for slot, held in self._held.items() if now - held.seen_at < self._expire_seconds}

    def snapshot(self, wall_time: float) -> Snapshot:
        """Return a snapshot for `restore_snapshot`. May be called in a thread of its own."""
        now = self._clock()
        held = [*self._held.items()]
        return Snapshot(
            wall_time,
            [
                Kept(dict(point.series.labels), slot, repr(point.value), point.stamp, now - seen_at)
                for slot, (point, seen_at) in held
            ],
        )

    def restore_snapshot(self, snapshot: Snapshot, wall_time: float) -> None:
        """Take up what was held before; it is as old as it is, the time in between included."""
        passed = max(0.0, wall_time - snapshot.taken_at)
        for kept in snapshot.values:
            age = kept.age_seconds + passed
            if age < self._expire_seconds and len(self._held) < self._max_series:
                point = Point(Series.from_labels(kept.labels), float(kept.value), kept.stamp, kept.slot)
                self._held.setdefault(kept.slot, _Held(point, self._clock() - age))
        self._metrics.federate_series.set(len(self._held))

    def held_points(self) -> list[Point]:
        """Return the current points, by name."""
        self._swept_at = -math.inf
        self._sweep(self._clock())
        self._metrics.federate_series.set(len(self._held))
        points = [held.point for held in self._held.values()]
        return sorted(points, key=lambda point: (point.series.name, point.series.fields))


def merge_snapshots(points: Sequence[Point], snapshots: Sequence[Snapshot]) -> list[Point]:
    """These points and those of other daemons, by name: of each series the newest, because series change owners."""
    newest = {point.slot: point for point in points}
    for snapshot in snapshots:
        for kept in snapshot.values:
            known = newest.get(kept.slot)
            if known is None or known.stamp < kept.stamp:
                newest[kept.slot] = Point(Series.from_labels(kept.labels), float(kept.value), kept.stamp, kept.slot)
    return sorted(newest.values(), key=lambda point: (point.series.name, point.series.fields))


def exposition(points: Sequence[Point], selected: Selector | None = None) -> bytes:
    """Points (in the order of their names) in the text format, and when the newest of all was."""
    lines: list[str] = []
    name = ""
    for point in points:
        if selected is not None and not selected(point.series.labels):
            continue
        if point.series.name != name:
            name = point.series.name
            lines.append(f"# TYPE {name} gauge")
        lines.append(f"{name}{point.series.text} {_format_value(point.value)}")
    if points and (selected is None or selected({METRIC_NAME: LAST_UPDATE})):
        newest = max(point.stamp for point in points)
        lines += [f"# TYPE {LAST_UPDATE} gauge", f"{LAST_UPDATE} {newest / 1000}"]
    return "".join(f"{line}\n" for line in lines).encode()


def _format_value(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
