"""A real Prometheus and a real vmagent scrape, Lens attaches, real stores answer PromQL with the same values."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.end_to_end.prometheus_world import PROGRAMS, Program, World, scraping, world_in
from tests.end_to_end.running_lens import RunningLens, http_get, http_post, http_put, wait_for

POD = {
    "uid": "u-0",
    "name": "llama-0",
    "namespace": "ml",
    "node": "n1",
    "phase": "Running",
    "workloads": [
        {"uid": "w-set", "name": "llama-set", "parent_uid": "w-job"},
        {"uid": "w-job", "name": "llama", "kind": "PyTorchJob"},
    ],
}
LABELS = {"namespace": "ml", "pod": "llama-0"}
ATTACHED = {"pod_name": "llama-0", "pod_uid": "u-0", "workload_name": "llama", "workload_uid": "w-job"}
ALL = '{__name__=~"node_.*|up|scrape_.*"}[10m]'

pytestmark = [
    pytest.mark.slow("waits for scrape intervals of a real Prometheus"),
    pytest.mark.skipif(
        not all(map(shutil.which, PROGRAMS)), reason="needs prometheus, prometheus-node-exporter, victoria-metrics"
    ),
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with world_in(tmp_path) as made:
        yield made


def lens_writing_to(make_lens: Callable[..., RunningLens], **urls: str) -> RunningLens:
    sinks = "".join(f'  {name}: {{type: prometheus, url: "{url}"}}\n' for name, url in urls.items())
    lens = make_lens(f"sources: {{remote_write: {{}}, records_api: {{}}}}\nsinks:\n{sinks}").start()
    http_put(f"{lens.url}/api/v1/directory", json={"pods": [POD]}).raise_for_status()
    return lens


def values(store: Program, expression: str = ALL) -> dict[tuple[tuple[str, str], ...], list[tuple[float, str]]]:
    """Every series with its samples as the store gives them, without the labels that Lens adds."""
    found = {}
    for one in store.query(expression):
        labels = {name: value for name, value in one["metric"].items() if name not in ATTACHED}
        found[tuple(sorted(labels.items()))] = [(stamp, value) for stamp, value in one["values"]]
    return found


def samples(store: Program, expression: str = ALL) -> int:
    return sum(len(one) for one in values(store, expression).values())


def assert_same(stored: Any, sent: Any, *, at_least: int) -> None:
    """All that is stored was sent, in its order and with its text (which is exact); nothing between is missing."""
    assert len(stored) >= at_least
    for key, found in stored.items():
        whole = sent[key]
        first = whole.index(found[0])
        assert found == whole[first : first + len(found)]


def test_attached_series_come_back_from_both_kinds_of_store(
    world: World, make_lens: Callable[..., RunningLens]
) -> None:
    exporter = world.node_exporter().start()
    victoria = world.victoria_metrics().start()
    store = world.prometheus("store", "global: {}\n").start()
    lens = lens_writing_to(make_lens, victoria=f"{victoria.url}/api/v1/write", store=f"{store.url}/api/v1/write")
    sender = world.prometheus("sender", scraping(exporter.url, LABELS, f"{lens.url}/prometheus")).start()
    wait_for(
        lambda: samples(store, 'node_cpu_seconds_total{workload_uid="w-job"}[10m]') > 50, 60, "series with a workload"
    )
    sender_values = values(sender)
    assert_same(values(store), sender_values, at_least=300)
    for one in store.query("node_cpu_seconds_total"):
        assert one["metric"].items() >= ATTACHED.items()
    http_get(f"{victoria.url}/internal/force_flush").raise_for_status()
    wait_for(lambda: samples(victoria) > 1000, 240, "VictoriaMetrics to show what it has")
    stored = victoria.query('node_cpu_seconds_total{workload_uid="w-job"}')
    assert stored
    assert all(one["metric"].items() >= ATTACHED.items() for one in stored)
    found = values(victoria)
    sender_values = values(sender)
    for key, shown in found.items():
        sent = dict(sender_values[key])
        for stamp, value in shown:
            # VictoriaMetrics keeps decimal numbers of 15 digits.
            assert math.isclose(float(value), float(sent[stamp]), rel_tol=1e-14)
    text = http_get(f"{lens.url}/metrics").text
    assert 'lens_remote_write_series_total{result="unattached"} 0.0' in text


def test_runs_of_series_of_a_real_sender_are_stored_as_they_are(
    world: World, make_lens: Callable[..., RunningLens]
) -> None:
    exporter = world.node_exporter().start()
    store = world.prometheus("store", "global: {}\n").start()
    lens = lens_writing_to(make_lens, store=f"{store.url}/api/v1/write")
    config = scraping(exporter.url, LABELS, f"{lens.url}/prometheus", jobs=8, samples_per_request=1500)
    sender = world.prometheus("sender", config).start()
    wait_for(lambda: counted(lens, "lens_remote_write_known_series_total") > 20_000, 240, "series in whole runs")
    assert_same(values(store), values(sender), at_least=8 * 300)
    for one in store.query("node_cpu_seconds_total"):
        assert one["metric"].items() >= ATTACHED.items()


def counted(lens: RunningLens, name: str) -> float:
    """A metric of the daemon without labels."""
    lines = http_get(f"{lens.url}/metrics").text.splitlines()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(f"{name} "))


def test_store_that_is_down_for_a_while_misses_nothing(world: World, make_lens: Callable[..., RunningLens]) -> None:
    exporter = world.node_exporter().start()
    store = world.prometheus("store", "global: {}\n").start()
    lens = lens_writing_to(make_lens, store=f"{store.url}/api/v1/write")
    sender = world.prometheus("sender", scraping(exporter.url, LABELS, f"{lens.url}/prometheus")).start()
    wait_for(lambda: samples(store, "up[10m]") >= 2, 240, "the first samples")
    store.stop()
    before = samples(sender, "up[10m]")
    wait_for(lambda: samples(sender, "up[10m]") >= before + 8, 240, "samples while the store is down")
    lens.kill()
    lens.start(listen=lens.url.removeprefix("http://"))
    store.start()
    target = samples(sender, "up[10m]") + 3
    wait_for(lambda: samples(store, "up[10m]") + 1 >= target, 240, "everything to arrive")
    stored = values(store)
    assert_same(stored, values(sender), at_least=300)
    (ups,) = values(store, "up[10m]").values()
    gaps = [after[0] - previous[0] for previous, after in pairwise(ups)]
    assert max(gaps) < 2.5
    assert len(store.query("up[10m]")) == 1


def test_vmagent_is_served_and_late_knowledge_attaches(world: World, make_lens: Callable[..., RunningLens]) -> None:
    exporter = world.node_exporter().start()
    store = world.prometheus("store", "global: {}\n").start()
    lens = lens_writing_to(make_lens, store=f"{store.url}/api/v1/write")
    http_put(f"{lens.url}/api/v1/directory", json={"pods": []}).raise_for_status()
    late = {"namespace": "ml", "pod": "late-0"}
    world.vmagent(exporter.url, late, f"{lens.url}/prometheus").start()
    wait_for(lambda: store.query('up{pod="late-0", workload_uid=""}'), 240, "a series without a workload")
    pod = {**POD, "uid": "u-late", "name": "late-0"}
    httpx.patch(f"{lens.url}/api/v1/directory", json={"pods": [pod]}).raise_for_status()
    wait_for(lambda: store.query('up{pod_uid="u-late", workload_uid="w-job"}'), 240, "a series with its workload")


def test_prometheus_scrapes_the_loss(world: World, make_lens: Callable[..., RunningLens]) -> None:
    lens = make_lens("sources: {records_api: {}}\nsinks: {scrape: {type: prometheus}}\n").start()
    row = {
        "record": "step_metrics",
        "origin": {"workload_uid": "w-7"},
        "data_source": "wandb",
        "row_step": 3,
        "run_id": "run-1",
        "values": {"train/loss": 2.25},
    }
    http_post(f"{lens.url}/api/v1/records", json={"version": 1, "records": [row]}).raise_for_status()
    config = scraping(lens.url, {}).replace("job_name: node", "job_name: lens, metrics_path: /federate")
    store = world.prometheus("store", config).start()
    (found,) = wait_for(lambda: store.query('lens_training_loss{workload_uid="w-7"}'), 240, "the loss")
    assert found["value"][1] == "2.25"
    assert store.query('lens_training_run_info{workload_uid="w-7", run_id="run-1"}')
