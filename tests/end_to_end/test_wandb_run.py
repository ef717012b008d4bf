"""A real training script, the real wandb package, `lens run`, a real PostgreSQL, the query API."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.end_to_end.running_lens import RunningLens, ledgers_add_up, wait_for
from tests.forked import forked_command
from tests.plugins.sources.wandb_hook.environments import NEWEST, WANDB_VERSIONS, environment

TRAIN = """
import wandb
run = wandb.init(project="p", config={"lr": 0.1})
for step in range(STEPS):
    wandb.log({f"m{n}": step + n / 100 for n in range(20)})
"""


def train(lens: RunningLens, work: Path, script: str, workload: str) -> None:
    """Run a script under `lens run`, as a user would, with a Python that knows nothing of Lens."""
    python = environment(f"wandb-{NEWEST}", WANDB_VERSIONS[NEWEST]).python
    work.mkdir()
    (work / "train.py").write_text(script)
    command = [*forked_command(), "run", "--data-dir", str(lens.data_dir), "--workload", workload]
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(work), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    done = subprocess.run(
        [*command, "--", python, "train.py"],
        cwd=work,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_ten_thousand_steps_as_fast_as_the_loop_goes_are_all_there_in_order_exactly_once(
    lens: RunningLens, tmp_path: Path
) -> None:
    train(lens, tmp_path / "work", TRAIN.replace("STEPS", "10000"), "run-1")
    ledgers_add_up(lens.drained())
    assert lens.get("/workloads/run-1/metrics/sources")["data_sources"] == [{"name": "wandb", "count": 10_000}]
    available = lens.get("/workloads/run-1/metrics/available")["metrics"]
    assert [metric["count"] for metric in available] == [10_000] * 20
    for name, offset in (("m0", 0.0), ("m19", 0.19)):
        points = lens.points("run-1", metrics=name)
        assert [point["iteration"] for point in points] == list(range(10_000))
        assert [point["value"] for point in points] == [step + offset for step in range(10_000)]


def test_a_value_is_there_a_second_after_it_was_logged(lens: RunningLens, tmp_path: Path) -> None:
    script = """
import time, wandb
run = wandb.init(project="p")
run.log({"loss": 0.25})
print("logged", flush=True)
time.sleep(60)
"""
    python = environment(f"wandb-{NEWEST}", WANDB_VERSIONS[NEWEST]).python
    (tmp_path / "train.py").write_text(script)
    command = [*forked_command(), "run", "--url", lens.url, "--workload", "w", "--", python]
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    with subprocess.Popen([*command, "train.py"], cwd=tmp_path, env=variables, stdout=subprocess.PIPE) as training:
        assert training.stdout is not None
        assert b"logged" in training.stdout.readline()
        # One flush interval, one batch: a second; the rest is for a busy machine.
        points = wait_for(lambda: lens.points("w", metrics="loss"), 240, "the value")
        training.kill()
    assert points[0]["value"] == 0.25
