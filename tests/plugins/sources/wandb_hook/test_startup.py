"""Arming: what it imports, what it leaves alone, failing imports, old Pythons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.sources.wandb_hook import environments
from tests.plugins.sources.wandb_hook.environments import HOOK, Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver


def output_of(python: str, code: str, variables: dict[str, str] | None = None) -> str:
    """Return the output of `python -c code`; its stderr must be empty."""
    done = subprocess.run(
        [python, "-c", code],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HOOK), **(variables or {})},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_arming_imports_nothing_but_itself() -> None:
    code = (
        "import sys; before = set(sys.modules); import lens_hook; lens_hook.arm(); "
        "print(sorted(set(sys.modules) - before), len(sys.meta_path)); lens_hook.arm(); print(len(sys.meta_path))"
    )
    first, second = output_of(sys.executable, code).splitlines()
    assert first == f"['lens_hook'] {second}"


def test_other_imports_pass_untouched() -> None:
    code = (
        "import sys, lens_hook; lens_hook.arm(); import importlib.util; "
        "print(importlib.util.find_spec('wandb'), importlib.util.find_spec('json').name)"
    )
    assert output_of(sys.executable, code, {"PYTHONPATH": str(HOOK)}).split()[-1] == "json"


def test_the_loader_keeps_its_type_and_methods(newest: Environment, tmp_path: Path) -> None:
    script = """
        import importlib.machinery, importlib.util, inspect
        spec = importlib.util.find_spec("wandb")
        assert type(spec.loader) is importlib.machinery.SourceFileLoader
        import wandb
        from wandb.sdk import wandb_run
        assert type(wandb.__loader__) is importlib.machinery.SourceFileLoader
        assert "exec_module" not in vars(wandb_run.__loader__)
        assert "def _log(" in inspect.getsource(wandb_run)
        assert wandb_run.Run._log.__name__ == "_log"
        import pickle
        importlib.reload(wandb_run)
        assert hasattr(wandb_run.Run._log, "_lens_hook_original")
    """
    newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": "http://127.0.0.1:9/api/v1"})


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="does not apply: numpy 1 has no wheels for this Python")
def test_a_failing_import_fails_as_it_would_without_us(tmp_path: Path) -> None:
    old = environments.environment("wandb-0.16.6", environments.WANDB_VERSIONS["0.16.6"])
    new = environments.environment("wandb-0.31.0", environments.WANDB_VERSIONS["0.31.0"])
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    for package in new.directory.glob("lib/python*/site-packages/numpy*"):
        os.symlink(package, shadow / package.name)  # wandb 0.16.6 cannot be imported with numpy 2
    script = """
        try:
            import wandb
        except AttributeError as error:
            print("np.float_" in str(error))
    """
    path = f"{shadow}:{old.variables(tmp_path)['PYTHONPATH']}"
    done = old.run(script, tmp_path, {"PYTHONPATH": path})
    assert done.stdout == "True\n"
    assert "lens-hook" not in done.stderr


OLD_PYTHON = """
import sys, threading, types
import lens_hook
lens_hook.attach(base_url=sys.argv[1], flush_interval_seconds=0.05)
from lens_hook import wandb_source, tensorboard_source, tensorflow_source
from lens_hook import embedded, system_metrics, switch, launch, runtime

class Run:
    id, project, name, tags, config, _step = "r", "p", "n", ("a",), {"lr": 1}, 0
    def _log(self, data, step=None, commit=None):
        self._step += 1
    def _on_start(self):
        pass

module = types.SimpleNamespace(Run=Run)
wandb_source.on_wandb_run(module)
run = Run()
run._on_start()
for step in range(100):
    run._log({"loss": step, "n": {"x": float("nan")}})
system_metrics.sample()
"""


def python_of(version: str) -> str | None:
    """An interpreter of this version that runs (a shim may stand for one that is not chosen)."""
    candidates = [str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    on_path = shutil.which(f"python{version}")
    for candidate in [*candidates, *([on_path] if on_path else [])]:
        if subprocess.run([candidate, "-c", "pass"], check=False, capture_output=True).returncode == 0:
            return candidate
    return None


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_python(version: str, receiver: Receiver, tmp_path: Path) -> None:
    python = python_of(version)
    if python is None:
        pytest.skip(f"does not apply: no Python {version} here")
    script = tmp_path / "old.py"
    script.write_text(OLD_PYTHON)
    done = subprocess.run(
        [python, "-W", "error", str(script), receiver.url],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HOOK), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["values"] for row in receiver.rows()] == [{"loss": step, "n.x": "NaN"} for step in range(100)]
    assert receiver.records("evidence")[0]["facts"]["wandb"]["config"] == {"lr": 1}
