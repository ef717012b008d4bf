"""The source `otlp`: its routes, its port for gRPC, and the way from a request to records."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from prometheus_client import Counter as MetricCounter

from lens_core import (
    Context,
    IngestRequest,
    LogLine,
    MetricGroup,
    Record,
    Reply,
    Route,
    SelfMetrics,
    SeriesBatch,
    Source,
    StepMetrics,
)

from ..grpc_listener import GrpcTls
from ..log_batches import LineBatch
from ..log_entries import NO_IDENTITY
from ..log_latency import LogLatency
from .answers import JSON, PROTOBUF, encode_success, media_type, refuse, success
from .grpc_server import OtlpGrpcServer
from .json_form import Encoded, encode_json
from .log_records import LogRecords
from .metrics import Converted, MetricsConverter
from .schema import decode_request, request_class
from .settings import OtlpSettings
from .spans import Spans

# Bodies beyond this are decoded in a thread, so that other requests are answered meanwhile.
LARGE_BODY_BYTES = 64 * 1024
_ENCODINGS = ("gzip", "zstd", "snappy", "identity")
_KEYS = (b'"resourceLogs"', b'"resourceMetrics"', b'"resource_logs"', b'"resource_metrics"')
# Of Grafana, which asks for the names of metrics.
_QUESTION_KEYS = (b'"payload"', b'"metric"', b'"target"')
_WHOSE = "no resource says whose the lines are: k8s.pod.name, k8s.pod.uid, lens.workload.uid, host.name or service.name"
_MESSAGES = 5
_T = TypeVar("_T")


class Outcome(NamedTuple):
    """The result of a request: how many items were refused, and why in words."""

    rejected: int
    message: str


class _Found(NamedTuple):
    """The content of a request: records, and counts of the rest."""

    records: Sequence[Record]
    received: int
    filtered: int
    refused: Counter[str]
    messages: list[str]


class OtlpMetrics(MetricGroup):
    """Counts of the source's points and series."""

    def __init__(self, metrics: SelfMetrics) -> None:
        self.points = MetricCounter("lens_otlp_points_total", "Data points of metrics.", registry=metrics.registry)
        self.series = MetricCounter(
            "lens_otlp_series_total",
            "Series passed on, attached to a pod or not.",
            ["result"],
            registry=metrics.registry,
        )
        for result in ("attached", "unattached"):
            self.series.labels(result)


class Otlp(Source):
    """OpenTelemetry's metrics, logs and Megatron's spans, over HTTP (protobuf and JSON) and over gRPC."""

    name = "otlp"
    also_called = ("opentelemetry", "otel")
    Settings = OtlpSettings
    brings = (SeriesBatch, StepMetrics, LogLine)
    rejects = ("temporality", "bad_histogram")

    settings: OtlpSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._converter = MetricsConverter(self.settings, context.directory)
        self._metrics = context.metrics.group(OtlpMetrics)
        self._grpc: OtlpGrpcServer | None = None
        self._convert: dict[str, Callable[[Any, str], Awaitable[_Found]]] = {
            "metrics": self._convert_metrics,
            "logs": self._convert_logs,
            "traces": self._convert_spans,
        }

    @property
    def grpc_port(self) -> int:
        """The port on which gRPC is answered; 0 where it is not."""
        return self._grpc.port if self._grpc is not None else 0

    def routes(self) -> Sequence[Route]:
        """The paths of the specification, for exporters whose endpoint is the daemon's address."""
        common: dict[str, Any] = {
            "encodings": _ENCODINGS,
            "max_body_bytes": self.settings.max_body_bytes,
            "refusal": refuse,
            "bodies": {PROTOBUF: bytes, JSON: dict[str, Any]},
        }
        return [
            # Grafana asks at the first of these paths, and log shippers post to the second.
            Route(paths=["/metrics"], handler=self._receive_metrics, claims=is_otlp, **common),
            Route(paths=["/logs"], handler=self._receive_logs, claims=is_otlp, **common),
            Route(paths=["/traces"], handler=self._receive_traces, **common),
        ]

    async def start(self) -> None:
        """Load the messages, and listen for gRPC if that is wanted. Raises LensError."""
        await asyncio.to_thread(lambda: [request_class(signal) for signal in self._convert])
        settings = self.settings
        if settings.grpc_listen:
            tls = None
            if settings.grpc_tls_certificate:
                tls = GrpcTls(settings.grpc_tls_certificate, settings.grpc_tls_key, settings.grpc_client_ca_file)
            server = OtlpGrpcServer(
                settings.grpc_listen,
                self._export_grpc,
                settings.grpc_token,
                settings.max_body_bytes,
                self.context.logger,
                tls,
            )
            await server.start()
            self._grpc = server
            self.context.logger.info("Listening for gRPC. port=%d", server.port)

    async def stop(self) -> None:
        """Stop listening."""
        if self._grpc is not None:
            await self._grpc.stop()
            self._grpc = None

    async def _receive_metrics(self, request: IngestRequest) -> Reply:
        """Metrics of OpenTelemetry (OTLP): series, and rows of points that carry a training step."""
        return await self._answer(request, "metrics")

    async def _receive_logs(self, request: IngestRequest) -> Reply:
        """Log records of OpenTelemetry (OTLP), as log lines."""
        return await self._answer(request, "logs")

    async def _receive_traces(self, request: IngestRequest) -> Reply:
        """Spans of OpenTelemetry (OTLP): Megatron's steps and checkpoints; others are left out."""
        return await self._answer(request, "traces")

    async def _answer(self, request: IngestRequest, signal: str) -> Reply:
        encoding = media_type(request)
        encoded = Encoded(request.body)
        if encoding == JSON:
            encoded = await _call_for(request.body, lambda: encode_json(signal, request.body))
        outcome = await self._submit_request(signal, encoded, request.client)
        return success(signal, encoding, outcome.rejected, outcome.message)

    async def _export_grpc(self, signal: str, body: bytes) -> bytes:
        outcome = await self._submit_request(signal, Encoded(body), "")
        return encode_success(outcome.rejected, outcome.message)

    async def _submit_request(self, signal: str, encoded: Encoded, client: str) -> Outcome:
        """Return when the records of a request are safe. Raises RequestError."""
        message = await _call_for(encoded.body, lambda: decode_request(signal, encoded.body))
        found = await self._convert[signal](message, client)
        refused = found.refused + Counter(invalid=encoded.refused)
        received = found.received + encoded.refused
        if received:
            await self.gate.submit(found.records, received=received, filtered=found.filtered, rejected=refused)
        return Outcome(sum(refused.values()), "; ".join([*encoded.messages, *found.messages]))

    async def _convert_metrics(self, message: Any, client: str) -> _Found:
        converted = Converted()
        await _step_through(self._converter.convert_metrics(message, converted))
        found = _Found(converted.records(), converted.received, 0, converted.refused, converted.messages)
        self._metrics.points.inc(converted.received)
        for result, amount in (("attached", converted.attached), ("unattached", converted.series - converted.attached)):
            self._metrics.series.labels(result).inc(amount)
        return found

    async def _convert_logs(self, message: Any, client: str) -> _Found:
        lines = LineBatch(time.time(), client, self.settings.ignore_pods)
        records = LogRecords(self.settings.max_line_bytes, self.context.directory.complete, lines)
        await _step_through(records.convert_records(message))
        for node, ages in lines.latencies.items():
            self.context.metrics.group(LogLatency).observe(node, ages)
        # A record of several lines is refused as one.
        reasons = dict(lines.rejected)
        refused = Counter(reason if reason == NO_IDENTITY else "invalid" for reason in reasons.values())
        messages = [_WHOSE if reason == NO_IDENTITY else reason for reason in dict.fromkeys(reasons.values())]
        return _Found([*records.others, *lines.lines], records.received, lines.filtered, refused, messages[:_MESSAGES])

    async def _convert_spans(self, message: Any, client: str) -> _Found:
        spans = Spans()
        await _step_through(spans.convert_spans(message))
        return _Found(spans.records(), spans.received, spans.filtered, spans.refused, spans.messages)


async def _call_for(body: bytes, call: Callable[[], _T]) -> _T:
    """The answer of a call whose time grows with a body: in a thread for a large one."""
    return await asyncio.to_thread(call) if len(body) > LARGE_BODY_BYTES else call()


async def _step_through(work: Iterator[None]) -> None:
    """Do work in portions, with a turn for others after each."""
    for _ in work:
        await asyncio.sleep(0)


def is_otlp(request: IngestRequest) -> bool:
    """Whether a request to a path that others use, too, is one of OTLP: nobody else sends protobuf or these keys.

    At the paths that the specification names, an empty request is one as well, and so is what is no question at all.
    """
    if "protobuf" in request.headers.get("content-type", ""):
        return True
    body = request.body.strip()
    if body.startswith(b"{") and any(key in body for key in _KEYS):
        return True
    if request.path == "/v1/metrics":
        return body != b"" and not any(key in body for key in _QUESTION_KEYS)
    return body == b"{}" and request.path == "/v1/logs"
