"""The page's variables and the examples' files: they lead to routes that are there, and Kubernetes takes them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from lens_plugins.sources.otlp.settings import STEP_ATTRIBUTES
from lens_plugins.sources.otlp.source import Otlp
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from lens_core import SeriesBatch
from lens_core.testing import LensFactory, make_context
from tests.docs.pages import DOCS, ROOT, blocks

EXAMPLES = ROOT / "examples" / "opentelemetry"


def collector() -> dict[str, Any]:
    loaded = yaml.safe_load((EXAMPLES / "collector.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_every_part_of_the_collectors_pipelines_is_defined() -> None:
    config = collector()
    for signal, pipeline in config["service"]["pipelines"].items():
        assert signal in ("metrics", "logs", "traces")
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(config[kind]), f"{signal}: {kind}"


def test_the_collector_sends_to_routes_that_are_there(tmp_path: Path) -> None:
    routes = {path for route in Otlp(Otlp.Settings(), make_context("otlp", tmp_path)).routes() for path in route.paths}
    assert {f"/{signal}" for signal in collector()["service"]["pipelines"]} == routes
    (exporter,) = [text for text in blocks("opentelemetry.md", "yaml") if "exporters" in text]
    # The exporter appends /v1/metrics and so on by itself.
    assert not re.search(r"endpoint: \S*/v1", exporter + (EXAMPLES / "collector.yaml").read_text())


@pytest.mark.parametrize("number", range(5))
def test_kubernetes_takes_the_example(number: int) -> None:
    documents = [*yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())]
    assert len(documents) == 5
    kubernetes_validate.validate(documents[number], "1.33", strict=True)


def test_the_environment_of_the_example_is_what_the_collectors_file_reads() -> None:
    text = (EXAMPLES / "collector.yaml").read_text()
    daemon_set = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text().split("---")[3])
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    assert set(re.findall(r"\$\{env:(\w+)\}", text)) == {variable["name"] for variable in container["env"]}
    ports = {port["containerPort"] for port in container["ports"]}
    assert ports == {int(port) for port in re.findall(r"0\.0\.0\.0:(\d+)", text)}


async def test_an_sdk_needs_the_variables_of_the_page_alone(lens: LensFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "a token of this test".replace(" ", "-")
    server = {"listen": "127.0.0.1:0", "ingest_token": token}
    running = await lens(config={"server": server, "sources": {"otlp": {}, "logs": {}}})
    (text,) = blocks("opentelemetry.md", "text")
    for line in text.split():
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value.replace("http://lens:8080", running.url).replace("TOKEN", token))
    exporter = OTLPMetricExporter()

    def log_once() -> None:
        meters = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=1e9)])
        meters.get_meter("test").create_gauge("loss").set(0.5)
        meters.shutdown()

    await asyncio.to_thread(log_once)
    (batch,) = await running.wait_for_records(1, SeriesBatch)
    assert batch.samples >= 1


def test_the_page_names_every_resource_attribute_and_step_attribute() -> None:
    from lens_plugins.sources.otlp import resources

    text = (DOCS / "opentelemetry.md").read_text()
    keys = (*STEP_ATTRIBUTES, *resources.WORKLOAD_KEYS, *resources.RUN_KEYS, *resources.RANK_KEYS)
    assert [key for key in keys if key not in text] == []
