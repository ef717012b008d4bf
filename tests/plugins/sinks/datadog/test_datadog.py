from __future__ import annotations

import json
import logging
import os
import random
import string
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.datadog import Datadog, DatadogSettings
from lens_plugins.sinks.datadog.series import Builder, metric_name, tag
from lens_plugins.sinks.datadog.sink import pack_payloads

from lens_core import (
    Batch,
    ConfigurationError,
    Delivered,
    LensError,
    Measurement,
    Origin,
    Poisoned,
    Position,
    Record,
    Rejected,
    Retry,
    Secret,
    StepMetrics,
)
from lens_core.testing import make_context
from tests.durations import Stopwatch
from tests.forked import run_lens
from tests.plugins.collectors.wandb_cloud.wandb_server import KEY as WANDB_KEY
from tests.plugins.collectors.wandb_cloud.wandb_server import WandbServer, serving, table
from tests.plugins.sinks.datadog.intake import KEY, Intake, Scripted

NOW = time.time()


def sink_for(intake: Intake, folder: Path, **settings: Any) -> Datadog:
    chosen = DatadogSettings(**{"api_key": Secret(KEY), "url": intake.url, **settings})
    return Datadog(chosen, make_context("dd", folder))


def batch_of(records: Sequence[Record]) -> Batch:
    place = Position(1, 0)
    return Batch(records=records, start=Position(0, 0), end=place, spool_id="s", pipeline="p", sink="dd")


async def send(sink: Datadog, *records: Record) -> Any:
    await sink.start()
    try:
        return await sink.send(batch_of(records))
    finally:
        await sink.stop()


def gauge(name: str = "a.b", value: float | None = 1.5, **more: Any) -> Measurement:
    return Measurement(name=name, value=value, event_time=more.pop("event_time", time.time()), **more)


async def test_the_official_client_sends_the_same(intake: Intake, tmp_path: Path) -> None:
    from datadog_api_client import ApiClient, Configuration
    from datadog_api_client.v2.api.metrics_api import MetricsApi
    from datadog_api_client.v2.model.metric_intake_type import MetricIntakeType
    from datadog_api_client.v2.model.metric_payload import MetricPayload
    from datadog_api_client.v2.model.metric_point import MetricPoint
    from datadog_api_client.v2.model.metric_resource import MetricResource
    from datadog_api_client.v2.model.metric_series import MetricSeries

    now = int(time.time())
    rows = [("a.gauge", "gauge", 3, 1.25), ("a.count", "count", 1, 7.0), ("a.rate", "rate", 2, 0.5)]
    measurements = [
        Measurement(
            name=name,
            value=value,
            kind=kind,
            unit="byte",
            event_time=float(now),
            tags={"team": "x"},
            origin=Origin(node="n1"),
        )
        for name, kind, _, value in rows
    ]
    assert await send(sink_for(intake, tmp_path, tags=["env:test"]), *measurements) == Delivered()
    configuration = Configuration(host=intake.url)  # type: ignore[no-untyped-call]
    configuration.api_key["apiKeyAuth"] = KEY
    series = [
        MetricSeries(
            metric=name,
            type=MetricIntakeType(number),  # type: ignore[no-untyped-call]
            points=[MetricPoint(timestamp=now, value=value)],
            tags=["env:test", "team:x"],
            resources=[MetricResource(name="n1", type="host")],
            unit="byte",
        )
        for name, _, number, value in rows
    ]
    with ApiClient(configuration) as client:
        MetricsApi(client).submit_metrics(body=MetricPayload(series=series))  # type: ignore[no-untyped-call]
    ours, official = intake.bodies
    assert ours == official
    same = ("dd-api-key", "content-type", "accept")
    assert [intake.headers[0][name] for name in same] == [intake.headers[1][name] for name in same]


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
async def test_every_compression_arrives(intake: Intake, tmp_path: Path, compression: str) -> None:
    assert await send(sink_for(intake, tmp_path, compression=compression), gauge()) == Delivered()
    assert intake.series[0]["points"][0]["value"] == 1.5


async def test_bad_values_are_left_out_singly(intake: Intake, tmp_path: Path) -> None:
    answer = await send(
        sink_for(intake, tmp_path),
        gauge("good"),
        gauge("nan", float("nan")),
        gauge("infinite", float("inf")),
        gauge("old", event_time=time.time() - 4000),
        gauge("early", event_time=time.time() + 700),
        gauge("123"),
        gauge("no.data", None),
        gauge("fine"),
    )
    reasons = {
        1: "not_finite",
        2: "not_finite",
        3: "older_than_an_hour",
        4: "ahead_of_time",
        5: "no_name",
    }
    assert answer == Rejected(reasons, filtered=1)
    assert [series["metric"] for series in intake.series] == ["good", "fine"]


async def test_points_of_one_series_travel_together(intake: Intake, tmp_path: Path) -> None:
    now = time.time()
    records = [gauge("m", float(number), event_time=now - number, tags={"a": "b"}) for number in range(5)]
    await send(sink_for(intake, tmp_path), *records, gauge("m", 9.0))
    assert [len(series["points"]) for series in intake.series] == [5, 1]


async def test_rows_are_sent_only_on_request(intake: Intake, tmp_path: Path) -> None:
    row = StepMetrics(
        origin=Origin(workload_uid="W 1", pod_name="p-0", namespace="ml", rank=0),
        data_source="wandb",
        run_id="r",
        row_step=3,
        event_time=time.time(),
        values={"train/loss": 0.5, "bad": float("nan")},
    )
    assert await send(sink_for(intake, tmp_path), row) == Delivered(filtered=1)
    sink = sink_for(intake, tmp_path, rows=True)
    assert await send(sink, row) == Delivered()
    (series,) = intake.series
    assert series["metric"] == "lens.training.train_loss"
    assert set(series["tags"]) == {
        "workload:w_1",
        "pod_name:p-0",
        "kube_namespace:ml",
        "rank:0",
        "data_source:wandb",
        "run_id:r",
    }
    labels = {"component": "dd", "reason": "not_finite"}
    assert sink.context.metrics.registry.get_sample_value("lens_datadog_dropped_values_total", labels) == 1


async def test_a_success_with_errors_is_said(intake: Intake, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    intake.script = [Scripted(202, body=b'{"errors": ["odd point"]}')]
    with caplog.at_level(logging.WARNING):
        assert await send(sink_for(intake, tmp_path), gauge()) == Delivered()
    assert "odd point" in caplog.text


async def test_a_refused_key_is_said_clearly_once_and_never_shown(
    intake: Intake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "f" * 32
    sink = sink_for(intake, tmp_path, api_key=Secret(wrong))
    await sink.start()
    answers = [await sink.send(batch_of([gauge()])) for _ in range(3)]
    await sink.stop()
    with pytest.raises(LensError, match="refused the API key"):
        await sink.check()
    assert all(isinstance(answer, Retry) and answer.after_seconds == 60 for answer in answers)
    assert "refused the API key (HTTP 403)" in answers[0].reason
    assert sum("refused the API key" in record.message for record in caplog.records) == 1
    assert wrong not in caplog.text + repr(answers) + repr(sink.settings)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (Scripted(400, body=b'{"errors": ["bad point"]}'), Poisoned("HTTP 400: bad point")),
        (
            Scripted(400, body=b"plain HTTP was sent to an HTTPS port"),
            Retry("HTTP 400: plain HTTP was sent to an HTTPS port"),
        ),
        (
            Scripted(200, body=b"<html>sign in</html>"),
            Retry("HTTP 200: a web page is no answer of an intake; see `site` and `url`"),
        ),
        (Scripted(408), Retry("HTTP 408: scripted")),
        (Scripted(429, {"X-RateLimit-Reset": "7"}), Retry("HTTP 429: scripted", 7.0)),
        (Scripted(503, {"Retry-After": "3"}), Retry("HTTP 503: scripted", 3.0)),
        (Scripted(500, body=b"<html>"), Retry("HTTP 500: <html>")),
        (Scripted(404), Retry("HTTP 404: scripted")),
    ],
)
async def test_answers(intake: Intake, tmp_path: Path, script: Scripted, expected: Any) -> None:
    intake.script = [script]
    assert await send(sink_for(intake, tmp_path), gauge()) == expected


async def test_an_absent_intake_is_tried_again(tmp_path: Path) -> None:
    answer = await send(sink_for(Intake(), tmp_path, url="http://127.0.0.1:9"), gauge())
    assert isinstance(answer, Retry)


async def test_a_payload_that_is_too_large_goes_in_halves(intake: Intake, tmp_path: Path) -> None:
    intake.max_bytes = 1000
    random_text = random.Random(1)
    records = [
        gauge(f"m{number}", tags={"t": "".join(random_text.choices(string.ascii_lowercase, k=150))})
        for number in range(50)
    ]
    assert await send(sink_for(intake, tmp_path), *records) == Delivered()
    assert sorted(series["metric"] for series in intake.series) == sorted(f"m{number}" for number in range(50))
    assert intake.requests > 10


async def test_what_is_too_large_alone_is_refused_alone(intake: Intake, tmp_path: Path) -> None:
    intake.max_bytes = 400
    random_text = random.Random(1)
    long = {f"t{n}": "".join(random_text.choices(string.ascii_lowercase, k=190)) for n in range(5)}
    answer = await send(sink_for(intake, tmp_path), gauge("small"), gauge("large", tags=long))
    assert answer == Rejected({1: "too_large"})
    assert [series["metric"] for series in intake.series] == ["small"]


def test_payloads_keep_the_limits() -> None:
    settings = DatadogSettings(max_payload_bytes=5000, max_body_bytes=40_000, max_points=300)
    letters = random.Random(2)
    records = [
        gauge(f"m{number}", event_time=NOW, tags={"x": "".join(letters.choices(string.ascii_lowercase, k=60))})
        for number in range(1000)
    ]
    built = Builder(settings, ["env:test"]).build(records, NOW)
    payloads = list(pack_payloads(built.series, settings))
    assert sum(payload.count for payload in payloads) == 1000
    assert [payload.first for payload in payloads] == [sum(p.count for p in payloads[:n]) for n in range(len(payloads))]
    assert max(len(payload.body) for payload in payloads) <= 5000
    assert max(payload.count for payload in payloads) <= 300


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("wandb.push_to_main.overview.sps", "wandb.push_to_main.overview.sps"),
        ("train/loss (ema)", "train_loss__ema_"),
        ("9lives", "lives"),
        ("größe", "gr__e"),
        ("_x", "x"),
        ("CamelCase", "CamelCase"),
        ("", ""),
    ],
)
def test_names(text: str, name: str) -> None:
    assert metric_name(text) == name


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Env:Prod", "env:prod"),
        ("team:a b  c", "team:a_b_c"),
        ("k:v__w_", "k:v_w"),
        ("1st:x", "st:x"),
        ("a:" + "b" * 300, "a:" + "b" * 198),
        ("url:http://h/p?q=1", "url:http://h/p_q_1"),
    ],
)
def test_tags(text: str, clean: str) -> None:
    assert tag(text) == clean


@given(st.text(max_size=300))
def test_normalised_names_and_tags_stay_as_they_are(text: str) -> None:
    assert metric_name(metric_name(text)) == metric_name(text)
    assert tag(tag(text)) == tag(text)
    assert len(metric_name(text)) <= 200
    assert len(tag(text)) <= 200


async def test_no_key_is_an_error_of_configuration(
    intake: Intake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DD_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="DD_API_KEY"):
        await sink_for(intake, tmp_path, api_key=None).start()


async def test_settings_come_from_the_environment(
    intake: Intake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DD_API_KEY", KEY)
    monkeypatch.setenv("DD_URL", intake.url)
    monkeypatch.setenv("DD_ENV", "Staging")
    sink = Datadog(DatadogSettings(), make_context("dd", tmp_path, cluster="west"))
    await sink.check()
    assert await send(sink, gauge()) == Delivered()
    assert intake.series[0]["tags"] == ["env:staging", "cluster:west"]


def push(intake: Intake, server: WandbServer, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = {
        **os.environ,
        "WANDB_API_KEY": WANDB_KEY,
        "WANDB_ENTITY": "acme",
        "WANDB_PROJECT": "llm",
        "WANDB_BASE_URL": server.url,
        "DD_API_KEY": KEY,
        "DD_URL": intake.url,
        "LENS_DATA_DIR": str(folder),
        **environ,
    }
    return run_lens("collect", "wandb_cloud", "--push", "--json", environ=variables)


def test_from_wandb_to_datadog(intake: Intake, tmp_path: Path) -> None:
    with serving(WandbServer(table(time.time()))) as server:
        done = push(intake, server, tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["pushed"]
    measured = {found["name"]: found["value"] for found in answer["measurements"] if found["value"] is not None}
    assert {series["metric"]: series["points"][0]["value"] for series in intake.series} == measured
    assert len(measured) == 19


def test_a_push_that_does_not_arrive_fails(intake: Intake, tmp_path: Path) -> None:
    with serving(WandbServer(table(time.time()))) as server:
        watch = Stopwatch()
        done = push(intake, server, tmp_path, DD_API_KEY="f" * 32)
    assert watch.seconds() < 30
    assert done.returncode == 1
    assert "refused the API key" in done.stderr
    assert "f" * 32 not in done.stderr + done.stdout
