"""Output of `lens plugin new` passes its own tests, its own linters, and ours: as generated, installed as a wheel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import httpx
import pytest

from lens_core.base.errors import LensError
from lens_core.plugin_host.info import ComponentKind
from lens_core.scaffold import LONGEST_NAME, Scaffold, write_distribution
from lens_core.testing import HttpReceiver, until
from tests.fresh_environment import FreshEnvironment, agent_wheel, build_wheel

KINDS: tuple[ComponentKind, ...] = get_args(ComponentKind)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    """Lens and a distribution of each kind, as wheels, in a fresh environment; their sources are beside it."""
    folder = tmp_path_factory.mktemp("scaffold")
    made = FreshEnvironment(folder / "environment")
    wheels = [agent_wheel()]
    for kind in KINDS:
        source = folder / "environment" / f"lens-new-{kind}"
        write_distribution(Scaffold(f"new_{kind}", kind), source)
        (folder / kind).mkdir()
        wheels.append(build_wheel(source, folder / kind))
    made.install(*wheels)
    return made


@pytest.mark.slow("builds, installs and checks new plugins with their own tools")
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_is_in_order_as_generated(environment: FreshEnvironment, kind: str) -> None:
    source = environment.folder / f"lens-new-{kind}"
    tests = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(source),
        "-c",
        str(source / "pyproject.toml"),
    ]
    assert " passed" in environment.python(*tests, str(source / "tests"))
    mypy = ["-m", "mypy", "--config-file", str(source / "pyproject.toml"), str(source / "src"), str(source / "tests")]
    assert "Success" in environment.python(*mypy)
    environment.python("-m", "ruff", "check", "--no-cache", str(source))
    environment.python("-m", "ruff", "format", "--no-cache", "--check", str(source))
    assert environment.lens("plugin", "check", f"new_{kind}", "--strict").endswith("\nIn order\n")


@pytest.mark.slow("builds, installs and checks new plugins with their own tools")
def test_the_command_of_an_installed_lens_has_its_templates(environment: FreshEnvironment) -> None:
    printed = environment.lens("plugin", "new", "from_wheel", "--kind", "collector")
    made = environment.folder / "lens-from-wheel"
    assert (made / ".github/workflows/publish.yml").is_file()
    assert (made / "src/lens_from_wheel/py.typed").is_file()
    assert (made / "tests/test_from_wheel.py").is_file()
    assert f"  {Path('lens-from-wheel/.gitignore')}\n" in printed


@pytest.mark.slow("builds, installs and checks new plugins with their own tools")
def test_the_wheels_hold_what_type_checkers_need(environment: FreshEnvironment) -> None:
    for kind in KINDS:
        (marker,) = environment.folder.glob(f"lib/python*/site-packages/lens_new_{kind}/py.typed")
        assert marker.is_file()


CONFIGURATION = """
sources: {{new_source: {{}}, logs: {{}}}}
collectors: {{new_collector: {{url: "{numbers}", interval_seconds: 0.2}}}}
sinks:
  new_sink: {{url: "{rows}"}}
  file: {{type: jsonl, path: all.jsonl}}
pipelines: {{default: {{}}}}
"""


def steps_of(receiver: HttpReceiver) -> set[int]:
    return {row["step"] for request in receiver.received for row in json.loads(request.body)}


@pytest.mark.slow("builds, installs and checks new plugins with their own tools")
async def test_they_are_used_together_and_gone_when_uninstalled(environment: FreshEnvironment) -> None:
    """Rows of the source reach the sink, as do numbers of the collector and steps of the detector."""
    every = environment.folder / "all.jsonl"
    async with HttpReceiver() as numbers, HttpReceiver() as rows:
        numbers.answers(b'{"jobs": 3}')
        text = CONFIGURATION.format(numbers=numbers.url, rows=rows.url)
        (environment.folder / "together.yaml").write_text(text)
        with environment.daemon("together.yaml") as url:
            row = b'[{"workload": "job", "step": 7, "values": {"loss": 0.5}}]'
            line = {"message": "[new_detector] step 10/500 | loss: 2.31", "pod_name": "job-0"}
            async with httpx.AsyncClient(base_url=url, timeout=240) as client:
                assert (await client.post("/api/v1/new_source", content=row)).json()["accepted"] == 1
                assert (await client.post("/logs", json=[line])).is_success
            await until(lambda: {7, 10} <= steps_of(rows), "both rows arrive at the sink")
            await until(lambda: '"new_collector.jobs"' in every.read_text(), "the collector's number arrives")
    assert '"framework":"new_detector"' in every.read_text()
    environment.uninstall(*(f"lens-new-{kind}" for kind in KINDS))
    assert not [name for name in environment.plugins() if not name.endswith("@lens-agent")]
    assert "there is no sink plugin 'new_sink'" in environment.lens("validate", "together.yaml", code=78)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["acme", "lens-acme", "a2b_3", "lens_two_words"])
def test_no_placeholder_is_left(tmp_path: Path, kind: ComponentKind, name: str) -> None:
    scaffold = Scaffold(name, kind)
    files = write_distribution(scaffold, tmp_path / "new")
    assert Path("pyproject.toml") in files
    assert Path(".github/workflows/test.yml") in files
    for file in files:
        text = (tmp_path / "new" / file).read_text()
        assert "@@" not in text, file
        assert "@@" not in str(file)
        if file.suffix == ".py":
            compile(text, str(file), "exec")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, LONGEST_NAME])
def test_code_is_formatted_whatever_the_name(tmp_path: Path, kind: ComponentKind, length: int) -> None:
    write_distribution(Scaffold("n" * length, kind), tmp_path / "new")
    for arguments in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", str(tmp_path / "new")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "distribution", "class_name"),
    [("acme", "lens-acme", "Acme"), ("lens-big-data", "lens-big-data", "BigData"), ("a2b_3", "lens-a2b-3", "A2B3")],
)
def test_names_are_made_of_the_name(name: str, distribution: str, class_name: str) -> None:
    scaffold = Scaffold(name, "sink")
    assert (scaffold.distribution, scaffold.words()["class"]) == (distribution, class_name)


@pytest.mark.parametrize("name", ["", "Acme", "2fast", "a b", "../up", "x" * 60, "lens-"])
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(LensError, match="cannot be used; take lower case letters"):
        Scaffold(name, "sink")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(LensError, match="is not empty"):
        write_distribution(Scaffold("acme", "sink"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
