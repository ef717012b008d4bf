"""Built-in sinks and sources go through the contract checks of their kind."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import cramjam
import psycopg
import pytest
from lens_plugins.detectors.pattern import Pattern, PatternSettings
from lens_plugins.sinks.http import Http, HttpSettings
from lens_plugins.sinks.jsonl import Jsonl, JsonlSettings
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.settings import PostgreSQLSettings
from lens_plugins.sinks.prometheus.plugin import Prometheus
from lens_plugins.sinks.prometheus.settings import PrometheusSettings
from lens_plugins.sources.records_api import RecordsApi
from lens_plugins.sources.remote_write.settings import RemoteWriteSettings
from lens_plugins.sources.remote_write.source import RemoteWrite
from lens_plugins.sources.wandb_api import WandbApi

from lens_core import IngestRequest, NoSettings, Secret, Sink, StepMetrics
from lens_core.base.compression import decompress
from lens_core.model.records import decode_envelope
from lens_core.testing import (
    SINK_CHECKS,
    HttpReceiver,
    SinkHarness,
    Trouble,
    check_detector,
    check_source,
    make_context,
)
from lens_core.testing.receiver import Received
from lens_core.testing.sinks import SinkCheck
from tests.plugins.sources.remote_write.wire import WriteRequest, labels_of, series
from tests.plugins.sources.remote_write.wire import request as wire_request


class JsonlHarness(SinkHarness):
    exactly_once = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "rows.jsonl"

    def make_sink(self) -> Sink:
        sink: Sink = Jsonl(JsonlSettings(path=str(self._path), sync=False), make_context("jsonl", self._folder))
        return sink

    async def stored(self) -> Counter[int]:
        rows = [json.loads(line) for line in self._path.read_bytes().splitlines()]
        return Counter(row["row_step"] for row in rows)


class HttpHarness(SinkHarness):
    troubles = ("absent", "busy", "error", "too_large", "garbage", "hang")

    def __init__(self, receiver: HttpReceiver, folder: Path) -> None:
        self._receiver = receiver
        self._folder = folder

    def make_sink(self) -> Sink:
        settings = HttpSettings(url=f"{self._receiver.url}/api/v1/records", timeout_seconds=5.0)
        sink: Sink = Http(settings, make_context("http", self._folder))
        return sink

    async def trouble(self, kind: Trouble | None) -> None:
        await self._receiver.trouble(kind)

    async def stored(self) -> Counter[int]:
        received = self._receiver.received
        envelopes = [decode_envelope(decompress(request.body, "zstd", 1 << 26)) for request in received]
        rows = [row for envelope in envelopes for row in envelope.records if isinstance(row, StepMetrics)]
        return Counter(row.row_step for row in rows)


class PostgreSQLHarness(SinkHarness):
    exactly_once = True

    def __init__(self, dsn: str, folder: Path) -> None:
        self._dsn = dsn
        self._folder = folder

    def make_sink(self) -> Sink:
        sink: Sink = PostgreSQL(PostgreSQLSettings(dsn=Secret(self._dsn)), make_context("store", self._folder))
        return sink

    async def stored(self) -> Counter[int]:
        async with await psycopg.AsyncConnection.connect(self._dsn) as connection:
            cursor = await connection.execute("select iteration, count(*) from training_performance group by 1")
            return Counter({int(iteration): int(count) for iteration, count in await cursor.fetchall()})


class PrometheusHarness(SinkHarness):
    troubles = ("absent", "busy", "error", "garbage", "hang")

    def __init__(self, receiver: HttpReceiver, folder: Path) -> None:
        self._receiver = receiver
        self._folder = folder

    def make_sink(self) -> Sink:
        settings = PrometheusSettings(url=f"{self._receiver.url}/api/v1/write", timeout_seconds=5.0)
        sink: Sink = Prometheus(settings, make_context("prometheus", self._folder))
        return sink

    async def trouble(self, kind: Trouble | None) -> None:
        await self._receiver.trouble(kind)

    async def stored(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for request in self._receiver.received:
            message = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(request.body)))
            for one in message.timeseries:
                labels = labels_of(one)
                if labels["__name__"] == "lens_training_loss" and labels.get("run_id", "run") == "run":
                    found.update(sample.timestamp // 1000 - 1_700_000_000 for sample in one.samples)
        return found


def answer_of_a_lens(request: Received) -> bytes:
    return b'{"success": true, "accepted": 1, "rejected": []}'


every_check = pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@every_check
async def test_jsonl(check: SinkCheck, tmp_path: Path) -> None:
    await check(JsonlHarness(tmp_path), tmp_path / "road")


@every_check
async def test_http(check: SinkCheck, tmp_path: Path) -> None:
    async with HttpReceiver(answer=answer_of_a_lens, max_body_bytes=1500) as receiver:
        await check(HttpHarness(receiver, tmp_path), tmp_path / "road")


@every_check
async def test_prometheus(check: SinkCheck, tmp_path: Path) -> None:
    async with HttpReceiver(status=204, max_body_bytes=1 << 20) as receiver:
        await check(PrometheusHarness(receiver, tmp_path), tmp_path / "road")


@every_check
async def test_postgresql(check: SinkCheck, tmp_path: Path, postgres_dsn: str) -> None:
    await check(PostgreSQLHarness(postgres_dsn, tmp_path), tmp_path / "road")


def post(path: str, body: object) -> IngestRequest:
    return IngestRequest(
        body=json.dumps(body).encode(),
        path=path,
        method="POST",
        headers={"content-type": "application/json"},
        query={},
    )


ROW = {"record": "step_metrics", "data_source": "wandb", "run_id": "r", "row_step": 1, "values": {"loss": 1}}
METRIC = {"name": "loss", "value": 0.5, "step": 1, "timestamp": 1704067200.0, "tags": {}}
WHO = {"workload_uid": "w", "pod_name": "p", "run_id": "r", "source": "wandb"}


async def test_records_api(tmp_path: Path) -> None:
    source = RecordsApi(NoSettings(), make_context("records_api", tmp_path))
    good = {"version": 1, "origin": {"workload_uid": "w"}, "records": [ROW]}
    await check_source(source, [post("/records", good)])


async def test_wandb_api(tmp_path: Path) -> None:
    source = WandbApi(NoSettings(), make_context("wandb_api", tmp_path))
    detection = {"workload_uid": "w", "evidence": {"wandb": {"project": "megatron-x"}}, "timestamp": 1704067200.0}
    logs = {**WHO, "logs": [{"step": 1, "timestamp": 1704067200.0, "data": {"loss": 1.0}}]}
    metrics = {**WHO, "metrics": [METRIC]}
    await check_source(
        source,
        [
            post("/wandb/metrics", metrics),
            post("/wandb/logs", logs),
            post("/wandb/detection", detection),
            post("/wandb/batch", {"metrics": metrics, "logs": logs, "detection": detection}),
        ],
    )


async def test_remote_write(tmp_path: Path) -> None:
    source = RemoteWrite(RemoteWriteSettings(), make_context("remote_write", tmp_path))
    body = wire_request(series({"__name__": "up", "job": "node"}, (1.0, 1_700_000_000_000)))
    headers = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
    good = IngestRequest(body=body, path="/write", method="POST", headers=headers, query={})
    await check_source(source, [good])


def test_the_pattern_detector(tmp_path: Path) -> None:
    settings = PatternSettings(line=r"step=(?P<iteration>\d+) loss=(?P<lm_loss>\S+)", framework="house")
    check_detector(Pattern(settings, make_context("house", tmp_path)))
