"""Single files as plugins: `--plugins-dir`, LENS_PLUGINS_DIR."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lens_core.base.errors import PluginError
from lens_core.cli import main
from lens_core.plugin_host.host import PluginHost
from tests.forked import run_lens

COLLECTOR = """
from _helper import VALUE
from lens_core import Collector, Measurement, hookimpl

class Tried(Collector):
    '''Tried out.'''
    name = "{name}"
    isolated = True

    async def collect(self):
        return [Measurement(name="tried.value", value=VALUE)]

@hookimpl
def lens_collectors():
    return [Tried]
"""


def lens(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_lens(*arguments)


def test_every_file_is_a_plugin_with_a_state(lens_plugins_dir: Path) -> None:
    (lens_plugins_dir / "_helper.py").write_text("VALUE = 7.0\n")
    (lens_plugins_dir / "tried_one.py").write_text(COLLECTOR.format(name="tried_one"))
    (lens_plugins_dir / "json.py").write_text("")
    (lens_plugins_dir / "tried-two.py").write_text("")
    (lens_plugins_dir / "tried_empty.py").write_text("")
    host = PluginHost.load()
    found = {plugin.name: plugin for plugin in host.plugins() if plugin.distribution.startswith(str(lens_plugins_dir))}
    assert set(found) == {"tried_one", "json", "tried-two", "tried_empty"}
    assert found["tried_one"].state == "loaded"
    assert found["json"].reason == "there is another module json; rename the file"
    assert "is no name for a module" in found["tried-two"].reason
    assert "announces nothing" in found["tried_empty"].reason
    assert host.collector("tried_one").name == "tried_one"
    assert json.__name__ == "json"
    sys.modules.pop("_helper", None)


def test_files_that_are_new_are_loaded_beside_those_that_are_there(lens_plugins_dir: Path) -> None:
    (lens_plugins_dir / "_helper.py").write_text("VALUE = 7.0\n")
    (lens_plugins_dir / "tried_first.py").write_text(COLLECTOR.format(name="tried_first"))
    host = PluginHost.load()
    first = host.collector("tried_first")
    host.record_failure("tried_first", "once", kind="collector")
    (lens_plugins_dir / "tried_later.py").write_text(COLLECTOR.format(name="tried_later"))
    (lens_plugins_dir / "tried_copy.py").write_text(COLLECTOR.format(name="tried_first"))
    assert sorted(plugin.name for plugin in host.load_new_files()) == ["tried_copy", "tried_later"]
    assert host.collector("tried_later").name == "tried_later"
    found = {plugin.name: plugin.state for plugin in host.plugins()}
    assert (found["tried_copy"], found["tried_first"]) == ("conflicting", "conflicting")
    assert first.name == "tried_first"
    assert host.load_new_files() == []
    sys.modules.pop("_helper", None)


def test_one_can_be_switched_off(lens_plugins_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lens_plugins_dir / "tried_off.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("LENS_DISABLED_PLUGINS", "tried_off")
    (plugin,) = PluginHost.load().loaded_from("tried_off")
    assert plugin.state == "disabled"


def test_a_built_in_keeps_its_name(lens_plugins_dir: Path) -> None:
    (lens_plugins_dir / "tried_twin.py").write_text(
        "from lens_core import Detector, hookimpl\nclass Twin(Detector):\n    name = 'megatron'\n"
        "@hookimpl\ndef lens_detectors(): return [Twin]\n"
    )
    (plugin,) = PluginHost.load().loaded_from("tried_twin")
    assert plugin.state == "conflicting"
    assert "the one of Lens stays; rename the other" in plugin.reason


def test_a_folder_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LENS_PLUGINS_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(PluginError, match="nowhere, is not there; fix --plugins-dir"):
        PluginHost.load()


def test_commands_take_the_folder(lens_plugins_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An isolated collector of a file runs in a process of its own, which finds the file too."""
    monkeypatch.delenv("LENS_PLUGINS_DIR")
    (lens_plugins_dir / "_helper.py").write_text("VALUE = 7.0\n")
    (lens_plugins_dir / "tried_cli.py").write_text(COLLECTOR.format(name="tried_cli"))
    listed = lens("plugins", "tried_cli", "--plugins-dir", str(lens_plugins_dir), "--json")
    assert json.loads(listed.stdout)[0]["state"] == "loaded", listed.stderr
    file = tmp_path / "lens.yaml"
    file.write_text("collectors: {tried_cli: {}}\nsinks: {out: {type: jsonl, path: out.jsonl}}\n")
    assert lens("validate", str(file)).returncode == 78
    valid = lens("validate", str(file), "--plugins-dir", str(lens_plugins_dir))
    assert valid.returncode == 0, valid.stdout
    monkeypatch.setenv("LENS_PLUGINS_DIR", str(lens_plugins_dir))
    collected = lens("collect", "tried_cli", "--json")
    assert json.loads(collected.stdout)["measurements"][0]["value"] == 7.0, collected.stderr


def test_a_file_is_checked_alone(
    lens_plugins_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LENS_PLUGINS_DIR")
    (lens_plugins_dir / "tried_check.py").write_text(
        COLLECTOR.format(name="tried_check").replace("'''Tried out.'''", "")
    )
    (lens_plugins_dir / "_helper.py").write_text("VALUE = 7.0\n")
    with pytest.raises(SystemExit) as ended:
        main(["plugin", "check", str(lens_plugins_dir / "tried_check.py"), "--json"])
    assert ended.value.code == 1
    states = {finding["check"]: finding["state"] for finding in json.loads(capsys.readouterr().out)}
    assert states["documentation"] == "failed"
    assert states["distribution"] == "warning"
    assert "LENS_PLUGINS_DIR" not in os.environ
    sys.modules.pop("_helper", None)
