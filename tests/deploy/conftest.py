"""The daemons of the end-to-end tests are made here too, and what the hook's image holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import make_lens

__all__ = ["make_lens"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def hook_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the hook's image, made by the commands of the Dockerfile."""
    folder = tmp_path_factory.mktemp("hook")
    source = folder / "source"
    shutil.copytree(ROOT / "plugins/sources/wandb_hook", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *offline, "-w", str(folder), str(source)], check=True, timeout=240)
    (wheel,) = folder.glob("lens_hook-*.whl")
    target = folder / "lens-hook"
    install = ["install", "--no-deps", "--no-index", "--no-compile", "--target", str(target), str(wheel)]
    subprocess.run([*pip, *install], check=True, timeout=240)
    return target
