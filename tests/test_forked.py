"""`lens` forked from a process that has imported it behaves as the command does."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.running_lens import wait_for
from tests.forked import ForkedLens, forked_command, run_lens


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


def test_a_shell_has_it_as_a_command(tmp_path: Path) -> None:
    """Files, variables, folder and exit code are those of the command that the shell started."""
    (tmp_path / "lens.yaml").write_text("sinks: {out: {type: jsonl, path: '${LENS_HERE}'}}\n")
    script = f'lens() {{ {shlex.join(forked_command())} "$@"; }}; lens --version; lens validate lens.yaml; echo $?'
    environ = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    version, *_, code = done.stdout.splitlines()
    assert (version, code) == ("lens, version 0.1.0", "78")
    assert "LENS_HERE" in done.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_signals_of_the_command_reach_it(number: int, code: int, tmp_path: Path) -> None:
    """A command that is killed takes its `lens` with it, which could not be told."""
    (tmp_path / "lens.yaml").write_text(f"sinks: {{out: {{type: jsonl, path: {tmp_path / 'out'}}}}}\n")
    arguments = ["up", "--announce-json", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    command = [*forked_command(), *arguments, "--config", str(tmp_path / "lens.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        assert client.stdout is not None
        pid = json.loads(client.stdout.readline())["pid"]
        assert pid != client.pid
        client.send_signal(number)
        assert client.wait(240) == code
        wait_for(lambda: not psutil.pid_exists(pid))


def test_callers_that_go_take_nothing_but_their_own(tmp_path: Path) -> None:
    """A caller that is killed, before it asks or while its `lens` runs, is no reason to end for the rest."""
    (tmp_path / "lens.yaml").write_text(f"sinks: {{out: {{type: jsonl, path: {tmp_path / 'out'}}}}}\n")
    arguments = ["up", "--announce-json", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    command = [*forked_command(), *arguments, "--config", str(tmp_path / "lens.yaml")]
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(command[-len(arguments) - 3])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        assert client.stdout is not None
        pid = json.loads(client.stdout.readline())["pid"]
        client.kill()
    wait_for(lambda: not psutil.pid_exists(pid))
    assert run_lens("--version").returncode == 0
