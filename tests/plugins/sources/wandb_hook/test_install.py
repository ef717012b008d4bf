"""The built wheel in a fresh environment: an unmodified script is seen, and `disable` undoes it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from lens_hook import VARIABLES, switch

from tests.fresh_environment import hook_wheel
from tests.plugins.sources.wandb_hook.environments import HOOK, ROOT, Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver

SCRIPT = """
    import wandb
    wandb.init(project="p")
    wandb.log({"loss": 0.5})
"""


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel, built from a copy of the source."""
    return hook_wheel()


@pytest.fixture(scope="session")
def installed(wheel: Path, newest: Environment, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A fresh environment with the wheel, which sees wandb's packages by a path file."""
    directory = tmp_path_factory.mktemp("fresh") / "environment"
    venv.create(directory, symlinks=True)
    pip = [sys.executable, "-m", "pip", "-q", "--python", str(directory / "bin" / "python"), "install", "--no-deps"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, capture_output=True, timeout=240)
    packages = "lib/python{}.{}/site-packages".format(*sys.version_info[:2])
    (directory / packages / "zz_wandb.pth").write_text(str(newest.directory / packages) + "\n")
    return Environment(directory)


def unarmed(work: Path) -> dict[str, str]:
    """The environment of a process that was started without any help."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(work),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(work),
        "WANDB_SILENT": "true",
    }


def run(environment: Environment, work: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the unmodified script."""
    path = work / "train.py"
    path.write_text("\n".join(line[4:] for line in SCRIPT.splitlines()))
    return subprocess.run(
        [environment.python, str(path)],
        env={**unarmed(work), **variables},
        cwd=work,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )


def test_the_wheel_carries_the_start_files_and_no_dependency(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert "lens_hook.pth" in names
        assert "lens_hook.start" in names
        assert archive.read("lens_hook.pth").decode() == switch.pth_text()
        assert archive.read("lens_hook.start").decode() == switch.START_TEXT
        metadata = archive.read("lens_hook-0.1.0.dist-info/METADATA").decode()
    assert "Requires-Dist" not in metadata
    assert "Requires-Python: >=3.9" in metadata
    assert all(name.count("\n") == 0 for name in names)
    assert len(switch.pth_text().splitlines()) == 1


@pytest.mark.parametrize("variable", ["PRIMUS_LENS_API_BASE_URL", "POD_NAME", "RANK"])
def test_an_unmodified_script_is_seen(
    installed: Environment, receiver: Receiver, tmp_path: Path, variable: str
) -> None:
    values = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "POD_NAME": "pod-0", "RANK": "0"}
    done = run(installed, tmp_path, {variable: values[variable], "PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert receiver.points() == [(0, "loss", 0.5)]
    assert done.stderr == ""


def test_no_variable_no_hook(installed: Environment, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed.python, "-c", "import sys; print('lens_hook' in sys.modules)"],
        env=unarmed(tmp_path),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout == "False\n"


def test_disable_and_enable(installed: Environment, receiver: Receiver, tmp_path: Path) -> None:
    def command(action: str) -> dict[str, object]:
        done = subprocess.run(
            [installed.python, "-m", "lens_hook", action, "--json"],
            env=unarmed(tmp_path),
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        state: dict[str, object] = json.loads(done.stdout)
        return state

    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url}
    assert command("status")["enabled"] is True
    assert command("disable")["enabled"] is False
    run(installed, tmp_path, variables)
    assert receiver.requests == []
    assert command("enable")["enabled"] is True
    run(installed, tmp_path, variables)
    assert receiver.points() == [(0, "loss", 0.5)]


def test_a_pth_without_the_package_is_silent(installed: Environment, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "lens_hook.pth").write_text(switch.pth_text().replace("lens_hook", "lens_hook_gone"))
    script = f"import site; site.addsitedir({str(folder)!r}); print('alive')"
    done = subprocess.run(
        [installed.python, "-c", script],
        env={**unarmed(tmp_path), "POD_NAME": "p"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("alive\n", "")


def test_enable_for_a_package_that_lies_elsewhere(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    state = switch.enable(str(folder))
    assert state["enabled"] is True
    script = f"""
        import site
        site.addsitedir({str(folder)!r})
        import wandb
        wandb.init(project="p")
        wandb.log({{"loss": 0.5}})
    """
    newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PYTHONPATH": ""})
    assert receiver.points() == [(0, "loss", 0.5)]
    assert switch.disable(str(folder))["enabled"] is False
    assert os.listdir(folder) == []


def test_the_pth_names_every_variable() -> None:
    assert all(name in switch.pth_text() for name in VARIABLES)
    assert (HOOK / "lens_hook.pth").read_text() == switch.pth_text()
    assert (HOOK / "lens_hook.start").read_text() == switch.START_TEXT


def test_the_commands_of_the_pages_install_the_hook(newest: Environment, tmp_path: Path) -> None:
    """Every `pip` line about the hook, as it is written, from a checkout and without a package index."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    lines = {
        found
        for page in pages
        for found in re.findall(r"pip (?:install|wheel) [^`\n|&#]*", page.read_text())
        if "wandb_hook" in found or "lens_hook" in found or "lens-hook" in found
    }
    assert not [line for line in lines if re.search(r" lens[-_]hook\b(?!-)", line)], "nobody has published it yet"
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(HOOK, checkout / "plugins" / "sources" / "wandb_hook", ignore=ignored)
    wheel = [line.strip() for line in lines if line.startswith("pip wheel")]
    install = [line.strip() for line in lines if line.startswith("pip install") and '".[all]"' not in line]
    assert wheel
    assert len(install) >= 2
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "v")], check=True)
    environment = {"PATH": f"{tmp_path}/v/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    for command in wheel + install:
        command = command.replace("/shared/", f"{tmp_path}/shared/")
        done = subprocess.run(
            f"python -m {command}",
            shell=True,
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr[-500:])
    status = subprocess.run(
        ["python", "-m", "lens_hook", "status"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the hook is on" in status.stdout
