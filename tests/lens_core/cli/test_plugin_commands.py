"""Commands that plugins bring: reachable as `lens NAME`, listed, and never in the way of Lens' own."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lens_core.cli import cli
from lens_core.plugin_api.commands import OWN_COMMANDS
from lens_core.plugin_host.host import PluginHost

GREET = """
import click
from lens_core import LensError, hookimpl

@click.command("{name}")
@click.argument("whom")
def greet(whom: str) -> None:
    '''Greet somebody.'''
    click.echo("hello " + whom)

@hookimpl
def lens_commands():
    return [greet]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LENS_PLUGINS_DIR", str(tmp_path))
    return tmp_path


def test_a_plugins_command_is_one_of_lens(folder: Path) -> None:
    (folder / "greeting_plugin.py").write_text(GREET.format(name="greet-somebody"))
    answer = CliRunner().invoke(cli, ["greet-somebody", "you"])
    assert (answer.exit_code, answer.output) == (0, "hello you\n")
    assert "greet-somebody" in CliRunner().invoke(cli, ["--help"]).output
    listed = CliRunner().invoke(cli, ["plugins"]).output
    [row] = [line for line in listed.splitlines() if line.startswith("greeting_plugin")]
    assert "  command  " in row
    assert row.endswith("lens greet-somebody")
    assert "command       lens greet-somebody" in CliRunner().invoke(cli, ["plugins", "greeting_plugin"]).output
    assert '"greet-somebody"' in CliRunner().invoke(cli, ["plugins", "greeting_plugin", "--json"]).output


def test_an_unknown_command_is_wrong_usage(folder: Path) -> None:
    answer = CliRunner().invoke(cli, ["no-such-command"])
    assert answer.exit_code == 2
    assert "No such command 'no-such-command'" in answer.output


def test_two_plugins_that_claim_one_command_are_conflicting(folder: Path) -> None:
    for name in ("first_greeting", "second_greeting"):
        (folder / f"{name}.py").write_text(GREET.format(name="greet"))
    states = {found.name: (found.state, found.commands) for found in PluginHost.load().plugins()}
    assert states["first_greeting"] == states["second_greeting"] == ("conflicting", [])
    assert CliRunner().invoke(cli, ["greet", "you"]).exit_code == 2


@pytest.mark.parametrize("name", OWN_COMMANDS)
def test_every_own_command_is_a_module_of_its_name(name: str) -> None:
    assert isinstance(importlib.import_module(f"lens_core.cli.{name}").command, click.Command)
