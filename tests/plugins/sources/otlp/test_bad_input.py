"""Damaged, wrong and extreme requests: one bad item loses no neighbour, and no answer makes a sender drop good data."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import cramjam
import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from lens_core import LogLine, StepMetrics
from lens_core.plugin_api.protobuf import delimited
from tests.generated import examples
from tests.plugins.sources.otlp.conftest import OtlpApp
from tests.plugins.sources.otlp.requests import (
    NOW,
    PROTOBUF,
    RESOURCE,
    any_value,
    attributes,
    counter,
    encoded,
    gauge,
    logs,
    metrics,
    point,
    rejected_of,
    series_of,
    values_of,
)
from tests.plugins.sources.otlp.test_grpc import METRICS, REQUEST, SERVICE, export, listening
from tests.plugins.sources.otlp.test_json import as_json

COMPRESSIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": lambda body: bytes(cramjam.zstd.compress(body)),
}
JSON = "application/json"
MESSAGES: Mapping[str, Message] = {
    "metrics": metrics(
        gauge("loss", point(1.5, NOW, step=7), point(0.5, NOW + 1, layer="a")), counter("tokens", point(7))
    ),
    "logs": logs(*(LogRecord(time_unix_nano=NOW, body=any_value(f"line {number}")) for number in range(3))),
}
# The place, what is done there, and the byte for it.
DAMAGE = st.tuples(st.floats(0, 1), st.sampled_from(["set", "cut", "insert", "delete"]), st.integers(0, 255))


def damaged(body: bytes, place: float, kind: str, byte: int) -> bytes:
    """A body with one byte or its end damaged."""
    at = round(place * (len(body) - 1))
    if kind == "cut":
        return body[:at]
    return body[:at] + (b"" if kind == "delete" else bytes([byte])) + body[at + (kind != "insert") :]


@settings(deadline=None, max_examples=examples(250))
@given(
    st.sampled_from([*MESSAGES]),
    st.sampled_from([PROTOBUF, JSON]),
    st.sampled_from([*COMPRESSIONS]),
    st.lists(DAMAGE, min_size=1, max_size=3),
    st.booleans(),
)
async def test_a_damaged_body_is_refused_or_taken_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
    signal: str,
    form: str,
    compression: str,
    damage: list[tuple[float, str, int]],
    is_compressed_first: bool,
) -> None:
    otlp = OtlpApp(tmp_path_factory.mktemp("otlp"), target_info=False)
    message = MESSAGES[signal]
    body = message.SerializeToString() if form == PROTOBUF else json.dumps(as_json(message)).encode()
    compress = COMPRESSIONS[compression]
    body = compress(body) if is_compressed_first else body
    for one in damage:
        body = damaged(body, *one)
    body = body if is_compressed_first else compress(body)
    headers = {"Content-Type": form, "Content-Encoding": compression}
    answer = await otlp.post(f"/v1/{signal}", content=body, headers=headers)
    # A length of nonsense in the head of a compressed body is too large.
    assert answer.status_code in ((200, 400, 413) if is_compressed_first and compression != "identity" else (200, 400))
    assert answer.headers["content-type"].startswith(form)
    if answer.status_code != 200:
        code = Status.FromString(answer.content).code if form == PROTOBUF else answer.json()["code"]
        assert code in (3, 8)
        assert not otlp.gate.records
    else:
        assert otlp.gate.rejected == refused_by(answer.content, form)
        assert otlp.gate.received >= otlp.gate.rejected
    again = await otlp.post(f"/v1/{signal}", **encoded(message))
    assert (again.status_code, again.content) == (200, b"")


def refused_by(answer: bytes, form: str) -> int:
    """The number of refused items that a success tells."""
    if form == PROTOBUF:
        return rejected_of(answer)[0]
    partial = json.loads(answer).get("partialSuccess", {})
    return int(partial.get("rejectedDataPoints") or partial.get("rejectedLogRecords") or 0)


# As text, because json.dumps cannot write all of them.
WRONG = st.one_of(
    st.sampled_from(
        ["1e999", "-1e999", "1e-999", "-0", "9" * 400, "9" * 5000, "NaN", "-Infinity", '"1e999"', '"\\ud800"', '""']
    ),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
        lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
        max_leaves=4,
    ).map(json.dumps),
)
POINT_KEYS = ("timeUnixNano", "startTimeUnixNano", "asDouble", "asInt", "attributes", "exemplars", "flags")
RECORD_KEYS = ("timeUnixNano", "observedTimeUnixNano", "severityNumber", "body", "attributes", "traceId", "flags")
ATTRIBUTE = '{"key": "a", "value": %s}'
VALUE_KEYS = ("stringValue", "boolValue", "intValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue")


def some_item(keys: tuple[str, ...]) -> st.SearchStrategy[str]:
    """JSON of a good item in which one field, an attribute or a value of one is replaced by something."""
    fields = st.tuples(st.sampled_from(keys), WRONG).map(lambda pair: f'"{pair[0]}": {pair[1]}')
    values = st.tuples(st.sampled_from(VALUE_KEYS), WRONG).map(lambda pair: f'{{"{pair[0]}": {pair[1]}}}')
    nested = st.one_of(WRONG, values).map(lambda value: f'"attributes": [{ATTRIBUTE % value}]')
    whole = WRONG.filter(lambda text: not text.startswith("{"))
    return st.one_of(whole, st.one_of(fields, nested).map(lambda field: f'{{"timeUnixNano": "{NOW}", {field}}}'))


@settings(deadline=None, max_examples=examples(250))
@given(some_item(POINT_KEYS), some_item(RECORD_KEYS), st.integers(0, 3), st.sampled_from([*COMPRESSIONS]))
async def test_whatever_stands_for_one_item_in_json_the_others_are_stored(
    tmp_path_factory: pytest.TempPathFactory, bad_point: str, bad_record: str, place: int, compression: str
) -> None:
    otlp = OtlpApp(tmp_path_factory.mktemp("otlp"), target_info=False)
    points = [point(float(number), n=number) for number in range(3)]
    points.insert(place, point(9.0))
    records = [LogRecord(time_unix_nano=NOW, body=any_value(f"line {number}")) for number in range(3)]
    records.insert(place, LogRecord())
    whole_metrics, whole_logs = as_json(metrics(gauge("m", *points))), as_json(logs(*records))
    whole_metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"][place] = "BAD"
    whole_logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"][place] = "BAD"
    for signal, whole, bad in (("metrics", whole_metrics, bad_point), ("logs", whole_logs, bad_record)):
        body = json.dumps(whole).replace('"BAD"', bad)
        otlp.gate.received = otlp.gate.rejected = 0
        headers = {"Content-Type": JSON, "Content-Encoding": compression}
        answer = await otlp.post(f"/v1/{signal}", content=COMPRESSIONS[compression](body.encode()), headers=headers)
        assert answer.status_code == 200, answer.text
        refused = refused_by(answer.content, JSON)
        assert (otlp.gate.received, otlp.gate.rejected) == (4, refused)
        assert refused in (0, 1)
    found = values_of(otlp.gate.records)
    assert {value for name, value in found.items() if 'n="' in name} == {0.0, 1.0, 2.0}
    lines = [record.text for record in otlp.gate.records if isinstance(record, LogLine)]
    assert [text for text in lines if text.startswith("line ")] == ["line 0", "line 1", "line 2"]


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=3), st.binary(max_size=20), st.integers(0, 3))
async def test_whatever_bytes_are_an_attribute_or_a_body_the_others_are_stored(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[bytes], value: bytes, place: int
) -> None:
    otlp = OtlpApp(tmp_path_factory.mktemp("otlp"), target_info=False)
    resource = delimited(1, Resource(attributes=attributes(RESOURCE)).SerializeToString())
    points = [point(float(number), n=number).SerializeToString() for number in range(3)]
    points.insert(place, point(9.0).SerializeToString() + b"".join(delimited(7, pair) for pair in pairs))
    held = delimited(1, b"m") + delimited(5, b"".join(delimited(1, one) for one in points))
    body = delimited(1, resource + delimited(2, delimited(2, held)))
    answer = await otlp.post("/v1/metrics", content=body, headers={"Content-Type": PROTOBUF})
    assert rejected_of(answer.content)[0] in (0, 1)
    assert {0.0, 1.0, 2.0} <= set(values_of(otlp.gate.records).values())
    records = [
        LogRecord(time_unix_nano=NOW, body=any_value(f"line {number}")).SerializeToString() for number in range(3)
    ]
    records.insert(place, delimited(5, value) + b"".join(delimited(6, pair) for pair in pairs))
    body = delimited(1, resource + delimited(2, b"".join(delimited(2, one) for one in records)))
    answer = await otlp.post("/v1/logs", content=body, headers={"Content-Type": PROTOBUF})
    assert rejected_of(answer.content)[0] in (0, 1)
    lines = [record.text for record in otlp.gate.records if isinstance(record, LogLine)]
    assert [text for text in lines if text.startswith("line ")] == ["line 0", "line 1", "line 2"]


NAMES = ("a.b", "a/b", "a_b", "", "0", "__name__", "le", "job", "instance", "pod_name", "工", "otel_scope_name")


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["", "x", "y"])), max_size=6), st.booleans())
async def test_attributes_that_come_twice_make_no_label_twice(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[str, str]], is_of_resource: bool
) -> None:
    otlp = OtlpApp(tmp_path_factory.mktemp("otlp"))
    pairs = [KeyValue(key=key, value=any_value(text)) for key, text in keys]
    one = point(1.0)
    message = metrics(gauge("m", one), resource={"service.name": "train"})
    held = message.resource_metrics[0]
    (
        held.resource.attributes if is_of_resource else held.scope_metrics[0].metrics[0].gauge.data_points[0].attributes
    ).extend(pairs)
    assert rejected_of((await otlp.export(message)).content) == (0, "")
    for series in series_of(otlp.gate.records):
        labels = [label.name for label in series.labels]
        assert labels == sorted(set(labels))
        assert all(label.value for label in series.labels)


@pytest.mark.parametrize("stamp", [0, 1, NOW, 4_102_444_800_000_000_000, 2**63 - 1, 2**63, 2**64 - 1])
async def test_times_from_none_to_the_last_that_there_is(otlp: OtlpApp, stamp: int) -> None:
    good = gauge("good", point(5.0))
    answer = await otlp.export(metrics(gauge("m", point(2.0, stamp), point(3.0, stamp, step=7)), good))
    await otlp.export(logs(LogRecord(time_unix_nano=stamp, body=any_value("line"))), "/v1/logs")
    assert rejected_of(answer.content)[0] == (0 if stamp else 2)
    samples = {one.samples[0].value: one.samples[0].timestamp for one in series_of(otlp.gate.records)}
    # The value of `target_info` is 1: a clock that is ahead must not put it where no later one can follow.
    assert samples[1.0] <= time.time() * 1000
    assert samples.get(2.0) == (stamp // 1_000_000 if stamp else None)
    assert samples[5.0] == NOW // 1_000_000
    rows = [record.event_time for record in otlp.gate.records if isinstance(record, StepMetrics)]
    assert rows == ([stamp / 1e9] if stamp else [])
    lines = [record.event_time for record in otlp.gate.records if isinstance(record, LogLine)]
    assert lines == [stamp / 1e9 or None]


@pytest.mark.parametrize("name", ["", "工", "\0", "{}"])
async def test_metrics_without_a_usable_name_are_refused_alone(otlp: OtlpApp, name: str) -> None:
    message = metrics(gauge(name, point(1.0)), gauge("good", point(2.0)), gauge("loss", point(3.0, step=1)))
    assert rejected_of((await otlp.export(message)).content)[0] == 1
    assert list(values_of(otlp.gate.records).values()) == [2.0]


async def test_values_of_steps_without_a_name_are_refused_alone(otlp: OtlpApp) -> None:
    answer = await otlp.export(metrics(gauge("", point(1.0, step=1)), gauge("loss", point(3.0, step=1))))
    assert rejected_of(answer.content)[0] == 1
    assert [record.values for record in otlp.gate.records if isinstance(record, StepMetrics)] == [{"loss": 3.0}]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
async def test_the_limit_is_for_all_parts_of_a_compressed_body_together(tmp_path: Path, compression: str) -> None:
    otlp = OtlpApp(tmp_path, max_body_bytes=100_000)
    compress = COMPRESSIONS[compression]
    body = b"".join(compress(encoded(metrics(gauge("m", *[point(1.0)] * 50)))["content"]) for _ in range(200))
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": compression}
    answer = await otlp.post("/v1/metrics", content=body, headers=headers)
    assert (answer.status_code, Status.FromString(answer.content).code) == (413, 8)
    assert not otlp.gate.records


@pytest.mark.parametrize("signal", [*MESSAGES])
async def test_damage_over_grpc_is_an_invalid_argument_and_nothing_else(tmp_path: Path, signal: str) -> None:
    rng = random.Random(signal)
    whole = MESSAGES[signal].SerializeToString()
    async with listening(tmp_path) as (otlp, channel):
        for _ in range(examples(300)):
            body = whole
            for _ in range(rng.randint(1, 3)):
                kind = rng.choice(["set", "cut", "insert", "delete"])
                body = damaged(body, rng.random(), kind, rng.randrange(256))
            before = otlp.gate.received, otlp.gate.rejected, len(otlp.gate.records)
            try:
                answer = await export(channel, body, SERVICE.format(signal, signal.capitalize()))
                assert otlp.gate.rejected - before[1] == rejected_of(answer)[0]
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT  # noqa: PT017 - most of them raise
                assert before == (otlp.gate.received, otlp.gate.rejected, len(otlp.gate.records))
        assert await export(channel, REQUEST, METRICS) == b""
