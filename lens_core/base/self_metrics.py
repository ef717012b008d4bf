"""Lens' own metrics. Names are API; a test compares them with the documentation. Those of plugins are with them.

The seeds' counters have no `_total` in their names; prometheus-client would add it, so they are exposed by a
collector of our own (`SeedCounter`). Labels are bounded: never a workload, a run or a pattern's text.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import Metric

CALL_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
CONFIDENCE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

OwnMetric = TypeVar("OwnMetric", Counter, Gauge, Histogram)
Group = TypeVar("Group", bound="MetricGroup")
_OWN_NAME = re.compile("[a-z][a-z0-9_]{0,99}")


class OwnValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a metric that a plugin has announced in another process."""

    name: str
    kind: Literal["counter", "gauge"]
    documentation: str
    labels: dict[str, str]
    value: float

    @property
    def key(self) -> tuple[str, ...]:
        """The metric with its labels."""
        return (self.name, *self.labels.values())


class SeedCounter:
    """A counter that is exposed under exactly its name, as the seeds' dashboards expect it."""

    def __init__(self, name: str, documentation: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self.name = name
        self._documentation = documentation
        self._labels = labels
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}
        self._lock = Lock()
        registry.register(self)

    def inc(self, amount: float = 1.0, **labels: str) -> None:
        """Add `amount` to the child with these labels; all labels must be given."""
        key = tuple(labels[label] for label in self._labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + amount

    def value(self, **labels: str) -> float:
        """Return the current value of the child with these labels."""
        return self._values.get(tuple(labels[label] for label in self._labels), 0.0)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        metric = Metric(self.name, self._documentation, "counter")
        with self._lock:
            for key, value in self._values.items():
                metric.add_sample(self.name, dict(zip(self._labels, key, strict=True)), value)
        yield metric


class SelfMetrics:
    """All of Lens' own metrics, in a registry of their own (several daemons may live in one process in tests)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # CPU, memory and open files under everybody's names; on Linux alone
        # The ledgers of this process by component: a reload builds new components, which go on counting in them.
        self.ledgers: dict[str, Any] = {}
        self._seed_counters: list[SeedCounter] = []
        self._groups: dict[type[MetricGroup], Any] = {}
        # Metrics that plugins have announced, and what is wrong with components in their own words.
        self._own: dict[str, Any] = {}
        self.problems: dict[str, str] = {}
        self._define_pipeline()
        self._define_sinks()
        self._define_plugins()
        self._define_logs()
        self._define_detection()
        self._define_directory()
        self._define_collectors()

    def seed(self, name: str, documentation: str, *labels: str) -> SeedCounter:
        """Make a counter that is exposed under exactly its name."""
        counter = SeedCounter(name, documentation, labels, self.registry)
        self._seed_counters.append(counter)
        return counter

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self.registry)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(name, documentation, labels, registry=self.registry)

    def _histogram(self, name: str, documentation: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, documentation, labels, buckets=buckets, registry=self.registry)

    def _define_pipeline(self) -> None:
        self.received = self._counter("lens_records_received_total", "Items that came to a component.", "component")
        self.accepted = self._counter("lens_records_accepted_total", "Items that a component took over.", "component")
        self.recovered = self._counter(
            "lens_records_recovered_total", "Records found undelivered in the spool at start.", "component"
        )
        self.merged = self._counter(
            "lens_records_merged_total", "Items that became part of another's row.", "component"
        )
        self.derived = self._counter("lens_records_derived_total", "Records that detectors made.", "component")
        self.delivered = self._counter("lens_records_delivered_total", "Records that a sink has stored.", "component")
        self.filtered = self._counter(
            "lens_records_filtered_total", "Items that were not for this component.", "component"
        )
        self.dropped = self._counter("lens_records_dropped_total", "Records lost, and why.", "component", "reason")
        self.rejected = self._counter("lens_records_rejected_total", "Items refused, and why.", "component", "reason")

    def _define_sinks(self) -> None:
        self.discarded = self._counter(
            "lens_dead_letters_discarded_total", "Dead letters that made room for newer ones.", "component"
        )
        self.retries = self._counter("lens_sink_retries_total", "Batches that have to be sent again.", "component")
        self.pending = self._gauge(
            "lens_records_pending", "Records in the spool that a sink has not stored.", "component"
        )
        self.spool_bytes = self._gauge("lens_spool_bytes", "Size of a pipeline's spool.", "pipeline")
        self.lag = self._gauge(
            "lens_sink_lag_seconds", "Age of the oldest record that a sink has not stored.", "component"
        )
        self.last_success = self._gauge(
            "lens_sink_last_success_timestamp_seconds", "When a sink last stored something.", "component"
        )
        self.dead_letters = self._gauge(
            "lens_dead_letters", "Records that a sink refused and that are kept.", "component"
        )

    def _define_plugins(self) -> None:
        self.plugin_state = self._gauge(
            "lens_plugin_state", "1 for the state that a plugin is in.", "plugin", "kind", "state"
        )
        self.component_problem = self._gauge(
            "lens_component_problem", "1 while a component says that something is wrong with it.", "component"
        )
        self.component_memory = self._gauge(
            "lens_component_memory_bytes", "Memory of a component with a process of its own.", "component"
        )
        self.memory_growth = self._gauge(
            "lens_component_memory_growth_bytes",
            "By how much the daemon's memory has grown while the code of a component ran in it.",
            "component",
        )
        self.call_seconds = self._histogram(
            "lens_component_call_seconds", "How long calls into a component take.", CALL_BUCKETS, "component"
        )
        self.isolated_restarts = self._counter(
            "lens_isolated_restarts_total", "Times that the process of an isolated component was replaced.", "component"
        )
        self.loop_holds = self._counter(
            "lens_event_loop_holds_total", "Times that the event loop was held over 250 ms."
        )
        self.loop_held_seconds = self._counter(
            "lens_event_loop_held_seconds_total", "How long it was held, all in all."
        )
        self.plugin_blocked = self._counter(
            "lens_plugin_blocked_loop_seconds_total", "How long a plugin's code held the event loop.", "plugin"
        )
        self.plugin_busy = self._counter(
            "lens_plugin_busy_thread_seconds_total",
            "CPU time of single calls of a plugin in threads.",
            "plugin",
        )
        self.http_requests = self._counter("lens_http_requests_total", "Requests answered.", "route", "status")

    def _define_logs(self) -> None:
        self.log_analysis = self.seed("log_analysis_consume_count", "Log lines analysed, by what they gave.", "type")
        self.log_lines_cut = self._counter("lens_log_lines_cut_total", "Log lines of which only a part was looked at.")
        self.detector_overruns = self._counter(
            "lens_detector_overruns_total", "Log lines on which the patterns of a detector took too long.", "detector"
        )
        self.detector_paused = self._gauge(
            "lens_detector_paused", "1 while the slow patterns of a detector are paused.", "detector"
        )
        self.event_stream_create = self.seed("event_stream_create_count", "Event streams made.", "operation")
        self.event_stream_create_errors = self.seed(
            "event_stream_create_error_count", "Event streams not made.", "operation"
        )
        self.workload_event_create = self.seed("workload_event_create_count", "Events stored.", "operation")
        self.workload_event_create_errors = self.seed(
            "workload_event_create_error_count", "Events not stored.", "operation"
        )

    def _define_detection(self) -> None:
        self.framework_detection = self.seed(
            "framework_detection_count", "Opinions on frameworks.", "framework", "method", "source"
        )
        self.framework_detection_confidence = self._histogram(
            "framework_detection_confidence", "Confidence of opinions.", CONFIDENCE_BUCKETS, "framework", "method"
        )
        self.framework_detection_errors = self.seed(
            "framework_detection_errors", "Evidence that could not be read.", "source", "reason"
        )

    def _define_directory(self) -> None:
        self.directory_pods = self._gauge("lens_directory_pods", "Pods that are known.")
        self.directory_devices = self._gauge("lens_directory_devices", "Devices held by a pod.")
        self.directory_age = self._gauge(
            "lens_directory_age_seconds", "Time since a feed last said what there is.", "feed"
        )

    def _define_collectors(self) -> None:
        self.collector_up = self._gauge(
            "lens_collector_up", "1 if the collector's last run succeeded, else 0.", "collector"
        )
        self.collector_duration = self._gauge(
            "lens_collector_duration_seconds", "How long its last run took.", "collector"
        )
        self.collector_last_success = self._gauge(
            "lens_collector_last_success_timestamp_seconds", "When a run last succeeded.", "collector"
        )
        self.collector_runs = self._counter("lens_collector_runs_total", "Runs of the collector.", "collector")
        self.collector_errors = self._counter("lens_collector_errors_total", "Runs that failed.", "collector")
        self.collector_records = self._counter("lens_collector_records_total", "Records that it produced.", "collector")

    def group(self, kind: type[Group]) -> Group:
        """Return a plugin's group of metrics; the first call makes it, so that components and reloads share one."""
        found: Group | None = self._groups.get(kind)
        if found is None:
            found = self._groups[kind] = kind(self)
        return found

    def own(self, kind: type[OwnMetric], name: str, documentation: str, labels: Mapping[str, str]) -> OwnMetric:
        """A plugin's own metric with these labels; announced by the first call. Raises ValueError for a bad name."""
        found = self._own.get(name)
        if found is None:
            if not _OWN_NAME.fullmatch(name) or name.startswith("lens_"):
                raise ValueError(f"{name!r} is no name for a plugin's metric: a-z, 0-9 and _, not beginning with lens_")
            found = self._own[name] = kind(name, documentation, tuple(labels), registry=self.registry)
        if not isinstance(found, kind):
            raise ValueError(f"the metric {name} is a {type(found).__name__.lower()}")
        child: OwnMetric = found.labels(**labels)
        return child

    def own_values(self) -> list[OwnValue]:
        """Return the present values of the counters and gauges that plugins have announced."""
        return [
            OwnValue(
                name=name,
                kind="counter" if isinstance(found, Counter) else "gauge",
                documentation=family.documentation,
                labels=dict(sample.labels),
                value=sample.value,
            )
            for name, found in self._own.items()
            if isinstance(found, Counter | Gauge)
            for family in found.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        ]

    def follow_own(self, value: OwnValue, before: float) -> None:
        """Bring a plugin's own metric up to a value of another process, where it stood at `before` the last time."""
        if value.kind == "gauge":
            self.own(Gauge, value.name, value.documentation, value.labels).set(value.value)
        elif value.value > before:
            self.own(Counter, value.name, value.documentation, value.labels).inc(value.value - before)

    def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus (version 0.0.4)."""
        text = generate_latest(self.registry)
        for counter in self._seed_counters:
            # The library announces a counter as NAME_total whatever its samples are called.
            for word in (b"HELP", b"TYPE"):
                name = counter.name.encode()
                text = text.replace(b"# %b %b_total " % (word, name), b"# %b %b " % (word, name))
        return text


class MetricGroup(ABC):
    """Metrics of one built-in plugin; `SelfMetrics.group` makes them once for a registry."""

    @abstractmethod
    def __init__(self, metrics: SelfMetrics) -> None:
        """Register the metrics in `metrics.registry`."""
