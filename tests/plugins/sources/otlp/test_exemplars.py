"""Exemplars pass to remote write, where the value they explain goes, and never cost that value."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sources.otlp.exemplars import MAX_EXEMPLARS, exemplars_by_bucket, read_exemplars
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
)

from lens_core import SeriesBatch
from tests.generated import examples
from tests.plugins.sources.otlp.conftest import OtlpApp
from tests.plugins.sources.otlp.requests import (
    MILLISECOND,
    NOW,
    attributes,
    counter,
    gauge,
    metrics,
    point,
    series_of,
)

TRACE, SPAN = bytes(range(16)), bytes(range(8))
IDS = {"trace_id": TRACE.hex(), "span_id": SPAN.hex()}


def exemplar(value: float, time: int = NOW, **keys: Any) -> Exemplar:
    """An exemplar of a trace."""
    return Exemplar(
        as_double=value, time_unix_nano=time, trace_id=TRACE, span_id=SPAN, filtered_attributes=attributes(keys)
    )


def passed_on(records: Any) -> dict[tuple[str, str], list[tuple[dict[str, str], float, int]]]:
    """The exemplars of each series by name and bound."""
    found = {}
    for one in series_of(records):
        labels = {label.name: label.value for label in one.labels}
        held = [({each.name: each.value for each in ex.labels}, ex.value, ex.timestamp) for ex in one.exemplars]
        if held:
            found[labels["__name__"], labels.get("le", "")] = held
    return found


async def test_a_counter_and_both_kinds_of_histograms(otlp: OtlpApp) -> None:
    count = point(3)
    count.exemplars.extend([exemplar(2.0, NOW + 5 * MILLISECOND, shard="b"), exemplar(1.0, shard="a")])
    level = point(1.0)
    level.exemplars.append(exemplar(1.0))
    classic = HistogramDataPoint(
        time_unix_nano=NOW, explicit_bounds=[1.0, 2.0], bucket_counts=[1, 1, 2], count=4, sum=9.0
    )
    classic.exemplars.extend(map(exemplar, (0.5, 2.0, 5.0, math.inf)))
    native = ExponentialHistogramDataPoint(time_unix_nano=NOW, count=1, scale=0)
    native.positive.bucket_counts.append(1)
    native.exemplars.append(exemplar(1.5))
    held = [counter("skipped", count), gauge("level", level), Metric(name="seconds"), Metric(name="native")]
    for metric, kind, held_point in ((held[2], "histogram", classic), (held[3], "exponential_histogram", native)):
        getattr(metric, kind).data_points.append(held_point)
        getattr(metric, kind).aggregation_temporality = 2
    await otlp.export(metrics(*held))
    at = NOW // MILLISECOND
    assert passed_on(otlp.gate.records) == {
        ("skipped_total", ""): [({**IDS, "shard": "a"}, 1.0, at), ({**IDS, "shard": "b"}, 2.0, at + 5)],
        ("seconds_bucket", "1"): [(IDS, 0.5, at)],
        ("seconds_bucket", "2"): [(IDS, 2.0, at)],
        ("seconds_bucket", "+Inf"): [(IDS, 5.0, at), (IDS, math.inf, at)],
        ("native", ""): [(IDS, 1.5, at)],
    }
    (batch,) = [record for record in otlp.gate.records if isinstance(record, SeriesBatch)]
    assert batch.exemplars == 7


async def test_json_has_them_too(otlp: OtlpApp) -> None:
    held = {"asDouble": 2.5, "timeUnixNano": str(NOW), "traceId": TRACE.hex(), "spanId": SPAN.hex()}
    one = {"asInt": "3", "timeUnixNano": str(NOW), "exemplars": [held]}
    metric = {"name": "n", "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [one]}}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    answer = await otlp.post("/v1/metrics", json=body)
    assert answer.status_code == 200
    assert passed_on(otlp.gate.records) == {("n_total", ""): [(IDS, 2.5, NOW // MILLISECOND)]}


def test_labels_that_do_not_fit_are_left_out() -> None:
    (short,) = read_exemplars([exemplar(1.0, a="x").SerializeToString()])
    (long,) = read_exemplars([exemplar(1.0, a="x" * 200).SerializeToString()])
    assert b"x" in short.message
    assert b"xxx" not in long.message
    assert TRACE.hex().encode() in long.message


def test_unusable_ones_and_too_many_are_left_out() -> None:
    bad = [b"\xff\xff", Exemplar(time_unix_nano=NOW).SerializeToString(), Exemplar(as_int=1).SerializeToString()]
    assert read_exemplars(bad) == []
    assert len(read_exemplars([exemplar(1.0).SerializeToString()] * 1000)) == MAX_EXEMPLARS


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.floats(), max_size=10), st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_every_exemplar_is_in_the_bucket_of_its_value(values: list[float], bounds: list[float]) -> None:
    bounds = sorted(set(bounds))
    found = exemplars_by_bucket(read_exemplars([exemplar(value).SerializeToString() for value in values]), bounds)
    upper = [*bounds, math.inf]
    places = [next((n for n, bound in enumerate(upper) if value <= bound), len(bounds)) for value in values]
    assert set(found) == set(places)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_bytes_that_are_no_exemplars_cost_nothing(raws: list[bytes]) -> None:
    read_exemplars(raws)


async def test_the_sdk_sends_them(lens: Any, tmp_path: Path) -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    running = await lens(config={"sources": {"otlp": {}}})

    def train() -> None:
        exporter = OTLPMetricExporter(endpoint=f"{running.url}/v1/metrics")
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1e9)
        meters = MeterProvider([reader], exemplar_filter=AlwaysOnExemplarFilter())
        with trace.TracerProvider().get_tracer("t").start_as_current_span("step"):
            meters.get_meter("m").create_counter("steps").add(1)
        meters.shutdown()

    await asyncio.to_thread(train)
    ((labels, value, _),) = passed_on(await running.wait_for_records(1, SeriesBatch))["steps_total", ""]
    assert value == 1.0
    assert (len(labels["trace_id"]), len(labels["span_id"])) == (32, 16)
