"""`lens plugin`: a new plugin of somebody's own, and a linter for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import click
import msgspec

from ..base.errors import LensError, PluginError
from ..plugin_api.commands import json_option
from ..plugin_host.host import FOLDER_VARIABLE, PluginHost
from ..plugin_host.info import ComponentKind
from ..plugin_host.loading import Plugin
from ..scaffold import Finding, Scaffold, lint, write_distribution
from . import EXIT_FAILED

_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}

_NEXT = """
Next, in an environment of its own:
  cd {target}
  pip install -e ".[test]" && pytest     its tests pass as they are
  lens plugins {plugin}                  what its users see
  lens plugin check {plugin}             what is not in order
Then write your {kind} in src/{module}/__init__.py.
A tag v0.1.0 publishes it, once the package index trusts the repository (README.md)."""


@click.group("plugin")
def command() -> None:
    """Create a plugin and check it.

    \b
    Examples:
      lens plugin new acme --kind sink
      lens plugin check acme
    """


@command.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(get_args(ComponentKind)), required=True, help="The kind of the plugin.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="The folder to create [default: ./lens-NAME].")
def new(name: str, kind: ComponentKind, folder: Path | None) -> None:
    """Write a whole distribution for a plugin NAME: code, settings, tests, CI, README; its own tests pass.

    \b
    Examples:
      lens plugin new acme --kind detector
      lens plugin new influx --kind sink --dir ~/src/lens-influx
    """
    scaffold = Scaffold(name, kind)
    _refuse_taken_names(scaffold)
    target = folder or Path(scaffold.distribution)
    for path in write_distribution(scaffold, target):
        click.echo(f"  {target / path}")
    click.echo(_NEXT.format(target=target, plugin=scaffold.plugin, module=scaffold.module, kind=kind))


def _refuse_taken_names(scaffold: Scaffold) -> None:
    for plugin in PluginHost.load().plugins():
        names = {plugin.name, *(found.name for found in plugin.components if found.kind == scaffold.kind)}
        if scaffold.plugin in names:
            raise LensError(f"the name {scaffold.plugin} is taken by {plugin.distribution}; choose another")


@command.command()
@click.argument("name")
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@json_option
def check(name: str, strict: bool, as_json: bool) -> None:
    """Look at a plugin as its users will: NAME is that of its entry point or distribution, or a file.

    Names, docstrings, API range, settings and their units, secrets, a detector's contract, imports that are not for
    plugins, calls that would stop the daemon, import time, the distribution's metadata. Ends with 1 when something
    failed.

    \b
    Examples:
      lens plugin check acme
      lens plugin check ./trying_out.py
      lens plugin check lens-acme --strict --json
    """
    findings = [finding for plugin in _plugins_named(name) for finding in lint(plugin)]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        for finding in findings:
            _print_finding(finding)
    bad = ("failed", "warning") if strict else ("failed",)
    count = sum(finding.state in bad for finding in findings)
    if not as_json:
        click.echo(f"\n{count} to fix" if count else "\nIn order")
    if count:
        raise SystemExit(EXIT_FAILED)


def _plugins_named(name: str) -> list[Plugin]:
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            raise PluginError(f"there is no file {path}")
        if path.name.startswith("_"):
            raise PluginError(f"{path} is a part of a package: install that, then lens plugin check NAME")
        return [_of_file(path)]
    host = PluginHost.load()
    found = host.loaded_from(name)
    if not found:
        raise PluginError(f"no installed plugin and no distribution is called {name}; `lens plugins` lists them")
    return found


def _of_file(path: Path) -> Plugin:
    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = str(path.parent.absolute())
    try:
        found = PluginHost.load().loaded_from(path.stem)
    finally:
        if before is None:
            del os.environ[FOLDER_VARIABLE]
        else:
            os.environ[FOLDER_VARIABLE] = before
    (plugin,) = [plugin for plugin in found if plugin.distribution == str(path.absolute())]
    return plugin


def _print_finding(finding: Finding) -> None:
    sign, colour = _SIGNS[finding.state]
    click.echo(f"{click.style(sign, fg=colour)} {finding.check:14} {finding.where}: {finding.text}")
