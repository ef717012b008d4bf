"""The real `wandb.Api` of two versions, through `lens collect`, against a server on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.durations import Stopwatch
from tests.plugins.collectors.wandb_cloud.test_figures import EXPECTED
from tests.plugins.collectors.wandb_cloud.wandb_server import KEY, WandbServer, node, serving
from tests.plugins.sources.wandb_hook.environments import WANDB_LAZY, WANDB_VERSIONS, environment

NEWEST = "0.31.0"
VERSIONS = {"0.22.2": WANDB_LAZY, NEWEST: WANDB_VERSIONS[NEWEST]}
ALL_VERSIONS = {**WANDB_VERSIONS, **VERSIONS}
every_version = pytest.mark.parametrize("version", list(VERSIONS))


class Done(NamedTuple):
    """A finished `lens collect`; `peak_kib` is the memory of its largest process, that of the collector."""

    code: int
    answer: dict[str, Any]
    said: str
    peak_kib: int

    @property
    def values(self) -> dict[str, float | None]:
        """The metrics by name."""
        return {found["name"]: found["value"] for found in self.answer["measurements"]}


# A child begins with its parent's peak: what is measured is started by a small process, not by the tests' own.
MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
status, usage = os.wait4(child.pid, 0)[1:]
open(sys.argv[1], "w").write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def collect(server: WandbServer, version: str, folder: Path, *arguments: str, **environ: str) -> Done:
    """`lens collect wandb_cloud --json` with the wandb of this version before all other packages."""
    (packages,) = environment(f"wandb-{version}", ALL_VERSIONS[version]).directory.glob("lib/python*/site-packages")
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": str(packages),
        "WANDB_API_KEY": KEY,
        "WANDB_ENTITY": "acme",
        "WANDB_PROJECT": "llm",
        "WANDB_BASE_URL": server.url,
        "LENS_DATA_DIR": str(folder / "data"),
        "COVERAGE_PROCESS_START": os.environ.get("COVERAGE_PROCESS_START", ""),
        **environ,
    }
    command = [sys.executable, "-m", "lens_core.cli", "collect", *(arguments or ("wandb_cloud",)), "--json"]
    small = [sys.executable, "-I", "-S", "-c", MEASURE, str(folder / "peak")]
    with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as said:
        process = subprocess.run([*small, *command], env=variables, cwd=folder, stdout=out, stderr=said, check=False)
    peak = int((folder / "peak").read_text())
    (folder / "peak").unlink()
    text = (folder / "stdout").read_text()
    return Done(process.returncode, json.loads(text) if text.strip() else {}, (folder / "stderr").read_text(), peak)


@pytest.mark.parametrize("version", sorted(ALL_VERSIONS))
def test_sixty_runs(wandb_server: WandbServer, version: str, tmp_path: Path) -> None:
    done = collect(wandb_server, version, tmp_path)
    assert done.code == 0, done.said
    assert done.answer["up"]
    assert done.answer["errors"] == []
    assert list(done.values) == list(EXPECTED)
    for name, expected in EXPECTED.items():
        assert done.values[name] == (expected if expected is None else pytest.approx(expected, rel=1e-3)), name
    assert wandb_server.requests.count("runs") == 1
    assert len(wandb_server.requests) <= 6, "there is a request per run"
    # 0.16 makes a folder in the home whatever it is told.
    ours = {"data", "stdout", "stderr", *([".config"] if version == "0.16.6" else [])}
    assert {path.name for path in tmp_path.iterdir()} <= ours


def config_file(folder: Path, **settings: Any) -> str:
    path = folder / "lens.yaml"
    path.write_text(json.dumps({"collectors": {"ci": {"type": "wandb_cloud", **settings}}}))
    return str(path)


@every_version
def test_pages(wandb_server: WandbServer, version: str, tmp_path: Path) -> None:
    file = config_file(tmp_path, page_size=20, entity="acme", project="llm", api_key=KEY, tags={"team": "x"})
    done = collect(
        wandb_server, version, tmp_path, "ci", "--config", file, WANDB_ENTITY="", WANDB_PROJECT="", WANDB_API_KEY=""
    )
    assert done.code == 0, done.said
    assert wandb_server.pages == [20, 20, 12]
    assert done.answer["collector"] == "ci"
    assert done.values["wandb.runs.total_recent"] == 52
    expected = {"source": "wandb", "entity": "acme", "project": "llm", "team": "x"}
    assert all(found["tags"] == expected for found in done.answer["measurements"])


@every_version
def test_an_empty_project_is_zeros(version: str, tmp_path: Path) -> None:
    with serving(WandbServer([])) as server:
        done = collect(server, version, tmp_path)
    assert done.code == 0, done.said
    assert done.values["wandb.runs.total_recent"] == 0
    assert done.values["wandb.push_to_main.success_rate_pct"] is None


@every_version
def test_a_wrong_key_is_said_and_never_shown(wandb_server: WandbServer, version: str, tmp_path: Path) -> None:
    wrong = "f" * 40
    done = collect(wandb_server, version, tmp_path, WANDB_API_KEY=wrong)
    assert done.code == 1
    assert not done.answer["up"]
    assert done.answer["measurements"] == []
    assert "refused the API key" in done.answer["errors"][0]
    assert wrong not in done.said + json.dumps(done.answer)


@every_version
def test_an_unknown_project_is_a_failure(wandb_server: WandbServer, version: str, tmp_path: Path) -> None:
    done = collect(wandb_server, version, tmp_path, WANDB_PROJECT="nope")
    assert done.code == 1
    assert "acme/nope" in done.answer["errors"][0]
    assert done.answer["measurements"] == []


@every_version
@pytest.mark.parametrize("status", [429, 502])
def test_a_server_that_is_busy_for_a_moment(
    wandb_server: WandbServer, version: str, status: int, tmp_path: Path
) -> None:
    # Only listings: 0.22 does not retry its first question (who am I).
    failed: list[int] = []

    def fault(number: int) -> int | None:
        if wandb_server.requests.count("viewer") >= 1 and number >= 4 - 3 * (version == NEWEST) and len(failed) < 2:
            failed.append(number)
            return status
        return None

    wandb_server.fault = fault
    done = collect(wandb_server, version, tmp_path)
    assert done.code == 0, done.said
    assert len(failed) == 2
    assert done.values["wandb.runs.total_recent"] == 52


@every_version
def test_a_server_that_is_slow_for_good_is_given_up(wandb_server: WandbServer, version: str, tmp_path: Path) -> None:
    wandb_server.delay_seconds = 20.0
    watch = Stopwatch()
    file = config_file(tmp_path, timeout_seconds=4)
    done = collect(wandb_server, version, tmp_path, "ci", "--config", file)
    assert done.code == 1
    assert done.answer["errors"] == ["took longer than 4 s"]
    assert watch.seconds() < 15


def test_what_is_missing_is_named(wandb_server: WandbServer, tmp_path: Path) -> None:
    done = collect(wandb_server, NEWEST, tmp_path, WANDB_ENTITY="", WANDB_API_KEY="")
    assert done.code == 78
    assert "WANDB_API_KEY" in done.said
    assert "WANDB_ENTITY" in done.said
    assert "WANDB_PROJECT" not in done.said


@pytest.mark.slow("reads twenty-six thousand runs")
def test_twenty_six_thousand_runs_in_bounded_memory(tmp_path: Path) -> None:
    now = time.time()
    summary = json.dumps({f"metric_{number}": number / 7 for number in range(60)})
    runs = [
        node(f"r{number}", f"github.sky.main.{number}", "finished", now - 7200, now - 3600, summaryMetrics=summary)
        for number in range(26_000)
    ]
    with serving(WandbServer(runs)) as server:
        done = collect(server, NEWEST, tmp_path)
    assert done.code == 0, done.said
    assert done.values["wandb.runs.total_recent"] == 26_000
    assert server.pages == [500] * 52
    # All of them are 50 MB of JSON; as objects of wandb's they would be several hundred.
    assert done.peak_kib < 250 * 1024


def test_history_of_chosen_runs(wandb_server: WandbServer, tmp_path: Path) -> None:
    """Rows once, each run of the collector behind what was stored before."""
    rows = [
        {"_step": step * 10, "_timestamp": 1.79e9 + step, "loss": 1 / (step + 1), "text": "x"} for step in range(250)
    ]
    rows[3]["loss"] = "NaN"
    wandb_server.histories = {"d0": rows[:200]}
    out = tmp_path / "rows.jsonl"
    collectors = {"ci": {"type": "wandb_cloud", "history_runs": ["github.sky.main.0*"], "history_page_size": 50}}
    settings = {
        "collectors": collectors,
        "sinks": {"out": {"type": "jsonl", "path": str(out)}},
        "pipelines": {"p": {"from": ["ci"], "to": ["out"]}},
    }
    wandb_server.histories.update({f"d{number}": [] for number in range(1, 8)})
    path = tmp_path / "lens.yaml"
    path.write_text(json.dumps(settings))
    assert stored(collect(wandb_server, NEWEST, tmp_path, "ci", "--config", str(path), "--push"), out) == 200
    wandb_server.histories["d0"] = rows
    looked = collect(wandb_server, NEWEST, tmp_path, "ci", "--config", str(path))
    assert looked.answer["records"]["step_metrics"] == 51
    collect(wandb_server, NEWEST, tmp_path, "ci", "--config", str(path), "--push")
    found = [json.loads(line) for line in out.read_text().splitlines()]
    steps = [row["row_step"] for row in found if row["record"] == "step_metrics"]
    assert sorted(set(steps)) == [step * 10 for step in range(250)]
    assert len(steps) == 251, "only the last step that was stored comes once more"
    assert next(row for row in found if row.get("row_step") == 30)["values"] == {"loss": "NaN"}


def stored(done: Done, path: Path) -> int:
    assert done.code == 0, done.said
    return sum('"step_metrics"' in line for line in path.read_text().splitlines())


def test_the_server_of_these_tests_filters(wandb_server: WandbServer) -> None:
    """The window is asked for, not only applied here: 52 of 60 runs come over the wire."""
    answer = httpx.post(f"{wandb_server.url}/graphql", json={"query": "{viewer}"}, auth=("api", KEY))
    assert answer.status_code == 200
    assert len(wandb_server.runs) == 60
