"""`lens collect` as people and CronJobs call it: a real process, real plugins."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tensorboardX import SummaryWriter

from tests.end_to_end.running_lens import RunningLens, http_get, ledgers_add_up, wait_for
from tests.forked import run_lens

BARE = {"DD_API_KEY": "", "WANDB_DIR": "", "LENS_TENSORBOARD_DIRS": ""}


def lens_collect(folder: Path, *arguments: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **BARE, "LENS_DATA_DIR": str(folder / "data"), **environ}
    done = run_lens("collect", *arguments, environ=variables)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}\n{done.stderr}"
    return done


def configuration(folder: Path, **collectors: Any) -> str:
    """A file with these collectors, which all go to a file of lines."""
    content = {
        "collectors": collectors,
        "sinks": {"out": {"type": "jsonl", "path": str(folder / "out.jsonl")}},
        "pipelines": {"p": {"from": list(collectors), "to": ["out"]}},
    }
    path = folder / "lens.yaml"
    path.write_text(json.dumps(content))
    return str(path)


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "out.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def events(folder: Path, steps: range) -> Path:
    writer = SummaryWriter(str(folder))
    for step in steps:
        writer.add_scalar("loss", float(step), step)
    writer.close()
    return folder


def test_a_plugin_by_name_prints_what_it_found(tmp_path: Path) -> None:
    done = lens_collect(tmp_path, "host")
    assert "host.memory.total_bytes: " in done.stdout
    assert "host: collected" in done.stderr
    names = [line.split("{")[0].split(":")[0] for line in done.stdout.splitlines()]
    assert names == sorted(names)


def test_json_has_the_shape_of_the_contract(tmp_path: Path) -> None:
    answer = json.loads(lens_collect(tmp_path, "host", "--json").stdout)
    assert answer["collector"] == "host"
    assert answer["up"] is True
    assert answer["errors"] == []
    assert 0 < answer["duration_seconds"] < 60
    assert all(list(found) == ["name", "value", "kind", "unit", "tags"] for found in answer["measurements"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give the NAME of one collector, or --all"),
        (["host", "--all"], "give the NAME of one collector, or --all"),
        (["--all"], "--all needs --config FILE"),
        (["hots"], "hots"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], said: str) -> None:
    assert said in lens_collect(tmp_path, *arguments, code=2).stderr


def test_a_plugin_that_the_environment_does_not_configure(tmp_path: Path) -> None:
    assert "--config FILE" in lens_collect(tmp_path, "tensorboard", code=78).stderr


def test_a_wrong_file(tmp_path: Path) -> None:
    (tmp_path / "lens.yaml").write_text("collectors: {x: {type: nothing}}")
    lens_collect(tmp_path, "x", "--config", str(tmp_path / "lens.yaml"), code=78)


def test_an_unknown_instance(tmp_path: Path) -> None:
    file = configuration(tmp_path, machine={"type": "host"})
    assert "there are: machine" in lens_collect(tmp_path, "host", "--config", file, code=2).stderr


def test_nothing_leaves_without_push_and_nothing_is_remembered(tmp_path: Path) -> None:
    logs = events(tmp_path / "logs", range(5))
    file = configuration(tmp_path, tb={"type": "tensorboard", "paths": [str(logs)]})
    for _ in range(2):
        answer = json.loads(lens_collect(tmp_path, "tb", "--config", file, "--json").stdout)
        assert answer["records"] == {"step_metrics": 5}
    assert lines(tmp_path) == []


def test_push_sends_once(tmp_path: Path) -> None:
    logs = events(tmp_path / "logs", range(5))
    file = configuration(tmp_path, tb={"type": "tensorboard", "paths": [str(logs)]})
    for _ in range(2):
        lens_collect(tmp_path, "tb", "--config", file, "--push")
    assert [line["row_step"] for line in lines(tmp_path)] == list(range(5))


def test_all_goes_on_after_one_that_fails(tmp_path: Path) -> None:
    file = configuration(
        tmp_path, broken={"type": "tensorboard", "paths": [str(tmp_path / "nowhere")]}, machine={"type": "host"}
    )
    answers = json.loads(lens_collect(tmp_path, "--all", "--config", file, "--json", "--push", code=1).stdout)
    assert [(answer["collector"], answer["up"]) for answer in answers] == [("broken", False), ("machine", True)]
    assert "nowhere" in answers[0]["errors"][0]
    assert any(line["name"] == "host.cpu.count" for line in lines(tmp_path))


def test_a_collector_that_feeds_nothing_cannot_push(tmp_path: Path) -> None:
    path = tmp_path / "lens.yaml"
    content = {
        "sources": {"records_api": {}},
        "collectors": {"machine": {"type": "host"}},
        "sinks": {"out": {"type": "jsonl", "path": str(tmp_path / "out.jsonl")}},
        "pipelines": {"p": {"from": ["records_api"], "to": ["out"]}},
    }
    path.write_text(json.dumps(content))
    done = lens_collect(tmp_path, "machine", "--config", str(path), "--push", code=1)
    assert "no pipeline takes from 'machine'" in done.stderr


def test_nowhere_to_push(tmp_path: Path) -> None:
    assert "nowhere to send to" in lens_collect(tmp_path, "host", "--push", code=1).stderr


def test_a_sink_that_is_gone_fails_the_push(tmp_path: Path) -> None:
    content = {
        "collectors": {"machine": {"type": "host"}},
        "sinks": {"dd": {"type": "http", "url": "http://127.0.0.1:9/api/v1/records"}},
        "pipelines": {"p": {"from": ["machine"], "to": ["dd"]}},
        # A sink that rests is not waited for: this one does so from its first failure on.
        "delivery": {"retry_base_seconds": 3600, "retry_cap_seconds": 3600},
    }
    path = tmp_path / "lens.yaml"
    path.write_text(json.dumps(content))
    done = lens_collect(tmp_path, "machine", "--config", str(path), "--push", code=1)
    assert "not delivered: dd: ConnectError" in done.stderr


def test_a_daemon_that_stores_no_metrics_fails_the_push(tmp_path: Path) -> None:
    content = {"sinks": {"hook": {"type": "webhook", "url": "http://127.0.0.1:9/"}}}
    lens = RunningLens(tmp_path / "data", json.dumps(content)).start()
    try:
        done = lens_collect(tmp_path, "host", "--push", code=1)
        assert "no sink that records_api feeds stores Measurement" in done.stderr
        assert "sent" not in done.stderr
        ledgers_add_up(lens.get("/status"))
    finally:
        lens.end()


def test_a_running_daemon_takes_a_push_and_runs_collectors_itself(tmp_path: Path) -> None:
    """The same collector as a one-off beside the daemon, and on the daemon's own schedule."""
    file = tmp_path / "out.jsonl"
    content = {
        "sources": {"records_api": {}},
        "collectors": {"machine": {"type": "host", "interval_seconds": 1, "tags": {"by": "daemon"}}},
        "sinks": {"out": {"type": "jsonl", "path": str(file)}},
        "pipelines": {"p": {"from": ["records_api", "machine"], "to": ["out"]}},
    }
    lens = RunningLens(tmp_path / "data", json.dumps(content)).start()
    try:
        wait_for(lambda: any("by" in line["tags"] for line in lines(tmp_path) if "tags" in line), what="its own run")
        lens_collect(tmp_path, "host", "--push")
        wait_for(lambda: any("by" not in line.get("tags", {}) for line in lines(tmp_path)), what="the push")
        path = tmp_path / "data.yaml"
        done = lens_collect(tmp_path, "machine", "--config", str(path), "--push", code=1)
        assert "has out open, and only one process may" in done.stderr
        status = lens.drained()
        ledgers_add_up(status)
        machine = next(source for source in status["sources"] if source["name"] == "machine")
        assert (machine["state"], machine["type"]) == ("running", "host")

        text = http_get(f"{lens.url}/metrics").text
        assert 'lens_collector_up{collector="machine"} 1.0' in text
        assert 'lens_collector_last_success_timestamp_seconds{collector="machine"}' in text
    finally:
        lens.end()
