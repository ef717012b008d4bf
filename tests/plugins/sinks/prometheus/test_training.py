from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.sinks.prometheus.latest import LatestValues, PrometheusMetrics, exposition
from lens_plugins.sinks.prometheus.training import TABLE, TrainingSeries, plain, training_name
from lens_plugins.sources.wandb_api import WandbApi
from prometheus_client.parser import text_string_to_metric_families

from lens_core import Delivered, Event, Measurement, Origin, Pod, StepMetrics, WorkloadReference
from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from tests.plugins.sinks.prometheus.conftest import Bench, series_batch
from tests.plugins.sinks.prometheus.store import Store
from tests.plugins.sources.ingest_app import IngestApp
from tests.plugins.sources.remote_write.wire import labels_of

ORIGIN = Origin(workload_uid="w1", pod_name="p", cluster="c", rank=0)


def row(step: int, origin: Origin = ORIGIN, **values: float) -> StepMetrics:
    return StepMetrics(
        origin=origin,
        data_source="log",
        row_step=step,
        iteration=step,
        run_id="r1",
        event_time=100.0 + step,
        values=values,
    )


def shown(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    families = text_string_to_metric_families(text.decode())
    return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}


async def test_rows_are_written_with_the_devices_series(store: Store) -> None:
    bench = Bench(store.url)
    pod = Pod(uid="u", name="p", namespace="ml", workloads=[WorkloadReference(uid="w1", name="llama")])
    bench.directory.add_pods([pod])
    origin = Origin(pod_uid="u", pod_name="p", namespace="ml")
    rows = [row(2, origin, lm_loss=math.nan), row(1, origin, lm_loss=2.5, elapsed_time_per_iteration_ms=1500.0)]
    assert await bench.send(*rows, series_batch("up")) == Delivered()
    own = store.taken[0]
    found = {labels_of(one)["__name__"]: one for one in own.timeseries}
    assert labels_of(found["lens_training_loss"]) == {
        "__name__": "lens_training_loss",
        "data_source": "log",
        "metric": "lm_loss",
        "namespace": "ml",
        "pod_name": "p",
        "pod_uid": "u",
        "workload_name": "llama",
        "workload_uid": "w1",
    }
    samples = found["lens_training_loss"].samples
    assert [sample.timestamp for sample in samples] == [101_000, 102_000]
    assert samples[0].value == 2.5
    assert math.isnan(samples[1].value)
    assert found["lens_training_iteration_seconds"].samples[0].value == 1.5
    assert labels_of(found["lens_training_run_info"])["run_id"] == "r1"
    for one in own.timeseries:
        assert [label.name for label in one.labels] == sorted(labels_of(one))
    await bench.sink.stop()


async def test_events_are_the_time_of_the_newest_of_their_type(store: Store) -> None:
    bench = Bench(store.url)
    failed = Event(origin=ORIGIN, type="training_failed", data_source="log", event_time=104.5, details={"line": "x"})
    await bench.send(failed, Event(origin=ORIGIN, type="stalled", event_time=101.0))
    found = {labels_of(one)["type"]: one for one in store.taken[0].timeseries}
    assert labels_of(found["training_failed"]) == {
        "__name__": "lens_training_event_timestamp_seconds",
        "cluster": "c",
        "data_source": "log",
        "pod_name": "p",
        "rank": "0",
        "type": "training_failed",
        "workload_uid": "w1",
    }
    (sample,) = found["training_failed"].samples
    assert (sample.value, sample.timestamp) == (104.5, 104_500)
    await bench.sink.stop()


async def test_rows_may_stay_out(store: Store) -> None:
    bench = Bench(store.url, training=False, federate=False)
    assert await bench.send(row(1, loss=1.0)) == Delivered(filtered=1)
    assert store.requests == []


async def test_measurements_are_series(store: Store) -> None:
    bench = Bench(store.url)
    points = [
        Measurement(name="wandb.runs.completed", value=3.0, tags={"git branch": "main"}, event_time=5.0),
        Measurement(name="nothing", value=None),
    ]
    assert await bench.send(*points) == Delivered()
    (one,) = store.taken[0].timeseries
    assert labels_of(one) == {"__name__": "wandb_runs_completed", "git_branch": "main"}
    await bench.sink.stop()


async def test_federate_shows_the_latest_of_each(tmp_path: Path) -> None:
    bench = Bench(None)
    await bench.send(row(1, loss=3.0), row(2, loss=2.0), row(1, Origin(workload_uid="w2"), loss=math.inf))
    await bench.send(row(1, loss=9.0))
    app = IngestApp(WandbApi, tmp_path, sinks=[bench.sink])
    async with app.client() as client:
        for path in ("/federate", "/api/v1/federate"):
            answer = await client.get(path)
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = shown(answer.content)
    losses = {labels["workload_uid"]: value for labels, value in found["lens_training_loss"]}
    assert losses == {"w1": 2.0, "w2": math.inf}
    assert [labels["run_id"] for labels, _ in found["lens_training_run_info"]] == ["r1", "r1"]
    assert found["lens_training_last_update_timestamp_seconds"] == [({}, 102.0)]


async def test_run_info_follows_the_run() -> None:
    bench = Bench(None)
    await bench.send(row(1, loss=1.0))
    later = StepMetrics(
        origin=ORIGIN, data_source="log", row_step=1, run_id="r2", event_time=500.0, values={"loss": 1.0}
    )
    await bench.send(later)
    text = exposition(bench.sink._latest.held_points())
    assert [labels["run_id"] for labels, _ in shown(text)["lens_training_run_info"]] == ["r2"]


def test_latest_values_are_bounded_in_number_and_age() -> None:
    now = 0.0
    metrics = SelfMetrics()
    latest = LatestValues(3, 60.0, PrometheusMetrics(metrics), clock=lambda: now)
    series = TrainingSeries(Directory())

    def take(*uids: str) -> None:
        rows = [
            StepMetrics(
                origin=Origin(workload_uid=uid), data_source="log", row_step=1, event_time=now, values={"loss": 1.0}
            )
            for uid in uids
        ]
        latest.update_points(point for point in series.make_points(rows) if point.series.name == "lens_training_loss")

    def held() -> list[Any]:
        found = shown(exposition(latest.held_points())).get("lens_training_loss", [])
        return sorted(labels["workload_uid"] for labels, _ in found)

    take("a", "b", "c", "d")
    assert held() == ["a", "b", "c"]
    assert "lens_federate_refused_total 1.0" in metrics.exposition().decode()
    now = 59.0
    take("c")
    now = 61.0
    take("d")
    assert held() == ["c", "d"]
    now = 200.0
    assert held() == []
    assert exposition(latest.held_points()) == b""


def test_labels_are_escaped() -> None:
    bench = Bench(None)
    points = bench.sink._training.make_points([row(1, Origin(workload_uid='a"b\\c\nd'), loss=1.0)])
    bench.sink._latest.update_points(points)
    found = shown(exposition(bench.sink._latest.held_points()))
    assert found["lens_training_loss"][0][0]["workload_uid"] == 'a"b\\c\nd'


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("lm_loss", "lens_training_loss"),
        ("train/loss", "lens_training_loss"),
        ("Eval/BLEU score", "lens_training_eval_bleu_score"),
        ("損失", "lens_training_value"),
        ("7b", "lens_training__7b"),
    ],
)
def test_names(metric: str, name: str) -> None:
    assert training_name(metric)[0] == name


def test_every_name_of_the_table_is_legal() -> None:
    assert all(plain(name.suffix) == name.suffix for name in TABLE.values())
