from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow("trains the demo for some seconds")
def test_the_demo_trains_and_loses_no_step(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    command = [sys.executable, "-m", "lens_core.cli", "demo", "--seconds", "5", "--no-browser"]
    done = subprocess.run([*command, "--data-dir", str(tmp_path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "None" not in done.stdout
    found = re.search(r"logged (\d+) steps on 2 ranks; (\d+) of them are stored", done.stdout)
    assert found is not None
    assert int(found[1]) == int(found[2]) >= 20
    for event in ("checkpoint_saved", "loss_not_finite", "training_ended"):
        assert event in done.stdout
