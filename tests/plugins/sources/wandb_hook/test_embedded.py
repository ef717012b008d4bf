"""Embedded mode: a private daemon of this checkout as a child, from the first row to its own end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugins.sources.wandb_hook.environments import BOOTSTRAP, HOOK, ROOT, write_script

CONFIGURATION = """\
sources:
  records: {{type: records_api}}
sinks:
  file: {{type: jsonl, path: {path}}}
pipelines:
  training: {{from: [records], to: [file]}}
"""


def wait_until(condition: Callable[[], object], seconds: float = 240.0) -> None:
    """Wait for `condition`, looked at often."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start(script: str, work: Path, variables: dict[str, str]) -> subprocess.Popen[str]:
    """Start `script` with the Python that has the daemon."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(work),
        "XDG_STATE_HOME": str(work / "state"),
        "PYTHONPATH": f"{HOOK}:{ROOT}",
        "WANDB_MODE": "disabled",
        "WORKLOAD_UID": "embedded",
        "PRIMUS_LENS_FLUSH_INTERVAL_SECONDS": "0.2",
        **variables,
    }
    return subprocess.Popen(
        [sys.executable, str(write_script(script, work))],
        env=environment,
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stored(path: Path) -> list[object]:
    """The values of all rows that the sink has written."""
    found: list[object] = []
    for file in [path] if path.is_file() else path.parent.glob(path.name + "*"):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            if record.get("record") == "step_metrics":
                found.append(record["values"])
    return found


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


SCRIPT = """
    import os, time
    import lens_hook
    lens_hook.attach(config=os.environ["CONFIGURATION"])
    import wandb
    wandb.init(project="p")
    for step in range(20):
        wandb.log({"loss": step})
    from lens_hook import runtime
    deadline = time.monotonic() + 240
    while runtime.get_runtime().worker.daemon.url is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    print(runtime.get_runtime().worker.daemon._process.pid, flush=True)
    if os.environ.get("STAY"):
        time.sleep(60)
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A configuration with a file as the sink."""
    path = tmp_path / "lens.yaml"
    path.write_text(CONFIGURATION.format(path=tmp_path / "rows.jsonl"))
    return path


def test_a_private_daemon_stores_the_rows_and_ends(configuration: Path, tmp_path: Path) -> None:
    process = start(SCRIPT, tmp_path, {"CONFIGURATION": str(configuration)})
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert "lens-hook" not in errors
    pid = int(output)
    wait_until(lambda: not alive(pid))
    assert stored(tmp_path / "rows.jsonl") == [{"loss": step} for step in range(20)]


def test_the_daemon_ends_when_its_parent_is_killed(configuration: Path, tmp_path: Path) -> None:
    process = start(SCRIPT, tmp_path, {"CONFIGURATION": str(configuration), "STAY": "1"})
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    pid = int(line)
    assert alive(pid)
    wait_until(lambda: len(stored(tmp_path / "rows.jsonl")) == 20)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=240)
    wait_until(lambda: not alive(pid))


def test_a_broken_configuration_is_said_and_disturbs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lens.yaml"
    path.write_text("sinks: {x: {type: no_such_sink}}\n")
    script = """
        import time
        import wandb
        wandb.init(project="p")
        wandb.log({"loss": 1})
        from lens_hook import runtime
        deadline = time.monotonic() + 240
        while not runtime.get_runtime().worker.daemon.failed:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        print("trained")
    """
    bootstrap = f"{BOOTSTRAP}:{ROOT}"
    process = start(script, tmp_path, {"LENS_CONFIG": str(path), "PYTHONPATH": bootstrap})
    output, errors = process.communicate(timeout=240)
    assert (process.returncode, output) == (0, "trained\n"), errors
    assert "the embedded daemon does not run" in errors
    assert "no_such_sink" in errors
