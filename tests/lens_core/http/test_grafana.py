"""Grafana's JSON data sources: the seeds' own body, simPod's and SimpleJson's endpoints, wide rows, annotations."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from lens_core import Event
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import ORIGIN, row

# Seed 000, 3.3.2, with this workload and the day of its rows.
SEED_BODY: dict[str, Any] = {
    "targets": [
        {"target": "loss", "refId": "A", "type": "timeseries"},
        {"target": "accuracy", "refId": "B", "type": "timeseries"},
    ],
    "range": {"from": "2023-11-14T00:00:00Z", "to": "2023-11-15T00:00:00Z"},
    "variables": {"workload_uid": "workload-1", "data_source": "wandb"},
}


async def fill(asked: QueryApp) -> None:
    """Two runs of two metrics, one value that is no number, two events."""
    for run in ("r1", "r2"):
        rows = [
            row(step, run_id=run, values={"loss": math.nan if step == 2 else 1.0 / (step + 1), "accuracy": step / 10})
            for step in range(5)
        ]
        await asked.spool.deliver(*rows)
    for number, kind in enumerate(("checkpoint_saved", "out_of_memory")):
        await asked.spool.deliver(
            Event(origin=ORIGIN, type=kind, iteration=number, event_time=1_700_000_001.0 + number)
        )


async def post(asked: QueryApp, path: str, body: Any) -> Any:
    """The JSON of a POST below /api/v1 that must succeed."""
    response = await asked.client.post(f"/api/v1{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_save_and_test(asked: QueryApp) -> None:
    for path in ("/api/v1/", "/api/v1"):
        assert (await asked.client.get(path, follow_redirects=True)).status_code == 200


async def test_the_seeds_body(asked: QueryApp) -> None:
    await fill(asked)
    answer = await post(asked, "/query", SEED_BODY)
    assert [(s["target"], s["refId"]) for s in answer] == [
        ("loss, run r1", "A"),
        ("loss, run r2", "A"),
        ("accuracy, run r1", "B"),
        ("accuracy, run r2", "B"),
    ]
    assert answer[0]["datapoints"][:3] == [
        [1.0, 1_700_000_000_000],
        [0.5, 1_700_000_001_000],
        [None, 1_700_000_002_000],
    ]
    elsewhen = {**SEED_BODY, "range": {"from": "2024-11-14T00:00:00Z", "to": "2024-11-15T00:00:00.000Z"}}
    assert await post(asked, "/query", elsewhen) == []


@pytest.mark.parametrize(
    "where",
    [
        {"payload": {"workload_uid": "workload-1", "run_id": "r1"}},
        {"payload": '{"workload_uid": "workload-1", "run_id": "r1"}'},
        {"data": {"workload_uid": "workload-1", "run_id": "r1"}},
    ],
)
async def test_a_payload_chooses(asked: QueryApp, where: dict[str, Any]) -> None:
    await fill(asked)
    body = {"targets": [{"target": "{loss,accuracy}", "refId": "A", **where}], "range": SEED_BODY["range"]}
    assert [s["target"] for s in await post(asked, "/query", body)] == ["accuracy", "loss"]


async def test_filters_and_variables_choose(asked: QueryApp) -> None:
    await fill(asked)
    targets = [{"target": "loss", "refId": "A"}]
    filters = [{"key": "workload_uid", "operator": "=", "value": "workload-1"}]
    for name in ("filters", "adhocFilters"):
        assert len(await post(asked, "/query", {"targets": targets, name: filters})) == 2
    scoped = {"workload_uid": {"text": "w", "value": "workload-1"}, "run_id": {"text": "r", "value": ["r2"]}}
    assert len(await post(asked, "/query", {"targets": targets, "scopedVars": scoped})) == 1
    response = await asked.client.post("/api/v1/query", json={"targets": targets})
    assert response.status_code == 400
    assert "workload_uid is required" in response.json()["message"]


async def test_few_points_and_aggregates(asked: QueryApp) -> None:
    await asked.spool.deliver(*(row(step) for step in range(1000)))
    payload = {"workload_uid": "workload-1"}
    body = {"targets": [{"target": "loss", "refId": "A", "payload": payload}], "maxDataPoints": 50}
    (found,) = await post(asked, "/query", body)
    assert 20 < len(found["datapoints"]) <= 50
    body = {"targets": [{"target": "loss", "payload": {**payload, "aggregate": "count", "interval": "1d"}}]}
    assert sum(value for value, _ in (await post(asked, "/query", body))[0]["datapoints"]) == 1000


async def test_tables_frames_and_wide_rows(asked: QueryApp) -> None:
    await fill(asked)
    payload = {"workload_uid": "workload-1", "run_id": "r1"}
    targets = [
        {"target": "{loss,accuracy}", "refId": kind, "type": kind, "payload": payload} for kind in ("table", "frame")
    ]
    table, *frames = await post(asked, "/query", {"targets": targets})
    assert [column["text"] for column in table["columns"]][-2:] == ["accuracy", "loss"]
    assert table["rows"][1] == [1_700_000_001_000, 1, "r1", 1, "wandb", 0.1, 0.5]
    assert [field["name"] for field in frames[1]["fields"]] == ["time", "loss", "iteration"]
    assert frames[1]["fields"][1]["labels"] == {"data_source": "wandb", "run_id": "r1", "attempt": "1"}
    rows = await asked.json("/workloads/workload-1/metrics/rows", metrics="loss,accuracy", run_id="r1")
    assert rows[1] == {
        "time": 1_700_000_001_000,
        "iteration": 1,
        "run_id": "r1",
        "attempt": 1,
        "data_source": "wandb",
        "accuracy": 0.1,
        "loss": 0.5,
    }
    assert rows[2]["loss"] is None
    page = await asked.get("/workloads/workload-1/metrics/rows", metrics="loss", run_id="r1", limit=2)
    assert len(page.json()) == 2
    cursor = page.headers["x-next-cursor"]
    rest = await asked.get("/workloads/workload-1/metrics/rows", metrics="loss", run_id="r1", cursor=cursor)
    assert [row["iteration"] for row in rest.json()] == [2, 3, 4]


async def test_what_can_be_chosen(asked: QueryApp) -> None:
    await fill(asked)
    metrics = await post(asked, "/metrics", {})
    assert [metric["value"] for metric in metrics] == ["accuracy", "loss"]
    assert metrics[0]["payloads"][0]["name"] == "workload_uid"
    payload = {"workload_uid": "workload-1"}
    assert len(await post(asked, "/metrics", {"metric": "loss", "payload": payload})) == 2
    assert await post(asked, "/search", {"target": ""}) == ["accuracy", "loss"]
    assert await post(asked, "/search", {"target": "los"}) == ["loss"]
    assert await post(asked, "/search", {"target": "workloads"}) == ["workload-1"]
    for name, wanted in (("workload_uid", "workload-1"), ("data_source", "wandb"), ("run_id", "r1")):
        options = await post(asked, "/metric-payload-options", {"metric": "loss", "payload": payload, "name": name})
        assert options[0]["value"] == wanted
    for target, count in (
        ("workloads", 1),
        ("metrics workload-1", 2),
        ("runs(workload-1)", 2),
        ("sources workload-1", 1),
    ):
        found = await post(asked, "/variable", {"payload": {"target": target}})
        assert len(found) == count
        assert set(found[0]) == {"__text", "__value"}
    assert (await asked.client.post("/api/v1/variable", json={"payload": {"target": "nonsense"}})).status_code == 400
    keys = ["workload_uid", "cluster", "data_source", "run_id"]
    assert [key["text"] for key in await post(asked, "/tag-keys", {})] == keys
    assert await post(asked, "/tag-values", {"key": "cluster"}) == [{"text": "default"}]
    assert await post(asked, "/tag-values", {"key": "run_id"}) == [{"text": "r1"}, {"text": "r2"}]


async def test_events_are_annotations(asked: QueryApp) -> None:
    await fill(asked)
    body = {"annotation": {"name": "events", "query": "workload-1"}, "range": SEED_BODY["range"]}
    found = await post(asked, "/annotations", body)
    assert [(a["time"], a["title"], a["text"]) for a in found] == [
        (1_700_000_001_000, "checkpoint_saved", "iteration 0; trainer-0"),
        (1_700_000_002_000, "out_of_memory", "iteration 1; trainer-0"),
    ]
    query = '{"workload_uid": "workload-1", "types": ["out_of_memory"]}'
    assert len(await post(asked, "/annotations", {"annotation": {"query": query}})) == 1
    assert (await asked.client.post("/api/v1/annotations", json={})).status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/query", {"targets": [{"target": "loss"}], "variables": {"workload_uid": "workload-1", "cluster": "other"}}),
        ("/query", {"targets": [{"target": "loss", "payload": {"workload_uid": "workload-1", "cluster": "other"}}]}),
        ("/metrics", {"payload": {"workload_uid": "workload-1", "cluster": "other"}}),
        (
            "/metric-payload-options",
            {"name": "run_id", "payload": '{"workload_uid": "workload-1", "cluster": "other"}'},
        ),
        ("/variable", {"payload": {"target": "workloads", "cluster": {"text": "Other", "value": "other"}}}),
        ("/annotations", {"annotation": {"query": {"workload_uid": "workload-1", "cluster": "other"}}}),
        ("/annotations", {"annotation": {"query": "workload-1"}, "variables": {"cluster": "other"}}),
        ("/search?cluster=other", {"target": "loss"}),
    ],
)
async def test_another_cluster_has_nothing(asked: QueryApp, path: str, body: Any) -> None:
    await fill(asked)
    assert await post(asked, path, body) == []
    here = json.loads(json.dumps(body).replace("other", "default"))
    assert await post(asked, path.replace("other", "default"), here) != []
