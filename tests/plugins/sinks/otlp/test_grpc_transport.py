"""The sink over gRPC: its contract, the meaning of statuses, TLS, and Lens itself at the other end."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from lens_plugins.sinks.otlp.grpc_transport import classify, retry_info
from lens_plugins.sinks.otlp.settings import OtlpSinkSettings
from lens_plugins.sinks.otlp.sink import OtlpSink
from lens_plugins.sources.grpc_listener import GrpcListener
from lens_plugins.sources.otlp.grpc_server import SERVICES
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from lens_core import ConfigurationError, Delivered, Event, LensError, Poisoned, Retry, Secret, Sink, StepMetrics
from lens_core.testing import SINK_CHECKS, SinkHarness, Trouble, make_context
from lens_core.testing.sinks import SinkCheck
from tests.certificates import write_certificate
from tests.plugins.sinks.otlp.test_sink import ORIGIN, batch, row
from tests.plugins.sources.otlp.conftest import OtlpApp

LIMIT = 4096
Code = grpc.StatusCode


class GrpcReceiver:
    """A receiver of metrics and logs that keeps what it gets and can be made to misbehave."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes, dict[str, str]]] = []
        self.script: deque[tuple[Any, str, bytes]] = deque()
        self.answer = b""
        self._trouble: Trouble | None = None
        self._port = 0
        self._listener: GrpcListener | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen, on the port that it had before."""
        services = {SERVICES[signal]: {"Export": self._method(signal)} for signal in ("metrics", "logs")}
        address = f"127.0.0.1:{self._port}"
        self._listener = GrpcListener(address, services, max_message_bytes=2**22, extra="x", setting="y")
        await self._listener.start()
        self._port = self._listener.port

    async def stop(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None

    async def trouble(self, kind: Trouble | None) -> None:
        """Misbehave like this from now on."""
        self._trouble = kind
        if kind == "absent":
            await self.stop()
        elif self._listener is None:
            await self.start()

    def _method(self, signal: str) -> Any:
        async def export(body: bytes, context: Any) -> bytes:
            if self.script:
                code, text, details = self.script.popleft()
                await context.abort(code, text, (("grpc-status-details-bin", details),) if details else ())
            if self._trouble == "hang":
                await asyncio.Event().wait()
            elif self._trouble == "busy":
                await context.abort(
                    Code.RESOURCE_EXHAUSTED, "later", (("grpc-status-details-bin", status_with_pause(0)),)
                )
            elif self._trouble == "error":
                await context.abort(Code.INTERNAL, "a defect")
            elif self._trouble == "too_large" and len(body) > LIMIT:
                await context.abort(Code.RESOURCE_EXHAUSTED, f"received message larger than max ({len(body)})")
            metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
            self.received.append((signal, body, metadata))
            return self.answer

        return export


def status_with_pause(seconds: int) -> bytes:
    """A status in which a receiver asks to come again."""
    info = RetryInfo()
    info.retry_delay.seconds = seconds
    held = AnyMessage()
    held.Pack(info)
    encoded: bytes = Status(code=8, details=[held]).SerializeToString()
    return encoded


@asynccontextmanager
async def receiving() -> AsyncIterator[GrpcReceiver]:
    """A receiver that listens."""
    receiver = GrpcReceiver()
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()


@asynccontextmanager
async def sending(folder: Path, url: str, **options: Any) -> AsyncIterator[OtlpSink]:
    """A started sink over gRPC."""
    settings = OtlpSinkSettings(url=url, protocol="grpc", **options)
    sink = OtlpSink(settings, make_context("otlp", folder))
    await sink.start()
    try:
        yield sink
    finally:
        await sink.stop()


class GrpcHarness(SinkHarness):
    """The sink and a receiver that keeps what it gets."""

    troubles = ("absent", "busy", "error", "too_large", "hang")

    def __init__(self, receiver: GrpcReceiver, folder: Path) -> None:
        self._receiver = receiver
        self._folder = folder

    def make_sink(self) -> Sink:
        """As the base says."""
        settings = OtlpSinkSettings(url=self._receiver.url, protocol="grpc", timeout_seconds=5.0)
        made: Sink = OtlpSink(settings, make_context("otlp", self._folder))
        return made

    async def trouble(self, kind: Trouble | None) -> None:
        """As the base says."""
        await self._receiver.trouble(kind)

    async def stored(self) -> Counter[int]:
        """As the base says."""
        found: Counter[int] = Counter()
        for signal, body, _ in self._receiver.received:
            if signal == "metrics":
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for metric in resource.scope_metrics[0].metrics:
                        if metric.name == "training.step":
                            found.update(point.as_int for point in metric.gauge.data_points)
        return found


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
async def test_the_contract_over_grpc(check: SinkCheck, tmp_path: Path) -> None:
    async with receiving() as receiver:
        await check(GrpcHarness(receiver, tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("code", "details", "pause", "kind"),
    [
        ("INVALID_ARGUMENT", "not a request", None, Poisoned),
        ("RESOURCE_EXHAUSTED", "Received message larger than max (5160305 vs. 4194304)", None, Poisoned),
        ("RESOURCE_EXHAUSTED", "grpc: received message after decompression larger than max 4194304", None, Poisoned),
        ("RESOURCE_EXHAUSTED", "larger than what is free", 3, Retry),
        ("RESOURCE_EXHAUSTED", "rate limit", None, Retry),
        ("UNAVAILABLE", "", 7, Retry),
        *(
            (code, "", None, Retry)
            for code in ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "DATA_LOSS")
        ),
        *((code, "", None, Retry) for code in ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "INTERNAL")),
    ],
)
def test_the_meaning_of_a_status(code: str, details: str, pause: int | None, kind: Any) -> None:
    trailing = {} if pause is None else {"grpc-status-details-bin": status_with_pause(pause)}
    answer: Any = classify(code, details, trailing)
    assert isinstance(answer, kind)
    assert code in answer.reason
    if isinstance(answer, Retry):
        assert answer.after_seconds == pause
        assert answer.timed_out == (code == "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("details", [b"", b"\xff", b"\x1a\x05\x0a\xff", "text", None, b"\x1a\x00", b"\x12\x03abc"])
def test_details_that_nobody_understands_ask_for_nothing(details: Any) -> None:
    assert retry_info(details) is None


async def test_statuses_partial_success_and_metadata(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"headers": {"X-Scope-OrgID": Secret("team")}, "token": Secret("t0k")}
    async with receiving() as receiver, sending(tmp_path, receiver.url, **options) as sink:
        receiver.script.append((Code.UNAVAILABLE, "full", status_with_pause(9)))
        answer = await sink.send(batch(row()))
        assert isinstance(answer, Retry)
        assert answer.after_seconds == 9
        receiver.script.append((Code.INVALID_ARGUMENT, "no", b""))
        assert isinstance(await sink.send(batch(row())), Poisoned)
        partial = ExportMetricsPartialSuccess(rejected_data_points=2, error_message="too old")
        receiver.answer = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
        assert await sink.send(batch(row(), start=1)) == Delivered()
        assert "too old" in caplog.text
        receiver.answer = b""
        assert await sink.send(batch(row(), Event(origin=ORIGIN, type="stalled"), start=2)) == Delivered()
    assert [signal for signal, _, _ in receiver.received] == ["metrics", "metrics", "logs"]
    metadata = receiver.received[0][2]
    assert (metadata["x-scope-orgid"], metadata["authorization"]) == ("team", "Bearer t0k")


async def test_another_lens_takes_it_over_tls_with_a_token(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = {"grpc_tls_certificate": str(certificate), "grpc_tls_key": str(key)}
    otlp = OtlpApp(tmp_path, grpc_listen="127.0.0.1:0", grpc_token=Secret("t0k"), **tls)
    await otlp.source.start()
    url = f"https://127.0.0.1:{otlp.source.grpc_port}"  # type: ignore[attr-defined]
    try:
        common = {"ca_file": str(certificate), "rows": "logs"}
        async with sending(tmp_path, url, token=Secret("t0k"), **common) as sink:
            await sink.check()
            await sink.start()
            assert await sink.send(batch(row(7, iteration=9))) == Delivered()
        async with sending(tmp_path, url, token=Secret("wrong"), **common) as sink:
            refused = await sink.send(batch(row(8)))
            with pytest.raises(LensError, match="set the right token"):
                await sink.check()
        assert isinstance(refused, Retry)
        assert "UNAUTHENTICATED" in refused.reason
        assert "wrong" not in refused.reason
        async with sending(tmp_path, url, token=Secret("t0k"), rows="logs", timeout_seconds=5) as sink:
            assert isinstance(await sink.send(batch(row(8))), Retry), "the system's authorities do not know it"
    finally:
        await otlp.source.stop()
    (stored,) = [record for record in otlp.gate.records if isinstance(record, StepMetrics)]
    assert (stored.row_step, stored.iteration, stored.values) == (7, 9, {"lm_loss": 0.5})


async def test_a_receiver_that_asks_for_a_certificate(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("server", "client", "stranger")}
    for folder in folders.values():
        folder.mkdir()
    files = {name: write_certificate(folder, name) for name, folder in folders.items()}
    server, client = files["server"], files["client"]
    tls = {"grpc_tls_certificate": str(server[0]), "grpc_tls_key": str(server[1])}
    otlp = OtlpApp(tmp_path, grpc_listen="127.0.0.1:0", grpc_client_ca_file=str(client[0]), **tls)
    await otlp.source.start()
    url = f"https://127.0.0.1:{otlp.source.grpc_port}"  # type: ignore[attr-defined]
    answers = {}
    try:
        for name in ("client", "stranger", ""):
            shown = {"client_certificate": str(files[name][0]), "client_key": str(files[name][1])} if name else {}
            options = {"ca_file": str(server[0]), "rows": "logs", "timeout_seconds": 5, **shown}
            async with sending(tmp_path, url, **options) as sink:
                answers[name] = await sink.send(batch(row(7)))
    finally:
        await otlp.source.stop()
    assert answers["client"] == Delivered()
    assert isinstance(answers["stranger"], Retry)
    assert isinstance(answers[""], Retry)


async def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    for url, protocol in (("https://127.0.0.1:1", "grpc"), ("https://127.0.0.1:1", "http")):
        settings = OtlpSinkSettings(url=url, protocol=protocol, ca_file=str(broken))
        with pytest.raises(ConfigurationError, match=r"broken\.pem"):
            await OtlpSink(settings, make_context("otlp", tmp_path)).start()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "http://c:4317/otlp"}, "gRPC has no paths"),
        ({"url": "https://c", "client_key": "k.pem"}, "one needs the other"),
        ({"url": "https://c", "ca_file": "/nowhere.pem"}, "ca_file"),
        ({"url": "http://c:4317/v1/metrics"}, "leave /v1/metrics out"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, str], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert({"protocol": "grpc", **options}, OtlpSinkSettings)
