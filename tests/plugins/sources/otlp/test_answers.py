"""Status codes, encodings, limits and errors, as the specification has them."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import cramjam
import pytest
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from lens_plugins.sources.otlp.source import Otlp
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lens_core import IngestRequest
from lens_core.testing import check_source, make_context
from tests.plugins.sources.otlp.conftest import OtlpApp
from tests.plugins.sources.otlp.requests import (
    NOW,
    PROTOBUF,
    attributes,
    gauge,
    logs,
    metrics,
    point,
    traces,
    values_of,
)

REQUEST = metrics(gauge("up", point(1.0)))
BODY = REQUEST.SerializeToString()
HEADERS = {"Content-Type": PROTOBUF}


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("identity", BODY),
        ("gzip", gzip.compress(BODY)),
        ("zstd", bytes(cramjam.zstd.compress(BODY))),
        ("snappy", bytes(cramjam.snappy.compress_raw(BODY))),
    ],
)
async def test_encodings(otlp: OtlpApp, encoding: str, content: bytes) -> None:
    answer = await otlp.post("/v1/metrics", content=content, headers={**HEADERS, "Content-Encoding": encoding})
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", PROTOBUF)
    assert len(values_of(otlp.gate.records)) == 1


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/logs", "/v1/traces"])
@pytest.mark.parametrize(
    ("content", "encoding", "status", "code"),
    [
        (b"\xff" * 20, "identity", 400, 3),
        (BODY[:-3], "identity", 400, 3),
        (b"no gzip", "gzip", 400, 3),
        (gzip.compress(BODY)[:-5], "gzip", 400, 3),
        (BODY, "br", 415, 3),
        (b"\0" * 100_001, "identity", 413, 8),
        (gzip.compress(b"\0" * 50_000_000), "gzip", 413, 8),
        (bytes(cramjam.zstd.compress(b"\0" * 50_000_000)), "zstd", 413, 8),
    ],
    ids=["garbage", "truncated", "no gzip", "short gzip", "brotli", "large", "gzip bomb", "zstd bomb"],
)
async def test_refusals_are_a_status_in_the_encoding_of_the_request(
    tmp_path: Path, path: str, content: bytes, encoding: str, status: int, code: int
) -> None:
    otlp = OtlpApp(tmp_path, max_body_bytes=100_000)
    answer = await otlp.post(path, content=content, headers={**HEADERS, "Content-Encoding": encoding})
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROTOBUF)
    assert Status.FromString(answer.content).code == code
    assert Status.FromString(answer.content).message
    assert "retry-after" not in answer.headers
    assert not otlp.gate.records


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/protobuf", "application/grpc"])
@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/traces"])
async def test_other_content_types_are_415(otlp: OtlpApp, path: str, content_type: str) -> None:
    answer = await otlp.post(path, content=BODY, headers={"Content-Type": content_type} if content_type else {})
    assert (answer.status_code, answer.json()["code"]) == (415, 3)


async def test_content_types_have_parameters_and_any_case(otlp: OtlpApp) -> None:
    answer = await otlp.post("/v1/metrics", content=BODY, headers={"Content-Type": "Application/X-Protobuf; v=1"})
    assert answer.status_code == 200


async def test_other_methods_and_paths(otlp: OtlpApp) -> None:
    async with otlp.client() as client:
        assert (await client.get("/v1/traces")).status_code == 405
        assert (await client.put("/v1/traces", content=BODY, headers=HEADERS)).status_code == 405
        assert (await client.post("/v1/metrics/v1/metrics", content=BODY, headers=HEADERS)).status_code == 404
        assert (await client.post("/v1development/profiles", content=b"", headers=HEADERS)).status_code == 404


@pytest.mark.parametrize("encoding", [PROTOBUF, "application/json"])
async def test_later_is_503_with_retry_after(otlp: OtlpApp, encoding: str) -> None:
    otlp.gate.closed = True
    if encoding == PROTOBUF:
        answer = await otlp.post("/v1/metrics", content=BODY, headers=HEADERS)
        assert Status.FromString(answer.content).code == 14
    else:
        point = {"timeUnixNano": str(NOW), "asDouble": 1}
        held = [{"name": "m", "gauge": {"dataPoints": [point]}}]
        answer = await otlp.post("/v1/metrics", json={"resourceMetrics": [{"scopeMetrics": [{"metrics": held}]}]})
        assert answer.json() == {"code": 14, "message": "the spool is full"}
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")


async def test_a_defect_is_answered_503_because_senders_drop_at_500(
    otlp: OtlpApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*given: object, **named: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(otlp.gate, "submit", fail)
    answer = await otlp.post("/v1/metrics", content=BODY, headers=HEADERS)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "secret" not in answer.text


async def test_tokens_are_those_of_the_daemon(otlp: OtlpApp) -> None:
    async with otlp.client("192.0.2.1") as client:
        refused = await client.post("/v1/metrics", content=BODY, headers=HEADERS)
        assert (refused.status_code, Status.FromString(refused.content).code) == (401, 16)
        token = otlp.tokens.create_token("collector", "ingest")
        taken = await client.post("/v1/metrics", content=BODY, headers={**HEADERS, "Authorization": f"Bearer {token}"})
        assert taken.status_code == 200


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/logs", "/v1/traces"])
async def test_nothing_but_empty_parts_is_refused_at_once(tmp_path: Path, path: str) -> None:
    otlp = OtlpApp(tmp_path)
    answer = await otlp.post(path, content=b"\x0a\x00" * 2_000_001, headers=HEADERS)
    assert answer.status_code == 400
    assert "smaller batches" in Status.FromString(answer.content).message
    body = b'{"resourceMetrics": [' + b"{}," * 2_000_000 + b"{}]}"
    answer = await otlp.post("/v1/metrics", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, 3)


async def test_many_empty_parts_let_others_have_a_turn(tmp_path: Path) -> None:
    otlp = OtlpApp(tmp_path)
    sending = asyncio.ensure_future(otlp.post("/v1/metrics", content=b"\x0a\x02\x12\x00" * 100_000, headers=HEADERS))
    turns = 0
    while not sending.done():
        await asyncio.sleep(0)
        turns += 1
    assert (await sending).status_code == 200
    assert turns > 50


async def test_contract(tmp_path: Path) -> None:
    source = Otlp(Otlp.Settings(), make_context("otlp", tmp_path))
    span = Span(name="megatron.train_step", start_time_unix_nano=NOW, end_time_unix_nano=NOW + 1)
    span.attributes.extend(attributes({"megatron.iteration": 5}))
    record = LogRecord(time_unix_nano=NOW, body=attributes({"a": "a line"})[0].value)
    bodies: dict[str, Message] = {"/metrics": REQUEST, "/logs": logs(record), "/traces": traces(span)}
    good = [
        IngestRequest(
            body=message.SerializeToString(), path=path, method="POST", headers={"content-type": PROTOBUF}, query={}
        )
        for path, message in bodies.items()
    ]
    await check_source(source, good)
