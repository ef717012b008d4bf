"""gRPC on a port of its own, as a client without generated code sees it."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from lens_plugins.sources.otlp.settings import OtlpSettings
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lens_core import LensError, LogLine, Secret
from tests.certificates import write_certificate
from tests.plugins.sources.otlp.conftest import OtlpApp
from tests.plugins.sources.otlp.requests import (
    NOW,
    any_value,
    gauge,
    logs,
    metrics,
    point,
    rejected_of,
    traces,
    values_of,
)

SERVICE = "/opentelemetry.proto.collector.{0}.v1.{1}Service/Export"
METRICS = SERVICE.format("metrics", "Metrics")
REQUEST = metrics(gauge("up", point(1.0))).SerializeToString()
LIMIT = 1024 * 1024


@asynccontextmanager
async def listening(folder: Path, **settings: Any) -> AsyncIterator[tuple[OtlpApp, grpc.aio.Channel]]:
    otlp = OtlpApp(folder, grpc_listen="127.0.0.1:0", max_body_bytes=LIMIT, **settings)
    await otlp.source.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{otlp.source.grpc_port}") as channel:  # type: ignore[attr-defined]
            yield otlp, channel
    finally:
        await otlp.source.stop()


async def export(channel: grpc.aio.Channel, body: bytes, method: str = METRICS, **call: Any) -> bytes:
    return bytes(await channel.unary_unary(method)(body, timeout=20, **call))


async def refused(channel: grpc.aio.Channel, body: bytes, **call: Any) -> tuple[Any, str, float | None]:
    """The code and the text of a refusal, and after how many seconds to come again."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await export(channel, body, **call)
    details = dict(caught.value.trailing_metadata() or ()).get("grpc-status-details-bin")
    pause = None
    if details is not None:
        status = Status.FromString(details)
        assert status.code == caught.value.code().value[0]
        for one in status.details:
            info = RetryInfo()
            assert one.Unpack(info)
            pause = float(info.retry_delay.seconds)
    return caught.value.code(), caught.value.details() or "", pause


async def test_the_three_services(tmp_path: Path) -> None:
    async with listening(tmp_path) as (otlp, channel):
        assert await export(channel, REQUEST) == b""
        record = LogRecord(time_unix_nano=NOW, body=any_value("a line"))
        assert await export(channel, logs(record).SerializeToString(), SERVICE.format("logs", "Logs")) == b""
        assert (
            await export(channel, traces(Span(name="x")).SerializeToString(), SERVICE.format("trace", "Trace")) == b""
        )
        assert await export(channel, b"") == b""
        assert len(values_of(otlp.gate.records)) == 1
        assert [record.text for record in otlp.gate.records if isinstance(record, LogLine)] == ["a line"]
        answer = await export(channel, metrics(gauge("up", point(1.0), point(None))).SerializeToString())
        assert rejected_of(answer) == (1, "a point has no value")


async def test_refusals(tmp_path: Path) -> None:
    async with listening(tmp_path) as (otlp, channel):
        assert (await refused(channel, b"\xff" * 20))[0] is grpc.StatusCode.INVALID_ARGUMENT
        for body, call in ((b"\0" * (LIMIT + 1), {}), (b"\0" * 50 * LIMIT, {"compression": grpc.Compression.Gzip})):
            code, _, pause = await refused(channel, body, **call)
            assert (code, pause) == (grpc.StatusCode.RESOURCE_EXHAUSTED, None)
        otlp.gate.closed = True
        assert await refused(channel, REQUEST) == (grpc.StatusCode.UNAVAILABLE, "the spool is full", 3.0)
        otlp.gate.closed = False
        assert await export(channel, REQUEST, compression=grpc.Compression.Gzip) == b""
        assert len(gzip.compress(b"\0" * 50 * LIMIT)) < LIMIT


async def test_a_defect_is_answered_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(tmp_path) as (otlp, channel):

        async def fail(*given: object, **named: object) -> None:
            raise ZeroDivisionError("inside")

        monkeypatch.setattr(otlp.gate, "submit", fail)
        code, text, pause = await refused(channel, REQUEST)
        assert (code, pause) == (grpc.StatusCode.UNAVAILABLE, 5.0)
        assert "inside" not in text


async def test_a_token(tmp_path: Path) -> None:
    async with listening(tmp_path, grpc_token=Secret("s3cret")) as (_, channel):
        assert await export(channel, REQUEST, metadata=(("authorization", "Bearer s3cret"),)) == b""
        for metadata in ((), (("authorization", "Bearer other"),), (("authorization", "s3cret"),)):
            code, text, _ = await refused(channel, REQUEST, metadata=metadata)
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert "s3cret" not in text


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    async with listening(tmp_path) as (otlp, _):
        port = otlp.source.grpc_port  # type: ignore[attr-defined]
        second = OtlpApp(tmp_path, grpc_listen=f"127.0.0.1:{port}")
        with pytest.raises(LensError, match="cannot listen"):
            await second.source.start()


async def export_over_tls(port: int, certificate: bytes) -> bytes:
    """The answer to a request on a new connection that trusts one certificate alone."""
    credentials = grpc.ssl_channel_credentials(certificate)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        return await export(channel, REQUEST)


async def test_a_renewed_certificate_is_taken_up_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = write_certificate(tmp_path)
    first = certificate.read_bytes()
    otlp = OtlpApp(tmp_path, grpc_listen="127.0.0.1:0", grpc_tls_certificate=str(certificate), grpc_tls_key=str(key))
    await otlp.source.start()
    port = otlp.source.grpc_port  # type: ignore[attr-defined]
    try:
        assert await export_over_tls(port, first) == b""
        write_certificate(tmp_path)
        second = certificate.read_bytes()
        assert await export_over_tls(port, second) == b""
        with pytest.raises(grpc.aio.AioRpcError):
            await export_over_tls(port, first)
        certificate.write_text("nothing")
        assert await export_over_tls(port, second) == b""
        assert "keeping the current one" in caplog.text
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await export(channel, REQUEST)
    finally:
        await otlp.source.stop()


async def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    broken = str(tmp_path / "broken.pem")
    Path(broken).write_text("nothing")
    otlp = OtlpApp(tmp_path, grpc_listen="127.0.0.1:0", grpc_tls_certificate=broken, grpc_tls_key=broken)
    with pytest.raises(LensError, match=r"broken\.pem"):
        await otlp.source.start()
    await otlp.source.stop()


@pytest.mark.parametrize("options", [{"grpc_tls_key": "k.pem"}, {"grpc_client_ca_file": "ca.pem"}])
def test_files_that_need_another(options: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError, match="need"):
        msgspec.convert({"grpc_listen": ":4317", **options}, OtlpSettings)
