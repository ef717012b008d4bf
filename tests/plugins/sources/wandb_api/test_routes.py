from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from lens_plugins.sources.wandb_api import WandbApi

from lens_core import Evidence, Origin, StepMetrics
from tests.plugins.sources.ingest_app import IngestApp

MakeApp = Callable[..., IngestApp]


@pytest.fixture
def app(ingest_app: MakeApp) -> IngestApp:
    return ingest_app(WandbApi)


def rows(app: IngestApp) -> list[StepMetrics]:
    return [record for record in app.gate.records if isinstance(record, StepMetrics)]


def metric(name: str = "loss", value: Any = 0.5, step: Any = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "step": step, "timestamp": 1704067200.123, "tags": {}, **more}


def body(*metrics: Any, **more: Any) -> dict[str, Any]:
    return {"source": "wandb", "workload_uid": "w", "pod_name": "p", "run_id": "r", "metrics": list(metrics), **more}


@pytest.mark.parametrize("prefix", ["/api/v1", "/v1"])
async def test_the_seeds_metrics_body_becomes_one_row(app: IngestApp, prefix: str) -> None:
    sent = body(metric("loss", 0.5234, 100), metric("accuracy", 0.9512, 100), metric("learning_rate", 0.0001, 100))
    answer = await app.post(f"{prefix}/wandb/metrics", json=sent)
    assert (answer.status_code, answer.json()) == (200, {"success": True, "accepted": 3, "rejected": []})
    [row] = rows(app)
    assert row.origin == Origin(workload_uid="w", pod_name="p")
    assert (row.data_source, row.run_id, row.row_step, row.event_time) == ("wandb", "r", 100, 1704067200.123)
    assert row.values == {"loss": 0.5234, "accuracy": 0.9512, "learning_rate": 0.0001}
    assert (app.gate.received, app.gate.rejected) == (3, 0)


async def test_the_seeds_curl_check_is_answered_with_200(app: IngestApp) -> None:
    answer = await app.post("/api/v1/wandb/metrics", json={"source": "wandb", "pod_name": "test", "metrics": []})
    assert (answer.status_code, answer.json()["success"]) == (200, True)


async def test_a_bare_nan_is_kept(app: IngestApp) -> None:
    sent = json.dumps(body(metric("loss", math.nan), metric("up", math.inf), metric("down", -math.inf)))
    assert "NaN" in sent
    answer = await app.post("/v1/wandb/metrics", content=sent)
    assert answer.json()["accepted"] == 3
    values = rows(app)[0].values
    assert math.isnan(values["loss"])
    assert (values["up"], values["down"]) == (math.inf, -math.inf)


async def test_wrong_items_among_a_thousand_lose_only_themselves(app: IngestApp) -> None:
    metrics: list[Any] = [metric("loss", step / 1000, step) for step in range(1000)]
    metrics[3] = metric("loss", "high", 3)
    metrics[500] = metric("loss", None, 500)
    metrics[700] = "not an object"
    metrics[800] = metric("loss", 1.0, 1.5)
    metrics[900] = metric("loss", 1.0, 2**63)
    metrics[901] = {"value": 1.0, "step": 1}
    answer = await app.post("/v1/wandb/metrics", json=body(*metrics))
    assert answer.status_code == 200
    assert [item["index"] for item in answer.json()["rejected"]] == [3, 500, 700, 800, 900, 901]
    assert answer.json()["rejected"][0]["reason"] == "value must be a number, not the text 'high'"
    assert answer.json()["accepted"] == 994
    assert [row.row_step for row in rows(app)] == [n for n in range(1000) if n not in (3, 500, 700, 800, 900, 901)]
    assert (app.gate.received, app.gate.rejected) == (1000, 6)


async def test_duplicate_names_of_a_step_are_rows_in_their_order(app: IngestApp) -> None:
    await app.post(
        "/v1/wandb/metrics", json=body(metric("loss", 1.0, 7), metric("acc", 2.0, 7), metric("loss", 3.0, 7))
    )
    first, second = rows(app)
    assert (first.values, second.values) == ({"loss": 1.0, "acc": 2.0}, {"loss": 3.0})
    assert first.row_step == second.row_step == 7
    assert first.sequence < second.sequence


async def test_the_same_body_again_has_the_same_sequences(app: IngestApp) -> None:
    sent = body(metric("loss", 1.0, 7), metric("loss", 3.0, 7), metric("loss", 3.0, 8))
    await app.post("/v1/wandb/metrics", json=sent)
    await app.post("/v1/wandb/metrics", json=sent)
    sequences = [row.sequence for row in rows(app)]
    assert sequences[:3] == sequences[3:]


async def test_steps_of_64_bits_backwards_and_whole_floats(app: IngestApp) -> None:
    steps = [2**63 - 1, -(2**63), 5, 3, 4.0, None]
    await app.post("/v1/wandb/metrics", json=body(*(metric("loss", 1.0, step) for step in steps)))
    assert [row.row_step for row in rows(app)] == [2**63 - 1, -(2**63), 5, 3, 4, 0]


async def test_metadata_names_and_booleans_are_metrics_like_others(app: IngestApp) -> None:
    await app.post("/v1/wandb/metrics", json=body(metric("step", 5.0), metric("history", 1.0), metric("ok", True)))
    assert rows(app)[0].values == {"step": 5.0, "history": 1.0, "ok": 1.0}


async def test_a_training_step_rescues_rows_without_a_step(app: IngestApp) -> None:
    metrics = [item for n in (10, 20) for item in (metric("train/loss", n, 0), metric("train/global_step", n, 0))]
    await app.post("/v1/wandb/metrics", json=body(*metrics))
    assert [(row.row_step, row.iteration) for row in rows(app)] == [(10, 10), (20, 20)]


async def test_tags_stay_in_the_row(app: IngestApp) -> None:
    await app.post("/v1/wandb/metrics", json=body(metric("loss", tags={"phase": "train"}), metric("acc")))
    assert rows(app)[0].tags == {"loss": {"phase": "train"}}


async def test_100_000_points_in_one_body(app: IngestApp) -> None:
    metrics = [metric(f"m{n % 20}", n, n // 20) for n in range(100_000)]
    answer = await app.post("/v1/wandb/metrics", json=body(*metrics))
    assert answer.json()["accepted"] == 100_000
    assert len(rows(app)) == 5000


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
async def test_compressed_bodies(app: IngestApp, encoding: str, compress: Callable[[bytes], bytes]) -> None:
    sent = compress(json.dumps(body(metric())).encode())
    answer = await app.post("/v1/wandb/metrics", content=sent, headers={"Content-Encoding": encoding})
    assert answer.json()["accepted"] == 1


async def test_a_bomb_is_413(app: IngestApp) -> None:
    bomb = zstandard.compress(b" " * (17 * 1024 * 1024))
    answer = await app.post("/v1/wandb/metrics", content=bomb, headers={"Content-Encoding": "zstd"})
    assert (answer.status_code, answer.json()["code"]) == (413, "PayloadTooLarge")
    large = await app.post("/v1/wandb/metrics", content=b" " * (17 * 1024 * 1024))
    assert large.status_code == 413


async def test_nobody_is_400(app: IngestApp) -> None:
    sent = {"source": "wandb", "metrics": [metric()]}
    answer = await app.post("/v1/wandb/metrics", json=sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "RequestParameterInvalid")
    assert "pod_name" in answer.json()["message"]


@pytest.mark.parametrize("sent", [b"", b"[]", b"{", b'{"metrics": 5, "pod_name": "p"}', b'{"pod_name": 5}'])
async def test_a_body_that_cannot_be_read_is_400(app: IngestApp, sent: bytes) -> None:
    answer = await app.post("/v1/wandb/metrics", content=sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "RequestParameterInvalid")


async def test_logs_are_one_row_each_and_their_texts_are_left_alone(app: IngestApp) -> None:
    logs = [
        {"step": 5, "timestamp": 1.5, "data": {"loss": 0.25, "note": "x", "eval": {"acc": 1}, "bad": "NaN"}},
        {"step": 6, "data": "not an object"},
        {"step": 7, "data": {"loss": 0.125}},
    ]
    answer = await app.post("/v1/wandb/logs", json={"workload_uid": "w", "run_id": "r", "logs": logs})
    assert (answer.json()["accepted"], answer.json()["rejected"][0]["index"]) == (2, 1)
    first, second = rows(app)
    assert math.isnan(first.values.pop("bad"))
    assert (first.row_step, first.event_time, first.values) == (5, 1.5, {"loss": 0.25, "eval.acc": 1.0})
    assert second.values == {"loss": 0.125}


async def test_detection_becomes_evidence(app: IngestApp) -> None:
    evidence = {"wandb": {"project": "x", "id": "run-1"}, "environment": {"PRIMUS_CONFIG": "/c"}}
    sent = {"source": "wandb", "workload_uid": "abc-123", "evidence": evidence, "hints": {}, "timestamp": 5.0}
    answer = await app.post("/v1/wandb/detection", json=sent)
    assert answer.status_code == 200
    assert (answer.json()["success"], answer.json()["workload_uids"]) == (True, ["abc-123"])
    [record] = app.gate.records
    assert isinstance(record, Evidence)
    assert (record.run_id, record.facts["environment"]) == ("run-1", {"PRIMUS_CONFIG": "/c"})


async def test_a_batch_has_one_result_per_part(app: IngestApp) -> None:
    sent: dict[str, Any] = {"detection": {"evidence": {}}, "metrics": body(metric()), "logs": None}
    answer = (await app.post("/v1/wandb/batch", json=sent)).json()
    assert answer["success"] is False
    assert answer["results"]["metrics"] == {"success": True, "accepted": 1, "rejected": []}
    assert answer["results"]["detection"]["code"] == "RequestParameterInvalid"


async def test_a_closed_door_is_503_with_retry_after_and_nothing_is_acknowledged(app: IngestApp) -> None:
    app.gate.closed = True
    for path, sent in {"metrics": body(metric()), "batch": {"metrics": body(metric())}}.items():
        answer = await app.post(f"/v1/wandb/{path}", json=sent)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")


async def test_the_seeds_counters_count(app: IngestApp) -> None:
    await app.post("/v1/wandb/metrics", json=body(metric(), metric("b")))
    await app.post("/v1/wandb/metrics", content=b"{")
    text = app.metrics.exposition().decode()
    assert 'wandb_requests_total{type="metrics"} 2.0' in text
    assert 'wandb_request_errors_total{error_type="RequestParameterInvalid",type="metrics"} 1.0' in text
    assert "wandb_metrics_data_points_total 2.0" in text
