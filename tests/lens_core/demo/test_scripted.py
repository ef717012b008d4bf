"""The job with scripted faults: the ledger of its log is the right one, which it wrote down itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lens_core.demo.scripted import Script, right_ledger, small
from tests.forked import run_lens


@pytest.mark.slow("the script waits for real")
def test_the_ledger_of_the_scripted_job_is_the_right_one(tmp_path: Path) -> None:
    script = small(0.25)
    command = [sys.executable, "-m", "lens_core.demo.scripted", str(tmp_path), json.dumps(script)]
    with (tmp_path / "train.log").open("wb") as log:
        subprocess.run(command, stdout=log, stderr=log, timeout=240, check=True)
    right = right_ledger(tmp_path, script)
    [run] = json.loads(run_lens("goodput", "--file", str(tmp_path / "train.log"), "--json").stdout)["runs"]
    wall = sum(right.values())
    assert run["wall_seconds"] == pytest.approx(wall, rel=0.05)
    for bucket, seconds in right.items():
        # Steps of 25 ms on a busy machine: what is slow by chance is no step that was scripted to be.
        assert run["buckets"][bucket] == pytest.approx(seconds, abs=0.08 * wall), (bucket, right, run["buckets"])
    assert [one["cause"] for one in run["interruptions"]] == ["training_failed", "collective_timeout"]
    assert run["buckets"]["down"] == pytest.approx(right["down"], abs=1.0)


def test_the_demo_takes_some_minutes() -> None:
    assert 150 < Script().seconds < 360
