"""`lens plugins`."""

from __future__ import annotations

import json

import pytest

from lens_core.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


def test_the_table_has_a_line_for_each_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plugins")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "KIND", "DISTRIBUTION", "IMPORT"]
    assert any(line.startswith("wandb_api ") and " loaded " in line and "lens-agent 0.1.0" in line for line in lines)
    assert "\x1b" not in out


def test_a_kind_chooses(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plugins", "--kind", "sink")
    assert code == 0
    kinds = {line.split()[2].rstrip(",") for line in out.splitlines()[1:] if " loaded " in line}
    assert kinds == {"sink"}


def test_json_has_states_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plugins", "--json")
    assert code == 0
    plugins = {plugin["name"]: plugin for plugin in json.loads(out)}
    jsonl = plugins["jsonl"]
    assert jsonl["state"] == "loaded"
    assert jsonl["distribution"] == "lens-agent"
    settings = {setting["name"]: setting for setting in jsonl["components"][0]["settings"]}
    assert settings["path"]["required"] is True
    assert settings["keep_files"]["type"] == "a whole number"


def test_one_plugin_is_shown_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plugins", "http")
    assert code == 0
    assert "    url (text like http://HOST:8080/api/v1/records, required): where the envelope is posted" in out


def test_a_name_that_nobody_has_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "plugins", "htpp") == (1, "", "lens: there is no plugin htpp; did you mean http?\n")
