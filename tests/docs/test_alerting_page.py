"""The alerting page and the rules it is about, with a real Prometheus."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT, blocks, run_console
from tests.end_to_end.conftest import make_lens
from tests.end_to_end.prometheus_world import World, world_in
from tests.end_to_end.running_lens import RunningLens, http_get, wait_for

__all__ = ["make_lens"]

RULES = ROOT / "dashboards/alerts.yaml"
OUT_OF_MEMORY = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with world_in(tmp_path) as found:
        yield found


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> set[str]:
    return {rule["alert"] for rule in rules() if "alert" in rule}


def test_the_rules_fire_when_they_should_and_stop(tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text((ROOT / "tests/data/alerts_test.yaml").read_text().replace("ALERTS", str(RULES)))
    done = subprocess.run(["promtool", "test", "rules", str(cases)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = set(re.findall(r"alertname: (\w+)", cases.read_text()))
    assert tried == alerts()


def test_the_rules_are_on_the_page_and_ask_for_metrics_that_exist(tmp_path: Path) -> None:
    page = (DOCS / "alerting.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.M)) == {
        rule["alert"] for rule in rules() if "alert" in rule
    }
    (console,) = blocks("alerting.md", "console")
    (tmp_path / "dashboards").symlink_to(RULES.parent)
    run_console(console, tmp_path)
    known = set(re.findall(r"`(lens_\w+)`", (DOCS / "metrics.md").read_text()))
    known.add("lens_training_event_timestamp_seconds")
    asked = {name for rule in rules() for name in re.findall(r"(?<![\w:])lens_\w+", rule["expr"])}
    assert asked <= known


def test_a_failure_in_a_log_becomes_an_alert(world: World, make_lens: Callable[..., RunningLens]) -> None:
    ours, theirs, _ = blocks("alerting.md", "yaml")
    config = yaml.safe_load(ours)
    config["sinks"].pop("store")  # it has its tests; this one is about what is scraped
    lens = make_lens(yaml.safe_dump({**config, "sources": {"logs": {}}})).start()
    scraping = yaml.safe_load(theirs) | {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}}
    scraping["rule_files"] = [str(RULES)]
    for job in scraping["scrape_configs"]:
        del job["authorization"]  # a neighbour on this machine needs no token
        job["static_configs"] = [{"targets": [lens.url.removeprefix("http://")]}]
    prometheus = world.prometheus("alerting", yaml.safe_dump(scraping)).start()
    line = {"message": OUT_OF_MEMORY, "kubernetes": {"pod_name": "llama-3", "pod_id": "uid-3"}}
    assert lens.post("/logs", [line]).status_code == 200

    def alert() -> dict[str, Any] | None:
        answer = http_get(f"{prometheus.url}/api/v1/alerts").json()
        return next(
            (found for found in answer["data"]["alerts"] if found["labels"]["alertname"] == "TrainingFailed"), None
        )

    found = wait_for(alert, 240, "the alert")
    assert (found["state"], found["labels"]["type"]) == ("firing", "out_of_memory")
    assert "llama-3" in found["labels"]["job_uid"] or "uid-3" in found["labels"]["job_uid"]
    (own,) = blocks("alerting.md", "text")
    assert prometheus.query(own.strip()) == []
    assert wait_for(lambda: prometheus.query('up{job="lens"} == 1'), 240, "a scrape that was in time")


def test_the_rules_are_tried_with_what_the_daemon_exports_from_its_start(make_lens: Callable[..., RunningLens]) -> None:
    """Names and labels of the series in alerts_test.yaml are those of a daemon to which nothing has happened yet.

    A counter that first appears with its first loss is no increase to Prometheus, and its alert never fires.
    """
    collectors = "collectors: {machine: {type: host}}\n"
    sinks = "sinks:\n  far: {type: http, url: 'http://127.0.0.1:9/api/v1/records', required: false}\n"
    lens = make_lens(collectors + sinks).start()
    page = http_get(f"{lens.url}/metrics").text
    exported: dict[str, list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", page, flags=re.M):
        exported.setdefault(name, []).append((dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)))
    (_, own) = yaml.safe_load((ROOT / "tests/data/alerts_test.yaml").read_text().replace("ALERTS", "x"))["tests"]
    tried = [series["series"] for series in own["input_series"]]
    for text in tried:
        name, _, labels = text.partition("{")
        wanted = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        assert name in exported, f"{name} is not exported before something happens"
        assert {*exported[name][0][0]} == {*wanted} - {"instance"}, text
    assert ({"component": "default/far", "reason": "spool_full"}, 0.0) in exported["lens_records_dropped_total"]
    assert ({"route": "/logs", "status": "503"}, 0.0) in exported["lens_http_requests_total"]
    # Whatever the rules take the increase or the rate of is there with 0.
    for rule in rules():
        for name in re.findall(r"(?:increase|rate)\((\w+)", rule["expr"]):
            assert exported[name], name
            assert all(value == 0 for labels, value in exported[name] if labels.get("status") != "200")


def test_every_counter_of_the_daemon_is_there_from_its_start(make_lens: Callable[..., RunningLens]) -> None:
    """The counters of the metrics page, but for those of plugins that are not configured here."""
    lens = make_lens("sinks:\n  store: {type: postgresql, dsn: 'postgresql://nobody@127.0.0.1:9/none'}\n").start()
    page = http_get(f"{lens.url}/metrics").text
    exported = set(re.findall(r"^(\w+)(?:\{.*\})? \S+$", page, flags=re.M))
    counters = set(re.findall(r"^\| `(\w+)` \| counter \|", (DOCS / "metrics.md").read_text(), flags=re.M))
    others = {
        name
        for name in counters
        if name.startswith(
            ("lens_collector", "lens_datadog", "lens_prometheus", "lens_plugin_", "lens_isolated_", "lens_otlp_")
        )
        or name == "lens_federate_refused_total"
    }
    # Which frameworks run is not known beforehand; no alert is about it.
    assert counters - others - {"framework_detection_count"} <= exported
