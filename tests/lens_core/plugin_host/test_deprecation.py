"""Deprecated names work, warn once at the line that uses them, and are listed; tried with names made for it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import cast

import pytest
from packaging.version import Version

import lens_core
from lens_core import API_VERSION, Directory, Index, LensDeprecationWarning, NoSettings, Pod, Sink, Source
from lens_core.base import deprecation
from lens_core.base.deprecation import DEPRECATED, Deprecation
from lens_core.cli import main
from lens_core.cli.checks import plugins as plugin_findings
from lens_core.config.json_schema import json_schema
from lens_core.config.loading import parse_config
from lens_core.plugin_host.host import PluginHost
from lens_core.plugin_host.info import PluginInfo
from lens_core.scaffold import lint
from lens_core.testing import MemoryStore, RecordingGate, make_context

PLUGIN = """\"\"\"Written for a version that had other names.\"\"\"
from typing import Annotated
import msgspec
from msgspec import Meta
from lens_core import Delivered, deprecated, hookimpl
from lens_core import OldSink

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pause: Annotated[float, Meta(description="between"), deprecated(since="1.1", removal="2", instead="take gap")] = 1.0

class Aged(OldSink):
    '''Prints.'''
    name = "aged"
    Settings = Settings

    def old_limits(self):
        return 1

    async def send(self, batch):
        return Delivered()

@hookimpl
def lens_sinks():
    return [Aged]
"""
NAME = Deprecation(since="1.1", removal="2.0", instead="take Sink", target="lens_core:Sink")
METHOD = Deprecation(since="1.1", removal="2.0", instead="write limits")
HOOK = Deprecation(since="1.1", removal="2.0", instead="announce by lens_outlets")


@pytest.fixture
def aged(lens_plugins_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin file that uses a name and a method that will go."""
    monkeypatch.setitem(DEPRECATED, "lens_core.OldSink", NAME)
    monkeypatch.setitem(DEPRECATED, "Sink.old_limits", METHOD)
    monkeypatch.setattr(Sink, "old_limits", lambda self: 0, raising=False)
    monkeypatch.setattr(deprecation, "_uses", {})
    file = lens_plugins_dir / "aged.py"
    file.write_text(PLUGIN)
    return file


@pytest.fixture
def told(aged: Path) -> PluginInfo:
    """The plugin, after its warnings were given."""
    with pytest.warns(LensDeprecationWarning):
        host = PluginHost.load()
    (plugin,) = [plugin for plugin in host.plugins() if plugin.name == "aged"]
    return plugin


def test_it_works_on_and_warns_once_at_the_line_that_uses_it(aged: Path) -> None:
    with pytest.warns(LensDeprecationWarning) as caught:
        (plugin,) = PluginHost.load().loaded_from("aged")
    assert plugin.state == "loaded", plugin.reason
    assert issubclass(plugin.classes[0], Sink)
    lines = PLUGIN.splitlines()
    said = [(found.filename, lines[found.lineno - 1].strip(), str(found.message)) for found in caught]
    assert said == [
        (
            str(aged),
            "from lens_core import OldSink",
            "lens_core.OldSink, deprecated since 1.1, goes with 2.0: take Sink",
        ),
        (str(aged), "def old_limits(self):", "Sink.old_limits, deprecated since 1.1, goes with 2.0: write limits"),
    ]


def test_a_second_host_says_nothing_but_knows(told: PluginInfo) -> None:
    (again,) = [plugin for plugin in PluginHost.load().plugins() if plugin.name == "aged"]
    assert again.deprecations == told.deprecations
    assert [text.partition(",")[0] for text in again.deprecations] == ["lens_core.OldSink", "Sink.old_limits"]


def test_a_hook_can_go_too(aged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEPRECATED, "lens_sinks", HOOK)
    with pytest.warns(LensDeprecationWarning) as caught:
        PluginHost.load()
    lines = [found.lineno for found in caught if found.filename == str(aged) and "lens_sinks," in str(found.message)]
    assert [PLUGIN.splitlines()[line - 1] for line in lines] == ["@hookimpl"]


def use_former_names(directory: Directory, pod: Pod) -> Index:
    """Use two former names."""
    directory.learn([pod])
    return cast("Index", directory.picture)


def test_a_former_name_reads_and_sets_the_present_one_and_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deprecation, "_uses", {})
    directory = Directory()
    with pytest.warns(LensDeprecationWarning) as caught:
        indexes = [use_former_names(directory, Pod(uid=uid, name=uid, namespace="b")) for uid in ("u", "v")]
    assert indexes[-1] is directory.index
    assert sorted(directory.index.pods) == ["u", "v"]
    assert [(found.filename, str(found.message)) for found in caught] == [
        (__file__, "Directory.learn, deprecated since 1.3, goes with 2.0: take add_pods"),
        (__file__, "Directory.picture, deprecated since 1.3, goes with 2.0: take index"),
    ]


@pytest.mark.filterwarnings("ignore::lens_core.LensDeprecationWarning")
async def test_a_source_and_a_store_with_former_names_work(tmp_path: Path) -> None:
    source, gate = Source(NoSettings(), make_context("posts", tmp_path)), RecordingGate()
    source.door = gate
    assert source.gate is gate
    assert source.door is gate

    class OldStore(MemoryStore):
        async def tidy(self) -> dict[str, int]:
            return {"blocks_made": 3}

    assert await OldStore(tmp_path).vacuum() == {"blocks_made": 3}


def test_the_page_lists_every_former_name() -> None:
    page = (Path(__file__).parents[3] / "docs/plugins.md").read_text()
    assert [name for name, found in DEPRECATED.items() if f"`{name}`" not in page or found.since not in page] == []


def test_the_plugins_of_lens_use_nothing_that_goes() -> None:
    assert [plugin.name for plugin in PluginHost.load().plugins() if plugin.deprecations] == []


def test_other_names_are_missing_as_ever() -> None:
    with pytest.raises(AttributeError, match="module 'lens_core' has no attribute 'Snik'"):
        lens_core.Snik  # type: ignore[attr-defined] # noqa: B018 - the access is what is tried


def test_a_setting_that_goes_is_a_notice_at_its_line(told: PluginInfo, tmp_path: Path) -> None:
    text = "sinks:\n  aged:\n    pause: 2\n  other: {type: aged}\n"
    config = parse_config(text, "lens.yaml", PluginHost.load(), {}, folder=tmp_path)
    assert config.notices == ["lens.yaml:3:5: sinks.aged.pause is deprecated since 1.1, goes with 2: take gap"]
    schema = json_schema(PluginHost.load())
    assert schema["$defs"]["sink.aged"]["properties"]["pause"]["deprecated"] is True


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            ["plugins", "--deprecated"],
            [
                "aged: uses lens_core.OldSink, deprecated since 1.1, goes with 2.0: take Sink",
                "aged: uses Sink.old_limits, deprecated since 1.1, goes with 2.0: write limits",
                "aged: setting aged.pause, deprecated since 1.1, goes with 2: take gap",
            ],
        ),
        (["plugins"], ["1 of them use something that will go; `lens plugins --deprecated` says what to do instead"]),
        (
            ["plugins", "aged"],
            [
                "  uses          lens_core.OldSink, deprecated since 1.1, goes with 2.0: take Sink",
                "    pause (a number, default 1.0): between (deprecated since 1.1, goes with 2: take gap)",
            ],
        ),
    ],
    ids=" ".join,
)
def test_lens_plugins_shows_it(
    told: PluginInfo, capsys: pytest.CaptureFixture[str], command: list[str], lines: list[str]
) -> None:
    with pytest.raises(SystemExit):
        main(command)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line not in printed] == []
    if "--deprecated" in command:
        assert printed == lines


def test_the_linter_and_the_doctor_name_it(told: PluginInfo) -> None:
    (plugin,) = PluginHost.load().loaded_from("aged")
    found = [finding.text for finding in lint(plugin) if (finding.check, finding.state) == ("deprecations", "warning")]
    assert found == [f"uses {text}" for text in told.deprecations]
    status = {"plugins": [{"name": "aged", "state": "loaded", "distribution": "d", "deprecations": ["this"]}]}
    (finding,) = plugin_findings(status)
    assert (finding.state, finding.text) == ("warning", "uses this")


def out_of_order(name: str, found: Deprecation, api_version: str) -> str:
    """Return the mistake of an announcement at a version of the API; '' if there is none."""
    since, removal, now = Version(found.since), Version(found.removal), Version(api_version)
    if removal.major <= since.major or removal.minor:
        return f"{name} must go with a major version after {since}"
    if now >= removal:
        return f"{name} was to go with {removal}: remove it"
    return f"{name} is announced for {since}, which is not yet" if since > now else ""


def test_every_announcement_keeps_the_promise() -> None:
    assert [text for name, found in DEPRECATED.items() if (text := out_of_order(name, found, API_VERSION))] == []
    for found in DEPRECATED.values():
        module, _, name = found.target.partition(":")
        assert not module or hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("since", "removal", "now", "wrong"),
    [
        ("1.1", "2.0", "1.1", ""),
        ("1.1", "2.0", "1.9", ""),
        ("1.1", "1.2", "1.1", "must go with a major version"),
        ("1.1", "2.1", "1.1", "must go with a major version"),
        ("1.1", "2.0", "2.0", "was to go with 2.0: remove it"),
        ("1.2", "2.0", "1.1", "which is not yet"),
    ],
)
def test_what_breaks_the_promise_is_found(since: str, removal: str, now: str, wrong: str) -> None:
    said = out_of_order("it", Deprecation(since=since, removal=removal, instead="x"), now)
    assert wrong in said if wrong else said == ""
