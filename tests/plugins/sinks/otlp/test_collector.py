"""A real collector (rotel) between real clients and Lens, on both sides."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from lens_plugins.sinks.otlp.settings import OtlpSinkSettings
from lens_plugins.sinks.otlp.sink import OtlpSink
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from lens_core import Batch, Delivered, Event, Origin, Position, Record, SeriesBatch, StepMetrics
from lens_core.testing import LensFactory, make_context
from tests.end_to_end.running_lens import wait_for
from tests.plugins.sources.otlp.requests import values_of
from tests.plugins.sources.otlp.test_clients import check_everything_arrived, run_training
from tests.ports import free_port

ORIGIN = Origin(workload_uid="w-job", pod_name="llama-0", namespace="ml", rank=3)
needs_rotel = pytest.mark.skipif(find_spec("rotel") is None, reason="needs rotel (pip install lens-agent[test])")


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def collector(folder: Path, *exporter: str) -> Iterator[str]:
    """A running rotel that passes everything on; its address for OTLP over HTTP."""
    found = find_spec("rotel")
    assert found is not None
    assert found.origin is not None
    grpc_port, port = free_port(), free_port()
    command = [str(Path(found.origin).parent / "rotel-agent"), "start", "--exporter", "otlp", *exporter]
    command += ["--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}", "--otlp-http-endpoint", f"127.0.0.1:{port}"]
    command += ["--batch-timeout", "50ms", "--pid-file", str(folder / "rotel.pid"), "--log-file", str(folder / "rotel")]
    with (folder / "rotel.out").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_for(lambda: answers(port), what="rotel to listen")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@needs_rotel
async def test_what_a_collector_passes_on_arrives(lens: LensFactory, tmp_path: Path) -> None:
    running = await lens(config={"sources": {"otlp": {"grpc_listen": "127.0.0.1:0"}, "logs": {}}})
    port = running.component("otlp").grpc_port  # type: ignore[attr-defined]
    with collector(tmp_path, "--otlp-exporter-endpoint", f"http://127.0.0.1:{port}") as url:
        kinds = {"metrics": OTLPMetricExporter, "logs": OTLPLogExporter, "traces": OTLPSpanExporter}
        exporters = [kind(endpoint=f"{url}/v1/{signal}") for signal, kind in kinds.items()]
        await asyncio.to_thread(run_training, *exporters)
        await check_everything_arrived(running)


@needs_rotel
async def test_a_collector_takes_what_the_sink_sends_and_another_lens_reads_it(
    lens: LensFactory, tmp_path: Path
) -> None:
    running = await lens(config={"sources": {"otlp": {}, "logs": {}}})
    records: list[Record] = [
        StepMetrics(
            origin=ORIGIN,
            data_source="wandb",
            run_id="r1",
            row_step=step,
            sequence=step,
            event_time=1_795_000_000.5 + step,
            values={"lm_loss": 1 / step, "nan": float("nan")},
        )
        for step in range(1, 101)
    ]
    records.append(Event(origin=ORIGIN, type="checkpoint_saved", event_time=1_795_000_000.5, details={"path": "/x"}))
    exporter = ("--otlp-exporter-endpoint", running.url, "--otlp-exporter-protocol", "http")
    with collector(tmp_path, *exporter) as url:
        sink = OtlpSink(OtlpSinkSettings(url=url, rows="both"), make_context("otlp", tmp_path))
        await sink.check()
        batch = Batch(
            records=records, start=Position(0, 0), end=Position(1, 0), spool_id="s", pipeline="p", sink="otlp"
        )
        assert await sink.send(batch) == Delivered()
        rows = await running.wait_for_records(100)
        (event,) = await running.wait_for_records(1, Event)
        series = await running.wait_for_records(1, SeriesBatch)
        await sink.stop()
    assert sorted(map(repr, rows)) == sorted(
        repr(record).replace("cluster=''", "cluster='default'") for record in records[:-1]
    )
    assert (event.type, event.details) == ("checkpoint_saved", {"path": "/x"})
    assert any(name.startswith("training_loss{") and 'rank="3"' in name for name in values_of(series))
