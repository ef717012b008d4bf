"""One Trainer that reports to five trackers: every row arrives from each of them, and is answered once."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.sinks.postgresql.copies import quantity_of

from tests.end_to_end.running_lens import RunningLens, http_post, ledgers_add_up, wait_for
from tests.plugins.sources.wandb_hook.environments import TRACKERS, environment
from tests.plugins.sources.wandb_hook.test_echoes import TRAINER

SCRIPT = (
    textwrap.dedent(TRAINER)
    + """
import mlflow, wandb, clearml
clearml.Task.set_offline(True)
mlflow.set_tracking_uri("sqlite:///mlflow.db")
trainer(["wandb", "mlflow", "tensorboard", "trackio", "clearml"]).train()
wandb.log({"own": 1.0})
mlflow.log_metric("other", 2.0, step=9)
"""
)


@pytest.mark.slow("imports five trackers and trains")
def test_a_trainer_with_five_reporters_is_answered_once(lens: RunningLens, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    variables = {
        "PRIMUS_LENS_API_BASE_URL": f"{lens.url}/api/v1",
        "WORKLOAD_UID": "job",
        "TRACKIO_DIR": "trackio",
        "COMET_DISABLE_AUTO_LOGGING": "1",
    }
    environment("trackers", TRACKERS).run(SCRIPT, work, variables)
    ledgers_add_up(lens.drained())
    answer = lens.get("/workloads/job/metrics/data")
    points = Counter((point["metric_name"], point["iteration"]) for point in answer["data"])
    # wandb adds the step to each row, and has one of its own for the last epoch.
    assert {name for (name, _), count in points.items() if count > 1} <= {"train/global_step", "train/epoch"}
    assert [points["train/loss", step] for step in (2, 4, 6)] == [1, 1, 1]
    assert {name for name, _ in points if "loss" in name} == {"train/loss", "train_loss"}
    sources = {point["metric_name"]: point["data_source"] for point in answer["data"]}
    assert len({(point["metric_name"], point["data_source"]) for point in answer["data"]}) == len(sources)
    assert (sources["train/loss"], sources["own"], sources["other"]) == ("wandb", "wandb", "mlflow")
    left_out = ["clearml", "mlflow", "tensorflow", "trackio"]
    choice = {"echo_of": "transformers", "data_source": "wandb", "left_out": left_out}
    assert answer["echoes"] == [choice]
    listed = lens.get("/workloads/job/metrics/sources")
    assert {source["name"] for source in listed["data_sources"]} == {"wandb", *left_out}
    assert listed["echoes"] == [choice]
    names = {"mlflow": "loss"}
    for source in left_out:  # all of it is there
        found = lens.points("job", metrics=names.get(source, "train/loss"), data_source=source)
        assert len(found) == 3, source
    metrics = {metric["name"] for metric in lens.get("/workloads/job/metrics/available")["metrics"]}
    assert metrics == {name for name, _ in points}
    evidence = lens.get("/workloads/job/detection")["evidence"]
    trackers = {one["facts"]["tracker"]["tracker"] for one in evidence if "tracker" in one["facts"]}
    assert {"mlflow", "trackio", "clearml"} <= trackers


RESUMED = (
    textwrap.dedent(TRAINER)
    .replace("max_steps=6", "max_steps=int(os.environ['STEPS'])")
    .replace('save_strategy="no"', 'save_strategy="steps", save_steps=4')
    + """
import mlflow, wandb, clearml
clearml.Task.set_offline(True)
mlflow.set_tracking_uri("sqlite:///mlflow.db")
made = trainer(["wandb", "mlflow", "tensorboard", "trackio", "clearml"])
made.train(resume_from_checkpoint="out/checkpoint-4" if os.path.exists("out/checkpoint-4") else None)
"""
)


@pytest.mark.slow("imports five trackers and trains twice with two ranks")
def test_two_ranks_with_five_reporters_that_go_on_from_a_checkpoint(lens: RunningLens, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    trackers = environment("trackers", TRACKERS)
    launcher = [f"{trackers.directory}/bin/torchrun", "--standalone", "--nproc-per-node", "2"]
    for steps in (4, 12):
        variables = {
            "PRIMUS_LENS_API_BASE_URL": f"{lens.url}/api/v1",
            "WORKLOAD_UID": "job",
            "TRACKIO_DIR": "trackio",
            "COMET_DISABLE_AUTO_LOGGING": "1",
            "CLEARML_LOG_MODEL": "FALSE",
            "STEPS": str(steps),
        }
        trackers.run("import os\n" + RESUMED, work, variables, launcher=launcher)
    ledgers_add_up(lens.drained())
    answer = lens.get("/workloads/job/metrics/data")
    losses = Counter((point["data_source"], point["iteration"]) for point in answer["data"] if is_loss(point))
    steps_of_both = range(2, 13, 2)
    assert losses == Counter({(source, step): 1 for source in ("wandb", "transformers") for step in steps_of_both})
    for rank, source in enumerate(("wandb", "transformers")):
        found = lens.points("job", rank=str(rank))
        assert {point["data_source"] for point in found} == {source}
    runs = lens.get("/runs", uid="job")["runs"]
    assert sorted((run["last_iteration"], run["state"]) for run in runs) == [(4, "ended"), (12, "ended")]
    assert all("loss" not in run["last"] and "train/loss" in run["last"] for run in runs)
    assert lens.get("/workloads/job")["state"] == "ended"
    assert lens.get("/workloads/job/detection")["base_framework"] != "deepspeed"


def is_loss(point: Mapping[str, Any]) -> bool:
    """Whether a point is a loss of a step, under the name of a tracker or of the Trainer."""
    return point["metric_name"] in ("train/loss", "loss")


@pytest.mark.slow("trains with a real Trainer")
@pytest.mark.parametrize("reports", ["none", "tensorboard", "mlflow"])
def test_a_trainer_beside_its_log_and_its_event_files(
    lens_on: Callable[..., RunningLens], tmp_path: Path, reports: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    collector = f"{{type: tensorboard, paths: [{work}], workload: job, interval_seconds: 0.2}}"
    lens = lens_on(f"collectors:\n  files: {collector}\n")
    trackers = "none" if reports == "none" else sorted({reports, "tensorboard"})
    script = textwrap.dedent(TRAINER) + f"trainer({trackers!r}).train()\n"
    variables = {
        "PRIMUS_LENS_API_BASE_URL": f"{lens.url}/api/v1",
        "WORKLOAD_UID": "job",
        "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db",
        "COMET_DISABLE_AUTO_LOGGING": "1",
        "RANK": "0",
    }
    done = environment("trackers", TRACKERS).run(script, work, variables)
    entries = [{"message": line} for line in done.stdout.splitlines()]
    assert http_post(f"{lens.url}/logs?workload_uid=job", json=entries).json()["accepted"] == len(entries)
    expected = {"none": {"transformers", "log"}, "tensorboard": {"tensorflow", "log"}}
    sources = expected.get(reports, {"mlflow", "tensorflow", "log"})

    def listed() -> bool:
        answer = lens.get("/workloads/job/metrics/sources")
        return {source["name"] for source in answer["data_sources"]} == sources

    wait_for(listed, what="every source")
    if reports != "none":
        runs = [run for run in lens.get("/workloads/job")["runs"] if run["data_source"] == "tensorflow"]
        assert len(runs) == 2, "the hook's and the collector's"
    answer = lens.get("/workloads/job/metrics/data")
    losses = Counter(point["data_source"] for point in answer["data"] if quantity_of(point["metric_name"]) == "loss")
    chosen = {"none": "transformers", "tensorboard": "tensorflow"}.get(reports, reports)
    assert losses.pop(chosen) in (3, 4), "with that of the whole run, which the Trainer calls train_loss"
    assert not losses
    assert "log" not in {point["data_source"] for point in answer["data"]}
    assert [one["data_source"] for one in answer["echoes"]] == [chosen]
