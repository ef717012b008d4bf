"""`lens` forked from a process that has imported it behaves as the command does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.forked import ForkedLens, run_lens


def test_output_messages_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    done = run_lens("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, "lens, version 0.1.0\n", "")
    usage = run_lens("nonsense")
    assert (usage.returncode, usage.stdout) == (2, "")
    assert "No such command 'nonsense'" in usage.stderr
    file = tmp_path / "lens.yaml"
    file.write_text("sinks: {out: {type: nonsense}}\n")
    assert run_lens("validate", str(file)).returncode == 78


def test_it_has_the_variables_and_the_folder_that_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LENS_HERE", "here")
    (tmp_path / "lens.yaml").write_text("sinks: {out: {type: jsonl, path: '${LENS_HERE}'}}\n")
    assert run_lens("validate", "lens.yaml").returncode == 0
    assert "LENS_HERE" in run_lens("validate", "lens.yaml", environ={"PATH": os.environ["PATH"]}).stdout


def test_signals_end_it_and_are_its_exit_code(tmp_path: Path) -> None:
    arguments = ["up", "--announce-json", "--listen", "127.0.0.1:0"]
    (tmp_path / "lens.yaml").write_text(f"sinks: {{out: {{type: jsonl, path: {tmp_path / 'out'}}}}}\n")
    arguments += ["--config", str(tmp_path / "lens.yaml"), "--data-dir", str(tmp_path / "data")]
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -9)):
        lens = ForkedLens(arguments, tmp_path / "log")
        with lens.stdout:
            assert lens.stdout.readline(), (tmp_path / "log").read_text()
            assert lens.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                lens.wait(0)
            lens.send_signal(number)
            assert lens.wait(240) == code
        lens.kill()  # of one that has ended: nothing
