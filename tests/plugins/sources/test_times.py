"""Times of every unit at every entry that takes them; what is no time is refused and loses nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sources.records_api import RecordsApi
from lens_plugins.sources.wandb_api import WandbApi

from lens_core.model.times import epoch_seconds
from tests.plugins.sources.ingest_app import IngestApp

NOW = 1_790_000_000.25


@given(st.floats(1e8, 4e9), st.sampled_from([1.0, 1e3, 1e6, 1e9]))
def test_every_unit_is_understood(seconds: float, factor: float) -> None:
    assert epoch_seconds(seconds * factor) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("moment", [-1.0, float("nan"), float("inf"), -float("inf"), 1e22, 1e20, 2e10])
def test_what_is_no_time_is_refused(moment: float) -> None:
    with pytest.raises(ValueError, match="is no time"):
        epoch_seconds(moment)


@pytest.mark.parametrize("factor", [1, 1000, 1_000_000])
async def test_wandb_points_and_logs(tmp_path: Path, factor: int) -> None:
    app = IngestApp(WandbApi, tmp_path)
    points = [{"name": "a", "value": 1.0, "step": step, "timestamp": NOW * factor} for step in (1, 2)]
    points.append({"name": "a", "value": 1.0, "step": 3, "timestamp": -5.0})
    answer = (await app.post("/v1/wandb/metrics", json={"pod_name": "p", "metrics": points})).json()
    assert [rejection["index"] for rejection in answer["rejected"]] == [2]
    logs = [{"step": 1, "timestamp": NOW * factor, "data": {"a": 1}}, {"step": 2, "timestamp": 1e30, "data": {"a": 1}}]
    answer = (await app.post("/v1/wandb/logs", json={"pod_name": "p", "logs": logs})).json()
    assert [rejection["index"] for rejection in answer["rejected"]] == [1]
    detection = {"pod_name": "p", "timestamp": NOW * factor, "evidence": {}}
    assert (await app.post("/v1/wandb/detection", json=detection)).status_code == 200
    times: list[Any] = [getattr(record, "event_time", None) for record in app.gate.records]
    assert times == pytest.approx([NOW] * 4)
    for body in ({"pod_name": "p", "timestamp": -1, "metrics": points[:1]}, {**detection, "timestamp": -1}):
        path = "/v1/wandb/metrics" if "metrics" in body else "/v1/wandb/detection"
        assert (await app.post(path, json=body)).status_code == 400


async def test_records(tmp_path: Path) -> None:
    app = IngestApp(RecordsApi, tmp_path)
    event = {"record": "event", "type": "resumed", "origin": {"pod_name": "p"}}
    records = [{**event, "event_time": moment} for moment in (NOW, NOW * 1000, -3)]
    answer = (await app.post("/v1/records", json={"version": 1, "records": records})).json()
    assert [rejection["index"] for rejection in answer["rejected"]] == [1, 2]  # an envelope's times are seconds
    times: list[Any] = [getattr(record, "event_time", None) for record in app.gate.records]
    assert times == pytest.approx([NOW])


async def test_points_of_the_hook_count_as_those_of_the_wandb_routes(tmp_path: Path) -> None:
    app = IngestApp(RecordsApi, tmp_path)
    row = {
        "record": "step_metrics",
        "origin": {"pod_name": "p"},
        "data_source": "wandb",
        "values": {"a": 1.0, "b": 2.0},
    }
    rows = [{**row, "row_step": step} for step in range(3)]
    await app.post("/v1/records", json={"version": 1, "records": rows})
    await app.post("/v1/records", json={"version": 1, "records": [{**rows[0], "data_source": "log"}]})
    await app.post("/v1/records", json={"version": 99, "records": rows})
    text = app.metrics.exposition().decode()
    assert "wandb_metrics_data_points_total 6.0" in text
    assert 'wandb_requests_total{type="records"} 2.0' in text
    assert 'wandb_request_errors_total{error_type="RequestParameterInvalid",type="records"} 1.0' in text
    assert 'wandb_request_duration_seconds_count{type="records"} 1.0' in text
