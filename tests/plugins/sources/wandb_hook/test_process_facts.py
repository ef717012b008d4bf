"""Facts about the process: its start, its place in the job, and no guess."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_hook.process_facts import process_facts, started_at

from tests.plugins.sources.wandb_hook.environments import HOOK, Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver


@pytest.mark.parametrize(
    ("environment", "known"),
    [
        ({}, {}),
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, {"world_size": 16, "local_world_size": 8, "nodes": 2}),
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "5"}, {"world_size": 16, "local_world_size": 5}),
        (
            {"WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "3", "TORCHELASTIC_RUN_ID": "r"},
            {"world_size": 4, "nodes": 2, "restart_count": 3, "run": "r"},
        ),
        ({"SLURM_NTASKS": "8", "SLURM_NNODES": "2"}, {"world_size": 8, "nodes": 2}),
        ({"PET_NNODES": "1:4"}, {}),
        ({"CUDA_VISIBLE_DEVICES": "0,1, 2"}, {"visible_gpus": 3}),
        ({"CUDA_VISIBLE_DEVICES": ""}, {"visible_gpus": 0}),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, {"visible_gpus": 1}),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {"visible_gpus": 0}),
        ({"HIP_VISIBLE_DEVICES": "GPU-ab12,GPU-cd34"}, {"visible_gpus": 2}),
    ],
)
def test_what_launchers_say(environment: dict[str, str], known: dict[str, object]) -> None:
    facts = process_facts(environment)
    facts.pop("started_at", None)
    assert facts == known


@given(
    st.dictionaries(st.sampled_from(["WORLD_SIZE", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"]), st.text(max_size=9))
)
def test_nothing_that_is_set_fails(environment: dict[str, str]) -> None:
    assert all(value is not None for value in process_facts(environment).values())


def test_the_start_of_the_process_is_before_everything_it_does() -> None:
    before = time.time()
    code = "import time; time.sleep(0.3); from lens_hook.process_facts import started_at; print(started_at())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(HOOK)}, capture_output=True, text=True, check=True
    )
    assert before - 0.1 <= float(done.stdout) <= time.time() - 0.25
    own = started_at()
    assert own is not None
    assert own < before


def test_the_job_is_told_once_with_the_start(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = "import wandb\nwandb.init(project='p', mode='disabled').log({'loss': 1})"
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": "1"}
    newest.run(script, tmp_path, {**variables, "TORCHELASTIC_RESTART_COUNT": "2"})
    (started,) = [event for event in receiver.records("event") if event["type"] == "training_started"]
    process = started["details"]["process"]
    assert {"world_size": 4, "local_world_size": 2, "nodes": 2, "restart_count": 2}.items() <= process.items()
    assert time.time() - 3600 < process["started_at"] < started["event_time"]
    assert receiver.records("evidence")[0]["facts"]["process"] == pytest.approx(process, abs=0.05)
