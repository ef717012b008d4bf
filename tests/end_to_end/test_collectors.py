"""Collectors in a daemon: from a W&B server to a Datadog intake, and a hanging one beside one that works."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.running_lens import RunningLens, http_get, ledgers_add_up, wait_for
from tests.plugins.collectors.tensorboard.test_tensorboard import copy_events, written
from tests.plugins.collectors.wandb_cloud.test_figures import EXPECTED
from tests.plugins.collectors.wandb_cloud.wandb_server import KEY, WandbServer, serving, table
from tests.plugins.collectors.wandb_offline.test_wandb_offline import offline_run
from tests.plugins.sinks.datadog.intake import KEY as DATADOG_KEY
from tests.plugins.sinks.datadog.intake import Intake, Scripted, running
from tests.plugins.sources.wandb_hook.environments import NEWEST


@pytest.fixture
def wandb_server() -> Iterator[WandbServer]:
    with serving(WandbServer(table(time.time()))) as server:
        yield server


@pytest.fixture
def intake() -> Iterator[Intake]:
    with running(Intake()) as found:
        yield found


def configuration(server: WandbServer, intake: Intake, **ci: Any) -> str:
    wandb = {"type": "wandb_cloud", "entity": "acme", "project": "llm", "api_key": KEY, "base_url": server.url}
    return json.dumps(
        {
            "collectors": {
                "ci": {**wandb, "interval_seconds": 2, **ci},
                "machine": {"type": "host", "interval_seconds": 1},
            },
            "sinks": {"dd": {"type": "datadog", "api_key": DATADOG_KEY, "url": intake.url, "tags": ["env:test"]}},
            "pipelines": {"research": {"from": ["ci", "machine"], "to": ["dd"]}},
        }
    )


def named(intake: Intake, start: str) -> dict[str, float]:
    return {one["metric"]: one["points"][-1]["value"] for one in intake.series if one["metric"].startswith(start)}


def test_from_wandb_to_datadog_through_the_daemon(wandb_server: WandbServer, intake: Intake, tmp_path: Path) -> None:
    intake.script = [Scripted(503), Scripted(429, {"Retry-After": "0"})]
    lens = RunningLens(tmp_path / "data", configuration(wandb_server, intake)).start()
    try:
        wait_for(lambda: len(named(intake, "wandb.")) == 19 and named(intake, "host."), 240, "both collectors' metrics")
        for name, value in named(intake, "wandb.").items():
            assert value == pytest.approx(EXPECTED[name], rel=1e-2), name
        assert all("env:test" in one["tags"] for one in intake.series)
        wait_for(lambda: wandb_server.requests.count("runs") >= 2, 240, "a second run on schedule")
        ledgers_add_up(lens.drained())
        for pid in wandb_processes(lens):
            wait_for(lambda pid=pid: not psutil.pid_exists(pid), 240, "the end of a run's process")  # type: ignore[misc]
    finally:
        assert lens.stop() == 0


def test_a_hanging_collector_is_killed_and_touches_no_other(
    wandb_server: WandbServer, intake: Intake, tmp_path: Path
) -> None:
    wandb_server.delay_seconds = 60.0
    lens = RunningLens(tmp_path / "data", configuration(wandb_server, intake, timeout_seconds=3)).start()
    try:

        def failed() -> Any:
            sources = {source["name"]: source for source in lens.get("/status")["sources"]}
            return sources if sources["ci"]["state"] == "failed" else None

        sources = wait_for(failed, 240, "the failure of the one that hangs")
        assert sources["ci"]["last_error"] == "took longer than 3 s"
        assert sources["machine"]["state"] == "running"
        assert named(intake, "host.")
        assert not named(intake, "wandb.")
        metrics = http_get(f"{lens.url}/metrics").text
        assert 'lens_collector_up{collector="ci"} 0.0' in metrics
        assert 'lens_collector_up{collector="machine"} 1.0' in metrics
    finally:
        children = wandb_processes(lens)
        assert lens.stop() == 0
    for pid in children:
        wait_for(lambda pid=pid: not psutil.pid_exists(pid), 240, "the end of what it started")  # type: ignore[misc]


def wandb_processes(lens: RunningLens) -> list[int]:
    """The processes that the daemon runs now for isolated collectors."""
    assert lens.process is not None
    return [child.pid for child in psutil.Process(lens.process.pid).children(recursive=True)]


def test_event_files_and_offline_logs_become_points_with_attempts(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "job" / "run"
    for number, steps in enumerate((range(10), range(6, 12))):
        copy_events(written(tmp_path / f"part{number}", steps), logs, f"events.out.tfevents.{number + 1}00.node.1.0")
    offline_run(NEWEST, tmp_path / "w")
    content = {
        "collectors": {
            "boards": {
                "type": "tensorboard",
                "paths": [str(tmp_path / "logs")],
                "workload": "tb",
                "interval_seconds": 1,
            },
            "airgapped": {"type": "wandb_offline", "paths": [str(tmp_path / "w")], "interval_seconds": 1},
        }
    }
    lens = RunningLens(tmp_path / "data", json.dumps(content)).start()
    try:
        points = wait_for(lambda: lens.points("tb", metrics="loss"), 240, "points of the event files")
        found = [(point["attempt"], point["iteration"], point["value"]) for point in points]
        assert found == [
            *((1, step, pytest.approx(1 / (step + 1))) for step in range(10)),
            *((2, step, pytest.approx(1 / (step + 1))) for step in range(6, 12)),
        ]
        assert {(point["run_id"], point["data_source"]) for point in points} == {("job/run", "tensorflow")}
        offline = wait_for(lambda: lens.points("r1", metrics="loss"), 240, "points of the offline log")
        assert [point["iteration"] for point in offline] == list(range(300))
        ledgers_add_up(lens.drained())
        lens.kill()
        lens.start()
        lens.drained()
        assert len(lens.points("tb", metrics="loss")) == 16, "a restart reads nothing twice"
    finally:
        lens.end()
