"""The exporters of Python's SDK over both transports, and a real collector between, against a whole Lens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from lens_core import LogLine, SeriesBatch
from lens_core.testing import LensFactory, RunningLens
from tests.certificates import write_certificate
from tests.plugins.sources.otlp.requests import series_of

RESOURCE = Resource.create({"service.name": "train", "k8s.pod.name": "llama-0", "dl.rank": 1, "nemo.run.id": "r1"})


def run_training(metric_exporter: Any, log_exporter: Any, span_exporter: Any) -> None:
    """A training that says what it does by the SDK; blocks, and flushes at its end."""
    native = View(instrument_name="native", aggregation=ExponentialBucketHistogramAggregation())
    reader = PeriodicExportingMetricReader(metric_exporter, export_interval_millis=1e9)
    meters = MeterProvider([reader], resource=RESOURCE, views=[native])
    meter = meters.get_meter("megatron", "1.0")
    meter.create_gauge("megatron.training.loss").set(2.5)
    meter.create_gauge("with.step").set(0.5, {"megatron.iteration": 3})
    meter.create_counter("skipped", unit="{iteration}").add(2)
    for seconds in (0.5, 1.5):
        meter.create_histogram("duration", unit="s").record(seconds)
        meter.create_histogram("native").record(seconds)
    meters.shutdown()
    loggers = LoggerProvider(resource=RESOURCE)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(log_exporter))
    loggers.get_logger("train").emit(LogRecord(body=" iteration      100/     500 | lm loss: 6.5E+00 |"))
    loggers.shutdown()
    tracers = TracerProvider(resource=RESOURCE)
    tracers.add_span_processor(SimpleSpanProcessor(span_exporter))
    with tracers.get_tracer("megatron").start_as_current_span("megatron.train_step") as span:
        span.set_attribute("megatron.iteration", 4)
    tracers.shutdown()


async def check_everything_arrived(running: RunningLens) -> None:
    """All that `run_training` has said is there, once."""
    rows = {(row.row_step, row.data_source): row for row in await running.wait_for_records(3)}
    assert sorted(rows) == [(3, "otlp"), (4, "otlp"), (100, "log")]
    assert rows[3, "otlp"].values == {"with.step": 0.5}
    assert (rows[3, "otlp"].run_id, rows[3, "otlp"].origin.rank) == ("r1", 1)
    assert "elapsed_time_per_iteration_ms" in rows[4, "otlp"].values
    batches = await running.wait_for_records(1, SeriesBatch)
    names = {label.value for one in series_of(batches) for label in one.labels if label.name == "__name__"}
    assert names == {
        *("megatron_training_loss", "skipped_total", "native", "target_info"),
        *("duration_seconds_bucket", "duration_seconds_sum", "duration_seconds_count"),
    }
    lines = await running.wait_for_records(1, LogLine)
    assert [line.origin.pod_name for line in lines] == ["llama-0"]


@pytest.fixture
async def running(lens: LensFactory) -> RunningLens:
    return await lens(config={"sources": {"otlp": {"grpc_listen": "127.0.0.1:0"}, "logs": {}}})


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
async def test_over_http(running: RunningLens, compression: Compression) -> None:
    def named(kind: Callable[..., Any], signal: str) -> Any:
        return kind(endpoint=f"{running.url}/v1/{signal}", compression=compression)

    exporters = (
        named(OTLPMetricExporter, "metrics"),
        named(OTLPLogExporter, "logs"),
        named(OTLPSpanExporter, "traces"),
    )
    await asyncio.to_thread(run_training, *exporters)
    await check_everything_arrived(running)


async def test_over_grpc(running: RunningLens) -> None:
    port = running.component("otlp").grpc_port  # type: ignore[attr-defined]
    exporters = [
        kind(endpoint=f"http://127.0.0.1:{port}", insecure=True)
        for kind in (GrpcMetricExporter, GrpcLogExporter, GrpcSpanExporter)
    ]
    await asyncio.to_thread(run_training, *exporters)
    await check_everything_arrived(running)


async def test_over_grpc_with_tls(lens: LensFactory, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = {"grpc_tls_certificate": str(certificate), "grpc_tls_key": str(key)}
    running = await lens(config={"sources": {"otlp": {"grpc_listen": "127.0.0.1:0", **tls}, "logs": {}}})
    port = running.component("otlp").grpc_port  # type: ignore[attr-defined]
    credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
    exporters = [
        kind(endpoint=f"https://127.0.0.1:{port}", credentials=credentials)
        for kind in (GrpcMetricExporter, GrpcLogExporter, GrpcSpanExporter)
    ]
    await asyncio.to_thread(run_training, *exporters)
    await check_everything_arrived(running)
