"""OTLP in JSON gives what the same request in protobuf gives; what is wrong in it costs nothing else."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sources.otlp.json_form import encode_json
from lens_plugins.sources.otlp.schema import decode_request
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lens_core import BadRequest, LogLine
from tests.generated import examples
from tests.plugins.sources.otlp.conftest import OtlpApp
from tests.plugins.sources.otlp.requests import NOW, attributes, counter, gauge, logs, metrics, point, traces, values_of

NAMES = {"traceId", "spanId", "parentSpanId"}
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)


def as_json(message: Message) -> dict[str, Any]:
    """A message in OTLP's JSON: as protobuf's own, but with ids in hex."""
    return dict(with_hex_ids(MessageToDict(message, use_integers_for_enums=True)))


def with_hex_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: base64.b64decode(item).hex() if key in NAMES and isinstance(item, str) else with_hex_ids(item)
            for key, item in value.items()
        }
    return [with_hex_ids(item) for item in value] if isinstance(value, list) else value


def decoded(signal: str, value: Any) -> tuple[bytes, int]:
    found = encode_json(signal, json.dumps(value).encode())
    return found.body, found.refused


@settings(deadline=None, max_examples=examples(200))
@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
    st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1)),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=16),
    st.integers(0, 24),
)
def test_both_forms_hold_the_same(keys: dict[str, Any], value: Any, time: int, some_id: bytes, severity: int) -> None:
    made = point(value, time)
    made.attributes.extend(attributes(keys))
    histogram = Metric(name="h")
    held = histogram.exponential_histogram.data_points.add(scale=-3, count=time, sum=float(value))
    held.positive.offset, held.flags = -5, severity
    held.positive.bucket_counts.extend([severity, time])
    record = LogRecord(time_unix_nano=time, severity_number=severity, trace_id=some_id, span_id=some_id)  # type: ignore[arg-type]
    record.attributes.extend(attributes(keys))
    record.body.CopyFrom(attributes({"body": keys})[0].value)
    span = Span(trace_id=some_id, parent_span_id=some_id, kind=severity % 6, name="a")  # type: ignore[arg-type]
    requests: list[tuple[str, Message, type[Message]]] = [
        ("metrics", metrics(gauge("g", made), counter("c", made), histogram), ExportMetricsServiceRequest),
        ("logs", logs(record), ExportLogsServiceRequest),
        ("traces", traces(span), ExportTraceServiceRequest),
    ]
    for signal, message, kind in requests:
        body, refused = decoded(signal, as_json(message))
        assert refused == 0
        assert as_json(kind.FromString(body)) == as_json(message)


KEYS = (
    *("resourceMetrics", "scopeMetrics", "metrics", "name", "scope", "gauge", "sum", "dataPoints", "asInt", "asDouble"),
    *("timeUnixNano", "attributes", "key", "value", "stringValue", "arrayValue", "values"),
)
WELL: dict[str, Any] = {"timeUnixNano": str(NOW), "asDouble": 1.5}


def request_of(*points: Any, **metric: Any) -> dict[str, Any]:
    metrics = [
        {"name": "good", "gauge": {"dataPoints": [WELL]}},
        {"name": "m", "gauge": {"dataPoints": list(points)}, **metric},
    ]
    return {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ({"asInt": "9007199254740993"}, 9007199254740992.0),
        ({"asInt": 7}, 7.0),
        ({"asInt": 7.0}, 7.0),
        ({"as_int": "-7"}, -7.0),
        ({"asDouble": "NaN"}, math.nan),
        ({"asDouble": "-Infinity"}, -math.inf),
        ({"asDouble": "1e3"}, 1000.0),
        ({"asDouble": 3}, 3.0),
        ({"asDouble": 1, "unknown": {"deep": [1, {"a": None}]}}, 1.0),
        ({"asDouble": 1, "attributes": None, "exemplars": []}, 1.0),
        ({"asDouble": 1, "timeUnixNano": NOW}, 1.0),
    ],
)
async def test_numbers_come_in_every_form(otlp: OtlpApp, value: dict[str, Any], number: float) -> None:
    answer = await otlp.post("/v1/metrics", json=request_of({"timeUnixNano": str(NOW), **value}))
    assert (answer.status_code, answer.json()) == (200, {})
    assert repr(values_of(otlp.gate.records)["m{}"]) == repr(number)


@pytest.mark.parametrize(
    "bad",
    [
        {"asInt": "9223372036854775808"},
        {"asInt": "seven"},
        {"asInt": 1.5},
        {"asInt": True},
        {"asDouble": "one"},
        {"asDouble": []},
        {"asDouble": True},
        {"asDouble": 1, "timeUnixNano": "-1"},
        {"asDouble": 1, "timeUnixNano": "18446744073709551616"},
        {"asDouble": 1, "timeUnixNano": {}},
        {"asDouble": 1, "attributes": {}},
        {"asDouble": 1, "attributes": [5]},
        {"asDouble": 1, "attributes": [{"key": 5}]},
        {"asDouble": 1, "attributes": [{"key": "a", "value": {"intValue": "x"}}]},
        {"asDouble": 1, "attributes": [{"key": "a", "value": {"bytesValue": "&"}}]},
        {"asDouble": 1, "exemplars": [{"traceId": "no hex"}]},
        {"asDouble": 1, "flags": 2**32},
        5,
        None,
        "point",
        [],
    ],
    ids=repr,
)
async def test_a_bad_point_loses_no_neighbour(otlp: OtlpApp, bad: Any) -> None:
    point = {"timeUnixNano": str(NOW), **bad} if isinstance(bad, dict) else bad
    body = request_of(WELL, point, {**WELL, "attributes": [{"key": "n", "value": {"stringValue": "2"}}]})
    answer = await otlp.post("/v1/metrics", json=body)
    assert answer.status_code == 200
    assert values_of(otlp.gate.records) == {"good{}": 1.5, "m{}": 1.5, 'm{n="2"}': 1.5}
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedDataPoints"] == "1"
    assert partial["errorMessage"]
    assert (otlp.gate.received, otlp.gate.rejected) == (4, 1)


@pytest.mark.parametrize("metric", [{"name": 5}, {"gauge": 5}, {"gauge": {"dataPoints": {}}}, {"unit": []}], ids=repr)
async def test_a_bad_metric_loses_no_neighbour(otlp: OtlpApp, metric: dict[str, Any]) -> None:
    answer = await otlp.post("/v1/metrics", json=request_of(WELL, WELL, **metric))
    assert values_of(otlp.gate.records) == {"good{}": 1.5}
    assert int(answer.json()["partialSuccess"]["rejectedDataPoints"]) == (1 if "gauge" in metric else 2)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"5",
        b"null",
        b"{",
        b'{"resourceMetrics": 5}',
        b'{"resourceMetrics": {}}',
        b'{"resourceMetrics": [',
        b'{"resourceMetrics": [{"scopeMetrics": [}]}',
        b"\xff\xfe",
        b"[" * 3000,
        b'{"resourceMetrics": ' + b"[" * 3000,
        b"not json",
    ],
)
async def test_what_is_no_request_is_answered_400_with_a_status(otlp: OtlpApp, body: bytes) -> None:
    answer = await otlp.post("/v1/metrics", content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["code"] == 3
    assert answer.json()["message"]
    assert not otlp.gate.records


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/logs", "/v1/traces"])
async def test_empty_requests_are_successes(otlp: OtlpApp, path: str) -> None:
    key = {"/v1/metrics": "resourceMetrics", "/v1/logs": "resourceLogs", "/v1/traces": "resourceSpans"}[path]
    bodies: list[dict[str, Any]] = [{}, {key: []}, {key: [{}]}, {key: None, "unknown": 1}]
    for body in bodies:
        answer = await otlp.post(path, json=body)
        assert (answer.status_code, answer.json()) == (200, {})
    answer = await otlp.post(path, content=b"", headers={"Content-Type": "application/x-protobuf"})
    assert (answer.status_code, answer.content) == (200, b"")


async def test_deep_values_are_refused_alone(otlp: OtlpApp) -> None:
    deep: Any = {"stringValue": "x"}
    for _ in range(200):
        deep = {"arrayValue": {"values": [deep]}}
    bad = {**WELL, "attributes": [{"key": "deep", "value": deep}]}
    answer = await otlp.post("/v1/metrics", json=request_of(bad))
    assert answer.json()["partialSuccess"]["rejectedDataPoints"] == "1"
    assert values_of(otlp.gate.records) == {"good{}": 1.5}


async def test_logs_in_json_share_their_path_with_other_shippers(tmp_path: Path, otlp: OtlpApp) -> None:
    record = {
        "timeUnixNano": str(NOW),
        "body": {"stringValue": "a line"},
        "traceId": "5b8efff798038103d269b633813fc60c",
    }
    resource = {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": "llama-0"}}]}
    body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record, {**record, "body": 5}]}]}]}
    answer = await otlp.post("/v1/logs", json=body)
    assert answer.json() == {
        "partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "AnyValue must be an object, not '5'"}
    }
    (line,) = otlp.gate.records
    assert isinstance(line, LogLine)
    assert (line.text, line.origin.pod_uid) == ("a line", "u-0")


@settings(deadline=None, max_examples=examples(200))
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(KEYS),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=20,
    )
)
def test_whatever_json_says_is_encoded_or_refused(value: Any) -> None:
    try:
        body, refused = decoded("metrics", value)
    except BadRequest:
        return
    assert refused >= 0
    decode_request("metrics", body)
