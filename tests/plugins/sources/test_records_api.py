from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from lens_plugins.sources.records_api import RecordsApi

from lens_core import Origin, StepMetrics
from lens_core.model.records import encode_envelope
from tests.plugins.sources.ingest_app import IngestApp

ROW = {"record": "step_metrics", "data_source": "wandb", "run_id": "r", "row_step": 1, "values": {"loss": 1}}


@pytest.fixture
def app(ingest_app: Callable[..., IngestApp]) -> IngestApp:
    return ingest_app(RecordsApi)


async def test_the_hooks_envelope_gives_its_origin_to_every_record(app: IngestApp) -> None:
    own = {**ROW, "origin": {"pod_name": "other"}}
    sent = {
        "version": 1,
        "producer": "lens-hook/0.1.0",
        "origin": {"workload_uid": "w", "rank": 3},
        "records": [ROW, own],
    }
    answer = await app.post("/api/v1/records", json=sent)
    assert (answer.status_code, answer.json()) == (200, {"success": True, "accepted": 2, "rejected": []})
    assert [record.origin for record in app.gate.records] == [
        Origin(workload_uid="w", rank=3),
        Origin(pod_name="other"),
    ]


async def test_messagepack_between_lenses(app: IngestApp) -> None:
    row = StepMetrics(origin=Origin(pod_uid="u"), data_source="wandb", row_step=2, values={"a": float("inf")})
    headers = {"Content-Type": "application/msgpack"}
    answer = await app.post("/v1/records", content=encode_envelope([row]), headers=headers)
    assert answer.json()["accepted"] == 1
    assert app.gate.records == [row]


@pytest.mark.parametrize("pack", [lambda sent: json.dumps(sent).encode(), msgspec.msgpack.encode])
async def test_bad_records_lose_no_other_and_are_named(app: IngestApp, pack: Callable[[Any], bytes]) -> None:
    known = {**ROW, "origin": {"workload_uid": "w"}}
    sent = {"version": 1, "records": [{"record": "unknown"}, known, ROW, {**known, "row_step": "x"}]}
    kind = "json" if pack is not msgspec.msgpack.encode else "msgpack"
    answer = await app.post("/v1/records", content=pack(sent), headers={"Content-Type": f"application/{kind}"})
    assert answer.json()["accepted"] == 1
    assert [item["index"] for item in answer.json()["rejected"]] == [0, 2, 3]


async def test_a_later_version_is_refused_in_words(app: IngestApp) -> None:
    answer = await app.post("/v1/records", json={"version": 2, "records": []})
    assert (answer.status_code, "update the daemon first" in answer.json()["message"]) == (400, True)


async def test_a_single_record_of_nobody_is_400(app: IngestApp) -> None:
    answer = await app.post("/v1/records", json={"version": 1, "records": [ROW]})
    assert answer.status_code == 400
