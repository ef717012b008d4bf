"""The plugin host with real distributions, installed by pip into a fresh environment."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from lens_core import API_VERSION
from tests.fresh_environment import FreshEnvironment, agent_wheel

pytestmark = pytest.mark.slow("installs distributions into an environment of its own")

DETECTOR = """\
    {first}
    from lens_core import Detector, hookimpl

    class Acme(Detector):
        '''{title}.'''
        name = "{name}"
        modules = ("acme_trainer",)
        {extra}

    @hookimpl
    def lens_detectors():
        {answer}
"""


def detector(
    name: str, *, title: str = "A trainer", extra: str = "", answer: str = "return [Acme]", first: str = ""
) -> str:
    return DETECTOR.format(name=name, title=title, extra=extra, answer=answer, first=first)


# Distribution → name of its entry point, its module's text, its requirements.
DISTRIBUTIONS: dict[str, tuple[str, str, list[str]]] = {
    "good-lens": ("good", detector("good", title="The good one"), []),
    "broken-lens": ("broken", "import json\n\nraise RuntimeError('half installed')\n", []),
    "needy-lens": ("needy", detector("needy", first="import no_such_client"), ["no-such-client>=3"]),
    "first-lens": ("first", detector("twin"), []),
    "second-lens": ("second", detector("twin"), []),
    "new-lens": ("newer", detector("newer", extra='api = ">=2"'), []),
    "hook-lens": ("hooked", detector("hooked", answer="return [][0]"), []),
    "shadow-lens": ("megatron", detector("megatron", title="Not the real one"), []),
}


def write_wheel(folder: Path, name: str) -> Path:
    """The wheel of one of the distributions above; having pip build each of them takes twelve seconds."""
    plugin, text, requires = DISTRIBUTIONS[name]
    module = name.replace("-", "_")
    about = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n{about}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[lens]\n{plugin} = {module}\n",
        "RECORD": "",
    }
    path = folder / f"{module}-1.2.3-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        wheel.writestr(f"{module}.py", textwrap.dedent(text))
        for file, content in files.items():
            wheel.writestr(f"{module}-1.2.3.dist-info/{file}", content)
    return path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    folder = tmp_path_factory.mktemp("distributions")
    made = FreshEnvironment(folder / "environment")
    made.install(agent_wheel(), *[write_wheel(folder, name) for name in DISTRIBUTIONS])
    return made


@pytest.fixture(scope="module")
def plugins(environment: FreshEnvironment) -> dict[str, dict[str, Any]]:
    return environment.plugins()


def test_a_good_one_is_loaded_among_all_the_others(plugins: dict[str, dict[str, Any]]) -> None:
    good = plugins["good@good-lens"]
    assert (good["state"], good["version"], good["reason"]) == ("loaded", "1.2.3", "")
    assert good["components"][0]["summary"] == "The good one."
    assert good["import_seconds"] > 0
    assert plugins["wandb_api@lens-agent"]["state"] == "loaded"


@pytest.mark.parametrize(
    ("plugin", "state", "reason"),
    [
        ("broken@broken-lens", "failed", "RuntimeError: half installed"),
        ("needy@needy-lens", "unavailable", 'pip install "no-such-client>=3"'),
        (
            "newer@new-lens",
            "failed",
            f"needs plugin API >=2, this Lens has {API_VERSION}; install a version of the plugin",
        ),
        ("hooked@hook-lens", "failed", "IndexError: list index out of range"),
        ("first@first-lens", "conflicting", "claimed by first-lens 1.2.3 (first_lens) and second-lens 1.2.3"),
        ("second@second-lens", "conflicting", "claimed by first-lens 1.2.3 (first_lens) and second-lens 1.2.3"),
        ("megatron@shadow-lens", "conflicting", "the one of Lens stays; rename the other"),
    ],
)
def test_each_of_the_others_says_why_it_is_not(
    plugins: dict[str, dict[str, Any]], plugin: str, state: str, reason: str
) -> None:
    assert plugins[plugin]["state"] == state
    assert reason in plugins[plugin]["reason"]
    assert plugins[plugin]["components"] == []


def test_the_broken_one_shows_where(plugins: dict[str, dict[str, Any]]) -> None:
    assert plugins["broken@broken-lens"]["traceback"][-1].endswith("broken_lens.py:3 in <module>")


def test_the_built_in_of_the_shadowed_name_stays(plugins: dict[str, dict[str, Any]]) -> None:
    assert plugins["megatron@lens-agent"]["state"] == "loaded"


def test_a_configuration_that_uses_a_broken_one_says_why(environment: FreshEnvironment) -> None:
    file = environment.folder / "lens.yaml"
    file.write_text(
        "sinks: {out: {type: jsonl, path: x}}\ndetectors:\n  needy: {}\n  mine: {type: broken}\n  good: {}\n"
    )
    assert environment.lens("validate", "lens.yaml", code=78).splitlines() == [
        "lens.yaml:3:3: detectors.needy: the plugin needy (needy-lens 1.2.3) is unavailable: "
        'pip install "no-such-client>=3"; or say which with type: PLUGIN',
        "lens.yaml:4:16: detectors.mine: the plugin broken (broken-lens 1.2.3) failed to load: "
        "RuntimeError: half installed",
        "2 to fix",
    ]


def test_one_can_be_switched_off(environment: FreshEnvironment) -> None:
    plugins = environment.plugins(disabled="broken,good")
    assert plugins["broken@broken-lens"]["state"] == "disabled"
    assert plugins["good@good-lens"]["import_seconds"] is None


def test_what_is_uninstalled_is_gone_and_the_other_twin_is_free(environment: FreshEnvironment) -> None:
    environment.uninstall("second-lens")
    plugins = environment.plugins()
    assert "second@second-lens" not in plugins
    assert plugins["first@first-lens"]["state"] == "loaded"
