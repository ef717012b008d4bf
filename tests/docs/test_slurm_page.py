"""docs/slurm.md on a real Slurm: a job whose script nobody changed is seen by the hook and by its output."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, blocks, run_console
from tests.end_to_end.conftest import make_lens
from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.plugins.collectors.slurm.running_slurm import RunningSlurm, is_missing, slurm_in

__all__ = ["make_lens"]

pytestmark = pytest.mark.skipif(bool(is_missing()), reason=is_missing() or "nothing is missing")
HOOK = "plugins/sources/wandb_hook"
LINE = " iteration 7/ 100 | elapsed time per iteration (ms): 12.5 | lm loss: 2.5E+00 | grad norm: 1.0 |"
TRAIN = """
import os, wandb
run = wandb.init(project="slurm", mode="offline", dir=os.environ["SLURM_SUBMIT_DIR"])
for step in range(5):
    run.log({"loss": 1 / (step + 1)})
run.finish()
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[RunningSlurm]:
    folder = tmp_path / "slurm"
    folder.mkdir()
    with slurm_in(folder) as running:
        yield running


def test_a_job_that_nobody_changed_is_seen(
    slurm: RunningSlurm, make_lens: Callable[..., RunningLens], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (configuration,) = blocks("slurm.md", "yaml")
    (prolog,) = blocks("slurm.md", "sh")
    install, look = blocks("slurm.md", "console")
    monkeypatch.setenv("SLURM_CONF", slurm.environ["SLURM_CONF"])  # the daemon's, which asks scontrol
    config = yaml.safe_load(configuration.replace("/home/*/logs", str(slurm.folder)))
    del config["server"]["listen"]
    config["collectors"]["jobs"]["interval_seconds"] = 1
    lens = make_lens(yaml.safe_dump(config)).start()
    places = {"http://lens:8080": lens.url, "/shared/lens-hook": str(tmp_path / "lens-hook")}
    shutil.copytree(ROOT / HOOK, tmp_path / HOOK, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run_console(install, tmp_path, pip, values=places)
    for shown, real in places.items():
        prolog = prolog.replace(shown, real)
    slurm.prolog(prolog)

    (slurm.folder / "train.py").write_text(TRAIN)
    script = f"echo '{LINE}'\nsrun -n 2 --oversubscribe {sys.executable} train.py"
    job = slurm.submit(script, "-n", "2", "--job-name", "llama", "--gres=gpu:2")
    wait_for(lambda: slurm.states(job) == ["COMPLETED"], 240, "the job's end")

    workload = f"slurm-{job}"
    wait_for(lambda: [point for point in lens.points(workload) if point["data_source"] == "log"], 240, "the output")
    wait_for(lambda: len(lens.points(workload, metrics="loss")) == 10, 240, "the rows of both ranks")
    detail = lens.get(f"/workloads/{workload}")
    assert detail["name"] == "llama"
    assert {run["rank"] for run in detail["runs"] if run["data_source"] == "wandb"} == {0, 1}
    assert lens.get("/directory")["pods"][0]["workloads"][0]["uid"] == workload
    run_console(look, tmp_path, {}, values=places)
