"""The linter: each plugin here has one defect, and one finding must name it at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from lens_core.plugin_host.host import PluginHost
from lens_core.scaffold import Finding, lint

HEAD = """
from typing import Annotated
import msgspec
from msgspec import Meta
from lens_core import Answer, Batch, Delivered, Detector, LogFormat, Secret, Sink, hookimpl
{imports}

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    {settings}

class Found(Sink):
    {docstring}
    name = "{name}"
    Settings = Settings
    {attributes}

    async def send(self, batch: Batch) -> Answer:
        {body}
        return Delivered()

@hookimpl
def lens_sinks():
    return [Found]
"""


def findings(folder: Path, name: str, **parts: str) -> list[Finding]:
    """Return the findings in a plugin that is correct except for the given parts."""
    filled = {"imports": "", "settings": "pass", "docstring": "'''Prints.'''", "attributes": "", "body": "", **parts}
    (folder / f"{name}.py").write_text(HEAD.format(name=name, **filled))
    (plugin,) = PluginHost.load().loaded_from(name)
    return [found for found in lint(plugin) if found.state != "ok" and found.check != "distribution"]


def test_a_path_is_a_setting(lens_plugins_dir: Path) -> None:
    path = {
        "imports": "from pathlib import Path",
        "settings": 'file: Annotated[Path | None, Meta(description="a file")] = None',
    }
    assert [one for one in findings(lens_plugins_dir, "lint_path", **path) if one.state == "failed"] == []


def test_what_is_in_order_has_no_finding(lens_plugins_dir: Path) -> None:
    assert findings(lens_plugins_dir, "lint_good") == []


@pytest.mark.parametrize(
    ("name", "parts", "check", "state", "text"),
    [
        ("lint_doc", {"docstring": "pass"}, "documentation", "failed", "has no docstring"),
        ("lint_api", {"attributes": 'api = ">=1"'}, "api", "failed", "promises to work with 2.0"),
        ("lint_silent", {"settings": "retries: int = 1"}, "settings", "failed", "says nothing"),
        (
            "lint_secret",
            {"settings": 'api_token: Annotated[str, Meta(description="the token")] = ""'},
            "settings",
            "failed",
            "looks like a secret",
        ),
        (
            "lint_unit",
            {"settings": 'timeout: Annotated[float | None, Meta(description="for one request")] = None'},
            "settings",
            "warning",
            "end its name with the unit",
        ),
        (
            "lint_inside",
            {"imports": "import lens_core.delivery.spool.spool"},
            "code",
            "failed",
            "public are lens_core,",
        ),
        (
            "lint_other",
            {"imports": "import lens_plugins.sinks.jsonl"},
            "code",
            "failed",
            "the inside of something else",
        ),
        (
            "lint_heavy",
            {"imports": "try:\n    import pandas\nexcept ImportError:\n    pandas = None"},
            "code",
            "failed",
            "imports pandas when Lens starts",
        ),
        ("lint_block", {"imports": "import time", "body": "time.sleep(1)"}, "code", "failed", "stops the whole daemon"),
        (
            "lint_slow",
            {"imports": "import time\nwhile time.process_time() < 1.5:\n    pass"},
            "import time",
            "warning",
            "s to import",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("lint_") else "",
)
def test_each_defect_is_found(
    lens_plugins_dir: Path, name: str, parts: dict[str, str], check: str, state: str, text: str
) -> None:
    found = [finding for finding in findings(lens_plugins_dir, name, **parts) if finding.check == check]
    assert [finding.state for finding in found] == [state], found
    assert text in found[0].text


def test_what_may_run_elsewhere_is_no_finding(lens_plugins_dir: Path) -> None:
    imports = (
        "import time\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nimport lens_core.records"
    )
    body = "work = lambda: time.sleep(0)\n        import pandas"
    assert findings(lens_plugins_dir, "lint_elsewhere", imports=imports, body=body) == []


def test_a_detector_that_breaks_its_contract_is_found(lens_plugins_dir: Path) -> None:
    text = """
from lens_core import Detector, LogFormat, hookimpl

class Wrong(Detector):
    '''Does not read its own example.'''
    name = "lint_wrong"
    formats = (LogFormat(name="step", words=("wrong",), head=r"wrong (?P<iteration>\\d+)$", example="wrong one"),)

@hookimpl
def lens_detectors():
    return [Wrong]
"""
    (lens_plugins_dir / "lint_wrong.py").write_text(text)
    (plugin,) = PluginHost.load().loaded_from("lint_wrong")
    (found,) = [finding for finding in lint(plugin) if finding.check == "contract"]
    assert "does not read its own example" in found.text


def test_a_plugin_that_cannot_be_loaded_has_one_finding(lens_plugins_dir: Path) -> None:
    (lens_plugins_dir / "lint_broken.py").write_text("raise RuntimeError('half done')\n")
    (plugin,) = PluginHost.load().loaded_from("lint_broken")
    assert lint(plugin) == [Finding("state", "failed", "lint_broken", "failed: RuntimeError: half done")]


def test_the_plugins_of_lens_are_in_order() -> None:
    for name in ("jsonl", "megatron", "logs"):
        (plugin,) = PluginHost.load().loaded_from(name)
        assert [finding for finding in lint(plugin) if finding.state == "failed"] == []
