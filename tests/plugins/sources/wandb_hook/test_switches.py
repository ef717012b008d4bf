"""Variables and options: off means off, local files, enhancement, standing back, the user's own data untouched."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lens_hook import VARIABLES, launch
from lens_hook.settings import DEFAULT_BASE_URL, Settings, read_origin

from tests.plugins.sources.wandb_hook import environments, wandb_file
from tests.plugins.sources.wandb_hook.environments import BOOTSTRAP, ROOT, Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver

SCRIPT = """
    import wandb
    run = wandb.init(project="p")
    print(getattr(wandb, "_primus_lens_patched", False))
    for step in range(5):
        wandb.log({"loss": step / 2, "n": {"x": step}})
"""


def test_the_defaults_are_the_contracts() -> None:
    settings = Settings.from_environment({})
    assert (settings.enabled, settings.reporting, settings.save_local) == (True, True, True)
    assert (settings.enhance_metrics, settings.debug) == (False, False)
    assert settings.base_url == DEFAULT_BASE_URL == "http://primus-lens-telemetry-processor:8080/api/v1"
    assert (settings.flush_interval_seconds, settings.batch_size) == (1.0, 1000)
    assert (settings.queue_bytes, settings.exit_deadline_seconds) == (16 * 1024 * 1024, 5.0)


def test_malformed_variables_leave_the_default(capfd: pytest.CaptureFixture[str]) -> None:
    settings = Settings.from_environment(
        {
            "PRIMUS_LENS_WANDB_HOOK": "maybe",
            "PRIMUS_LENS_BATCH_SIZE": "many",
            "PRIMUS_LENS_FLUSH_INTERVAL_SECONDS": "nan",
            "PRIMUS_LENS_QUEUE_BYTES": "1",
            "PRIMUS_LENS_API_TOKEN": "s3cret",
        }
    )
    assert (settings.enabled, settings.batch_size, settings.flush_interval_seconds) == (True, 1000, 1.0)
    assert settings.queue_bytes == 64 * 1024
    assert "s3cret" not in repr(settings)
    assert capfd.readouterr().err == ""


def test_identity() -> None:
    assert read_origin({"POD_NAME": "p", "POD_NAMESPACE": "n", "RANK": "-1", "WORLD_SIZE": "8"}) == {
        "pod_name": "p",
        "namespace": "n",
        "world_size": 8,
    }
    assert read_origin({"POD_UID": "u", "SLURM_NODEID": "2", "LOCAL_RANK": "x"}) == {"pod_uid": "u", "node_rank": 2}
    assert read_origin({"NODE_RANK": "1", "PET_NODE_RANK": "2"})["node_rank"] == 1
    assert read_origin({"PET_NODE_RANK": "2"})["node_rank"] == 2
    assert list(read_origin({})) == ["pod_name"]


def test_a_job_of_slurm_says_who_it_is_where_nothing_else_does() -> None:
    job = {"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "llama", "SLURMD_NODENAME": "gpu-3", "SLURM_PROCID": "9"}
    ranks = {"SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_NTASKS": "16"}
    assert read_origin({**job, **ranks}) == {
        "workload_uid": "slurm-17",
        "node": "gpu-3",
        "labels": {"training.kubeflow.org/job-name": "llama"},
        "rank": 9,
        "local_rank": 1,
        "node_rank": 1,
        "world_size": 16,
    }
    array = {"SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "4"}
    assert read_origin({**job, **array, "RANK": "0"})["workload_uid"] == "slurm-16_4"
    assert read_origin({**job, "RANK": "0", "WORLD_SIZE": "2"})["rank"] == 0  # torchrun below srun knows better
    for named in ("WORKLOAD_UID", "POD_NAME"):
        assert "slurm" not in str(read_origin({**job, named: "x"}))


def test_every_variable_is_documented() -> None:
    page = (ROOT / "docs" / "hook.md").read_text()
    documented = {
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([A-Z_]{4,})`", line.split("|")[1])
    }
    assert documented == set(VARIABLES)


def test_off_is_off(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PRIMUS_LENS_WANDB_HOOK": "false"}
    assert newest.run(SCRIPT, tmp_path, variables).stdout == "False\n"
    assert receiver.requests == []


def test_the_local_file_without_reporting(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    variables = {
        "PRIMUS_LENS_API_BASE_URL": receiver.url,
        "PRIMUS_LENS_WANDB_API_REPORTING": "false",
        "PRIMUS_LENS_WANDB_OUTPUT_PATH": str(tmp_path / "out"),
        "NODE_RANK": "2",
        "LOCAL_RANK": "1",
    }
    newest.run(SCRIPT, tmp_path, variables)
    assert receiver.requests == []
    lines = (tmp_path / "out" / "node_2" / "rank_1" / "wandb_metrics.jsonl").read_text().splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[3]["data"] == {"loss": 1.5, "n.x": 3}
    assert all(set(row) == {"timestamp", "step", "data"} for row in rows)


def test_save_local_off(newest: Environment, tmp_path: Path, receiver: Receiver) -> None:
    variables = {
        "PRIMUS_LENS_API_BASE_URL": receiver.url,
        "PRIMUS_LENS_WANDB_SAVE_LOCAL": "false",
        "PRIMUS_LENS_WANDB_OUTPUT_PATH": str(tmp_path / "out"),
    }
    newest.run(SCRIPT, tmp_path, variables)
    assert not (tmp_path / "out").exists()


def test_an_output_path_that_cannot_be_written(newest: Environment, tmp_path: Path, receiver: Receiver) -> None:
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PRIMUS_LENS_WANDB_OUTPUT_PATH": "/proc/no/such"}
    done = newest.run(SCRIPT, tmp_path, variables)
    assert done.stderr.count("lens-hook") == 1
    assert len(receiver.rows()) == 5


def own_keys(directory: Path) -> list[dict[str, Any]]:
    """The history of the only run, without clocks."""
    (path,) = wandb_file.by_run(directory).values()
    clocks = ("_timestamp", "_runtime")
    rows = wandb_file.history(path)
    return [{name: row[name] for name in sorted(row) if name not in clocks} for row in rows]


def test_the_users_own_data_is_what_it_was_without_us(
    each_wandb: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = """
        import numpy as np
        import wandb
        run = wandb.init(project="p")
        for step in range(50):
            wandb.log({"loss": np.float32(step), "n": {"x": step, "t": "text"}, "list": [1, 2]}, commit=step % 2 == 0)
        wandb.log({"nan": float("nan")}, step=80)
        wandb.log({"late": 1}, step=3)
        wandb.finish()
    """
    histories = []
    for name, path in (("with", str(BOOTSTRAP)), ("without", "")):
        work = tmp_path / name
        work.mkdir()
        variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PYTHONPATH": path}
        each_wandb.run(script, work, variables)
        histories.append(own_keys(work))
    assert len(receiver.rows()) > 0
    assert repr(histories[0]) == repr(histories[1])


def test_enhancement_adds_the_machine(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import time
        import wandb
        wandb.init(project="p")
        wandb.log({"loss": 1})
        from lens_hook import runtime
        deadline = time.monotonic() + 240
        while not runtime.get_runtime().system_values:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        data = {"loss": 2}
        wandb.log(data)
        assert data == {"loss": 2}
        wandb.finish()
    """
    newest.run(
        script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PRIMUS_LENS_WANDB_ENHANCE_METRICS": "true"}
    )
    last = own_keys(tmp_path)[-1]
    assert last["_primus_lens_enabled"] is True
    assert 0 <= last["_primus_sys_cpu_percent"] <= 100
    assert 0 < last["_primus_sys_memory_percent"] <= 100
    assert receiver.rows()[-1]["values"].keys() >= {"loss", "_primus_sys_cpu_percent"}
    assert "_primus_lens_enabled" not in receiver.rows()[-1]["values"]


def test_upstreams_exporter_makes_us_stand_back(receiver: Receiver, tmp_path: Path) -> None:
    exporter = environments.environment("upstream-exporter", environments.EXPORTER)
    script = """
        import primus_lens_wandb_exporter.wandb_hook
        import wandb
        wandb.init(project="p", mode="offline")
        wandb.log({"loss": 1})
    """
    done = exporter.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, "POD_NAME": "p"})
    assert done.stderr.count("standing back") == 1
    assert not any(request.path.endswith("/records") for request in receiver.requests)
    assert any(request.path.endswith("/wandb/metrics") for request in receiver.requests)


def test_lens_run_leaves_the_users_sitecustomize_in_place(
    newest: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import sys; sys.users_own = __file__, __name__\n")
    given = {**newest.variables(tmp_path), "PYTHONPATH": str(mine), "PRIMUS_LENS_API_BASE_URL": receiver.url}
    changed = launch.run_environment(given)
    assert changed["PRIMUS_LENS_API_BASE_URL"] == receiver.url
    assert launch.run_environment(changed) == changed
    del given["PRIMUS_LENS_API_BASE_URL"]
    assert launch.run_environment(given)["PRIMUS_LENS_API_BASE_URL"] == "http://127.0.0.1:8080/api/v1"
    assert launch.run_environment(given, "http://h/api/v1")["PRIMUS_LENS_API_BASE_URL"] == "http://h/api/v1"
    script = """
        import sys
        import sitecustomize
        print(sys.users_own[0] == sitecustomize.__file__, sys.users_own[1])
        assert not any(entry.endswith("wandb_hook") for entry in sys.path)
        import wandb
        wandb.init(project="p", mode="disabled")
        wandb.log({"loss": 1})
    """
    done = newest.run(script, tmp_path, {"PYTHONPATH": changed["PYTHONPATH"], "PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert done.stdout == "True sitecustomize\n"
    assert receiver.points() == [(0, "loss", 1)]


def test_attach_refuses_options_that_it_does_not_know(newest: Environment, tmp_path: Path) -> None:
    script = """
        import lens_hook
        try:
            lens_hook.attach(base_ulr="x")
        except TypeError as error:
            print(error)
    """
    assert "base_ulr" in newest.run(script, tmp_path).stdout


def test_debug_says_where_to_as_whom_and_how_much(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        wandb.init(project="p", mode="disabled")
        for step in range(20):
            wandb.log({"loss": step})
    """
    variables = {
        "PRIMUS_LENS_API_BASE_URL": receiver.url.replace("http://", "http://user:secret@"),
        "PRIMUS_LENS_WANDB_DEBUG": "true",
        "WORKLOAD_UID": "job-7",
        "RANK": "3",
    }
    done = newest.run(script, tmp_path, variables)
    lines = [line for line in done.stderr.splitlines() if line.startswith("lens-hook debug: ")]
    assert any(f"sends to {receiver.url}" in line for line in lines)
    assert any("workload_uid job-7" in line and "rank 3" in line for line in lines)
    assert any("20 rows and 3 events or evidence records delivered" in line for line in lines)
    assert "secret" not in done.stderr


def test_events_that_do_not_arrive_are_counted_and_said_once(newest: Environment, tmp_path: Path) -> None:
    script = """
        import wandb
        from lens_hook import runtime
        run = wandb.init(project="p", mode="disabled")
        hook = runtime.get_runtime()
        for number in range(1500):
            hook.worker.event(hook.sessions[0], "training_started", {"number": number})
    """
    variables = {"PRIMUS_LENS_API_BASE_URL": "http://127.0.0.1:1/api/v1", "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "0.2"}
    done = newest.run(script, tmp_path, variables)
    (line,) = [line for line in done.stderr.splitlines() if "lens-hook" in line]
    # The run's own two, its evidence, and these.
    assert "1503 events or evidence records did not reach http://127.0.0.1:1/api/v1" in line
