"""A real Prometheus has what an SDK has sent to Lens by OTLP."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from tests.end_to_end.prometheus_world import world_in
from tests.end_to_end.running_lens import RunningLens, http_put, wait_for
from tests.plugins.sources.otlp.test_clients import run_training

POD = {"uid": "u-0", "name": "llama-0", "namespace": "ml", "workloads": [{"uid": "w-job", "name": "llama"}]}


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")
def test_prometheus_has_what_an_sdk_has_sent(tmp_path: Path, make_lens: Callable[..., RunningLens]) -> None:
    with world_in(tmp_path) as world:
        store = world.prometheus("store", "global: {scrape_interval: 1h}\n").start()
        sink = f'sinks: {{tsdb: {{type: prometheus, url: "{store.url}/api/v1/write"}}}}\n'
        running = make_lens(f"sources: {{otlp: {{}}, logs: {{}}}}\n{sink}").start()
        http_put(f"{running.url}/api/v1/directory", json={"pods": [POD]}).raise_for_status()
        kinds = {"metrics": OTLPMetricExporter, "logs": OTLPLogExporter, "traces": OTLPSpanExporter}
        run_training(*[kind(endpoint=f"{running.url}/v1/{signal}") for signal, kind in kinds.items()])

        def value_of(expression: str) -> float:
            (one,) = wait_for(lambda: store.query(expression), what=expression)
            return float(one["value"][1])

        mine = '{workload_name="llama",pod_name="llama-0",rank="1"}'
        assert value_of(f"megatron_training_loss{mine}") == 2.5
        assert value_of(f"skipped_total{mine}") == 2.0
        assert value_of(f"duration_seconds_sum{mine}") == 2.0
        assert value_of(f"histogram_count(native{mine})") == 2.0
        assert value_of(f"histogram_quantile(1, native{mine})") == pytest.approx(1.5, rel=0.1)
        assert value_of('target_info{job="train"}') == 1.0
