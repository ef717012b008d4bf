"""The metrics of the source, and what it drops: exact counts, and the most recent drops with their labels."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import Counter, Gauge

from lens_core import MetricGroup, SelfMetrics

# Labels are looked at for so many drops in a second; the counts are exact whatever happens.
NOTED_PER_SECOND = 100
# Those that a policy of the settings gives; the refusals of the parser come to them.
REASONS = ("negative", "missing_pod_info", "no_workload_found")


class RemoteWriteMetrics(MetricGroup):
    """Counts of the source's requests, series and samples."""

    def __init__(self, metrics: SelfMetrics) -> None:
        def define_counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"lens_remote_write_{name}_total", documentation, labels, registry=metrics.registry)

        self.requests = define_counter("requests", "Requests.", "protocol", "status")
        self.samples = define_counter("samples", "Samples, histograms included.")
        self.series = define_counter("series", "Series passed on, attached to a pod or not.", "result")
        self.known = define_counter("known_series", "Series whose label set was known.")
        self.dropped = define_counter("dropped_samples", "Samples dropped.", "reason")
        self.cached = Gauge("lens_remote_write_cached_series", "Label sets that are known.", registry=metrics.registry)
        for result in ("attached", "unattached"):
            self.series.labels(result)
        for status in ("204", "400", "503"):
            self.requests.labels("1.0", status)


class Drops:
    """Counts samples by reason. Reasons are few and fixed: they are labels of Lens' own metrics."""

    def __init__(self, recent: int, metrics: RemoteWriteMetrics, clock: Callable[[], float] = time.time) -> None:
        self.counts: dict[str, int] = {}
        self._recent: deque[dict[str, Any]] = deque(maxlen=recent)
        self._metric = metrics.dropped
        for reason in REASONS:
            self._metric.labels(reason)
        self._clock = clock
        self._second = 0
        self._noted = 0

    def drop(self, reason: str, samples: int, labels: Callable[[], Mapping[str, str]]) -> None:
        """Count samples of one series; `labels` is called only if there is room to note it."""
        self.counts[reason] = self.counts.get(reason, 0) + samples
        self._metric.labels(reason).inc(samples)
        now = self._clock()
        if int(now) != self._second:
            self._second, self._noted = int(now), 0
        if self._noted < NOTED_PER_SECOND:
            self._noted += 1
            self._recent.append(self._entry(now, reason, samples, dict(labels())))

    def _entry(self, now: float, reason: str, samples: int, labels: dict[str, str]) -> dict[str, Any]:
        return {
            "timestamp": now,
            "metric_name": labels.pop("__name__", ""),
            "labels": labels,
            "reason": reason,
            "sample_count": samples,
        }

    def report(self) -> dict[str, Any]:
        """Return the answer of /remote-write/drops: the newest first."""
        return {"total": sum(self.counts.values()), "by_reason": dict(self.counts), "recent": [*reversed(self._recent)]}
