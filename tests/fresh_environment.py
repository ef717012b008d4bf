"""A fresh virtual environment with Lens built from this checkout as a wheel, into which tests install plugins by pip.

Third-party packages are those of the environment that runs the tests (a .pth file names it), so nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.side_by_side import SELDOM_GARBAGE, made_once

CHECKOUT = Path(__file__).parent.parent
_PIP = ["--disable-pip-version-check", "--no-input", "-q"]
_OFFLINE = ["--no-index", "--no-deps", "--no-build-isolation"]


class FreshEnvironment:
    """One virtual environment in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._scripts = folder / "bin"
        venv.create(folder, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "packages_of_the_test_run.pth").write_text(sysconfig.get_path("purelib") + "\n" + SELDOM_GARBAGE)

    def install(self, *what: Path) -> None:
        """pip install wheels or source folders, without dependencies."""
        self._pip("install", *_OFFLINE, *map(str, what))

    def uninstall(self, *names: str) -> None:
        """pip uninstall."""
        self._pip("uninstall", "-y", *names)

    def lens(self, *arguments: str, code: int = 0, **environ: str) -> str:
        """Return the output of the command, which must end with this exit code."""
        done = self.run(str(self._scripts / "lens"), *arguments, **environ)
        assert done.returncode == code, f"lens {arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def python(self, *arguments: str) -> str:
        """Return the output of a Python program of this environment, which must succeed."""
        done = self.run(str(self._scripts / "python"), *arguments)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def plugins(self, *, disabled: str = "") -> dict[str, dict[str, Any]]:
        """`lens plugins --json` by the plugin's name and distribution: `acme@acme-lens`."""
        listed = json.loads(self.lens("plugins", "--json", LENS_DISABLED_PLUGINS=disabled))
        return {f"{plugin['name']}@{plugin['distribution']}": plugin for plugin in listed}

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command outside the checkout, so that only what is installed is found."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LENS_"))}
        return subprocess.run(
            command, cwd=self.folder, env={**clean, **environ}, capture_output=True, text=True, timeout=240, check=False
        )

    @contextmanager
    def daemon(self, configuration: str, **environ: str) -> Iterator[str]:
        """`lens up` with a configuration file; its address. Stopped by SIGTERM, it must end well."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LENS_"))}
        command = [str(self._scripts / "lens"), "up", "--config", configuration, "--announce-json"]
        command += ["--listen", "127.0.0.1:0", "--data-dir", str(self.folder / "data")]
        with (self.folder / "daemon.log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env={**clean, **environ}, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, (self.folder / "daemon.log").read_text()
            yield json.loads(line)["listening"]
        finally:
            process.terminate()
            code = process.wait(timeout=240)
            process.stdout.close()
        assert code == 0, (self.folder / "daemon.log").read_text()

    def _pip(self, action: str, *arguments: str) -> None:
        python = str(self._scripts / "python")
        done = self.run(sys.executable, "-m", "pip", "--python", python, action, *_PIP, *arguments)
        assert done.returncode == 0, f"pip {action} {arguments}:\n{done.stdout}\n{done.stderr}"


def agent_wheel() -> Path:
    """The wheel of lens-agent from this checkout, built once for all tests of a run."""
    (wheel,) = made_once("agent_wheel", lambda folder: build_wheel(CHECKOUT, folder)).glob("wheels/*.whl")
    return wheel


def hook_wheel() -> Path:
    """The wheel of lens-hook from this checkout, built once for all tests of a run."""
    hook = CHECKOUT / "plugins" / "sources" / "wandb_hook"
    (wheel,) = made_once("hook_wheel", lambda folder: build_wheel(hook, folder)).glob("wheels/*.whl")
    return wheel


def build_wheel(source: Path, folder: Path) -> Path:
    """Build a wheel from a copy of a source folder, which stays as it is."""
    command = [sys.executable, "-m", "pip", "wheel", *_PIP, *_OFFLINE, "-w", str(folder / "wheels")]
    command.append(str(clean_copy(source, folder)))
    # Optimizing the compiled part takes half of the time, and no test needs it to be fast.
    environ = {**os.environ, "CFLAGS": "-O0"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (wheel,) = (folder / "wheels").glob("*.whl")
    return wheel


def clean_copy(source: Path, folder: Path) -> Path:
    """Copy the files of a source folder's wheel, without those of earlier builds."""
    copy = folder / f"source-of-{source.name}"
    patterns = shutil.ignore_patterns(".git", ".venv*", "*.egg-info", "__pycache__", ".*_cache", "build", "dist")

    def ignored(folder: str, names: list[str]) -> set[str]:
        # The templates of new plugins have tests too: only the source's own are left behind.
        return patterns(folder, names) | ({"tests"} if Path(folder) == source else set())

    shutil.copytree(source, copy, ignore=ignored)
    return copy
