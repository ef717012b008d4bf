"""Requests of OTLP by the generated classes, and what came of them in the words of the real protobuf library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cramjam
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lens_core import Record, SeriesBatch
from tests.plugins.sources.remote_write.wire import WriteRequest, labels_of

PROTOBUF = "application/x-protobuf"
# In nanoseconds; a time in milliseconds is that much shorter.
NOW = 1_795_000_000_000_000_000
MILLISECOND = 1_000_000
RESOURCE: Mapping[str, Any] = {"service.name": "train", "k8s.pod.name": "llama-0", "k8s.namespace.name": "ml"}
SCALARS = {bool: "bool_value", str: "string_value", int: "int_value", float: "double_value", bytes: "bytes_value"}


def any_value(value: Any) -> AnyValue:
    """A Python value as OTLP has it."""
    if value is None:
        return AnyValue()
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=attributes(value)))
    return AnyValue(**{SCALARS[type(value)]: value})


def attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes of Python values."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def point(value: float | None, time: int = NOW, flags: int = 0, **keys: Any) -> NumberDataPoint:
    """A point of a gauge or a sum; underscores in the names of attributes stand for dots."""
    made = NumberDataPoint(time_unix_nano=time, flags=flags, attributes=attributes(dotted(keys)))
    if isinstance(value, int):
        made.as_int = value
    elif value is not None:
        made.as_double = value
    return made


def dotted(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Names with dots."""
    return {key.replace("_", "."): value for key, value in keys.items()}


def gauge(name: str, *points: NumberDataPoint, unit: str = "") -> Metric:
    """A gauge."""
    metric = Metric(name=name, unit=unit)
    metric.gauge.data_points.extend(points)
    metric.gauge.SetInParent()
    return metric


def counter(
    name: str, *points: NumberDataPoint, temporality: int = 2, monotonic: bool = True, unit: str = ""
) -> Metric:
    """A sum."""
    metric = Metric(name=name, unit=unit)
    metric.sum.data_points.extend(points)
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = temporality, monotonic  # type: ignore[assignment]
    return metric


def metrics(*held: Metric, resource: Mapping[str, Any] = RESOURCE) -> ExportMetricsServiceRequest:
    """A request for metrics of one resource."""
    request = ExportMetricsServiceRequest()
    one = request.resource_metrics.add()
    one.resource.attributes.extend(attributes(resource))
    one.scope_metrics.add().metrics.extend(held)
    return request


def logs(*records: LogRecord, resource: Mapping[str, Any] = RESOURCE) -> ExportLogsServiceRequest:
    """A request for log records of one resource."""
    request = ExportLogsServiceRequest()
    one = request.resource_logs.add()
    one.resource.attributes.extend(attributes(resource))
    one.scope_logs.add().log_records.extend(records)
    return request


def traces(*spans: Span, resource: Mapping[str, Any] = RESOURCE) -> ExportTraceServiceRequest:
    """A request for spans of one resource."""
    request = ExportTraceServiceRequest()
    one = request.resource_spans.add()
    one.resource.attributes.extend(attributes(resource))
    one.scope_spans.add().spans.extend(spans)
    return request


def encoded(message: Message) -> dict[str, Any]:
    """The parts of a POST that carries a message."""
    return {"content": message.SerializeToString(), "headers": {"Content-Type": PROTOBUF}}


def series_of(records: Sequence[Record]) -> list[Any]:
    """The series of all batches, as messages of remote write."""
    found = []
    for record in records:
        if isinstance(record, SeriesBatch):
            assert record.compression == "snappy"
            held = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(record.body))).timeseries
            assert (len(held), record.samples) == (record.series, sum(len(one.samples) for one in held))
            found += held
    return found


def values_of(records: Sequence[Record], *, info: bool = False) -> dict[str, float]:
    """Every series as Prometheus prints it, with the value of its last sample; `target_info` only if asked for."""
    found = {}
    for one in series_of(records):
        labels = labels_of(one)
        name = labels.pop("__name__")
        if info or name != "target_info":
            shown = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
            found[f"{name}{{{shown}}}"] = one.samples[-1].value
    return found


def rejected_of(content: bytes) -> tuple[int, str]:
    """Return what the answer to metrics refuses, and why."""
    partial = ExportMetricsServiceResponse.FromString(content).partial_success
    return partial.rejected_data_points, partial.error_message
