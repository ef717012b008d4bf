"""Lens' own metrics as a request of OTLP: what `/metrics` shows to a scraper."""

from __future__ import annotations

import math
import time
from itertools import pairwise

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ScopeMetrics
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

_CUMULATIVE = 2
_NANOSECONDS = 1_000_000_000
_STARTED = time.time_ns()


def own_metrics(registry: CollectorRegistry, cluster: str) -> MetricsData:
    """A request with all metrics of a registry; gauges and counters as numbers, histograms as histograms."""
    message = MetricsData()
    resource = message.resource_metrics.add()
    for key, text in (("service.name", "lens"), ("k8s.cluster.name", cluster)):
        resource.resource.attributes.add(key=key).value.string_value = text
    scope = resource.scope_metrics.add()
    scope.scope.name = "lens"
    now = time.time_ns()
    for family in registry.collect():
        if family.type == "histogram":
            _append_histogram(scope, family, now)
        else:
            _append_numbers(scope, family, now)
    return message


def _append_numbers(scope: ScopeMetrics, family: Family, now: int) -> None:
    """Each name of a family as a metric: a counter as a cumulative sum, everything else as a gauge."""
    metrics: dict[str, Metric] = {}
    for sample in family.samples:
        if sample.name.endswith("_created"):
            continue
        is_counter = family.type == "counter" or (family.type == "summary" and sample.name != family.name)
        name = sample.name.removesuffix("_total") if family.type == "counter" else sample.name
        if name not in metrics:
            metrics[name] = scope.metrics.add(name=name, description=family.documentation, unit=family.unit)
            if is_counter:
                metrics[name].sum.aggregation_temporality = _CUMULATIVE  # type: ignore[assignment]
                metrics[name].sum.is_monotonic = True
        points = metrics[name].sum.data_points if is_counter else metrics[name].gauge.data_points
        point = points.add(time_unix_nano=now, as_double=sample.value, attributes=_attributes_of(sample))
        if is_counter:
            point.start_time_unix_nano = _STARTED


def _append_histogram(scope: ScopeMetrics, family: Family, now: int) -> None:
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in family.samples:
        key = tuple(sorted((label, text) for label, text in sample.labels.items() if label != "le"))
        groups.setdefault(key, []).append(sample)
    if not groups:
        return
    metric = scope.metrics.add(name=family.name, description=family.documentation, unit=family.unit)
    metric.histogram.aggregation_temporality = _CUMULATIVE
    for samples in groups.values():
        below = {float(one.labels["le"]): int(one.value) for one in samples if one.name.endswith("_bucket")}
        bounds = sorted(below)
        point = metric.histogram.data_points.add(
            time_unix_nano=now,
            start_time_unix_nano=_STARTED,
            attributes=_attributes_of(samples[0]),
            explicit_bounds=[bound for bound in bounds if bound != math.inf],
            bucket_counts=[two - one for one, two in pairwise([0, *(below[bound] for bound in bounds)])],
            count=below.get(math.inf, 0),
        )
        for one in samples:
            if one.name.endswith("_sum"):
                point.sum = one.value


def _attributes_of(sample: Sample) -> list[KeyValue]:
    made = []
    for label, text in sample.labels.items():
        if label != "le":
            made.append(KeyValue(key=label))
            made[-1].value.string_value = text
    return made
