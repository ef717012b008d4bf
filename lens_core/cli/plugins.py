"""`lens plugins`: every plugin of this environment, its state and why."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import get_args

import click
import msgspec

from ..base.errors import PluginError
from ..plugin_host.host import PluginHost
from ..plugin_host.info import ComponentInfo, ComponentKind, PluginInfo
from .client import plugins_dir_option
from .wording import print_text

_COLOURS = {
    "loaded": "green",
    "disabled": "bright_black",
    "unavailable": "yellow",
    "failed": "red",
    "conflicting": "red",
}

_NOTHING_GOES = "Nothing that is installed uses anything that will go."


@click.command("plugins")
@click.argument("name", required=False)
@plugins_dir_option
@click.option("--kind", type=click.Choice(get_args(ComponentKind)), help="Only plugins with a component of this kind.")
@click.option("--deprecated", is_flag=True, help="Only plugins that use or declare deprecated names.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array, with every setting of every component.")
def command(name: str | None, kind: ComponentKind | None, deprecated: bool, as_json: bool) -> None:
    """List every plugin: state, kind, distribution, import time; with NAME its settings too.

    \b
    Examples:
      lens plugins                   all of them
      lens plugins postgresql        one, with its settings
      lens plugins --kind sink       the sinks
      lens plugins --json | jq '.[] | select(.state != "loaded")'
      lens plugins --plugins-dir .   the files of this folder too
      lens plugins --deprecated      what to fix before the next major version

    A plugin is switched off by LENS_DISABLED_PLUGINS=name,name.
    """
    plugins = PluginHost.load().plugins()
    if name is not None:
        plugins = _plugins_named(name, plugins)
    if kind:
        plugins = [plugin for plugin in plugins if kind in (component.kind for component in plugin.components)]
    if deprecated:
        plugins = [plugin for plugin in plugins if _going(plugin)]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(plugins)).decode())
    elif deprecated:
        click.echo(
            "\n".join(f"{plugin.name}: {text}" for plugin in plugins for text in _going(plugin)) or _NOTHING_GOES
        )
    elif name is not None:
        for plugin in plugins:
            print_text("\n".join(_details(plugin)))
    else:
        print_text("\n".join(_plugin_table(plugins)))


def _plugins_named(name: str, plugins: list[PluginInfo]) -> list[PluginInfo]:
    found = [
        plugin for plugin in plugins if name in (plugin.name, *(component.name for component in plugin.components))
    ]
    if not found:
        close = get_close_matches(name, [plugin.name for plugin in plugins], n=1)
        raise PluginError(f"there is no plugin {name}" + (f"; did you mean {close[0]}?" if close else ""))
    return found


def _going(plugin: PluginInfo) -> list[str]:
    """Yield a sentence for each deprecated name or setting of a plugin."""
    settings = [
        f"setting {component.name}.{setting.name}, {setting.deprecated}"
        for component in plugin.components
        for setting in component.settings
        if setting.deprecated
    ]
    return [*(f"uses {text}" for text in plugin.deprecations), *settings]


def _plugin_table(plugins: list[PluginInfo]) -> Iterator[str]:
    if not plugins:
        yield "No plugins are installed; the distribution lens-agent brings the first ones."
        return
    rows = [("NAME", "STATE", "KIND", "DISTRIBUTION", "IMPORT", "")] + [_table_row(plugin) for plugin in plugins]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True)]
        cells[1] = click.style(cells[1], fg=_COLOURS.get(row[1]))
        yield "  ".join([*cells, row[5]]).rstrip()
    states = [plugin.state for plugin in plugins]
    yield ""
    yield ", ".join(f"{states.count(state)} {state}" for state in _COLOURS if state in states)
    using = sum(bool(plugin.deprecations) for plugin in plugins)
    if using:
        yield f"{using} of them use something that will go; `lens plugins --deprecated` says what to do instead"


def _table_row(plugin: PluginInfo) -> tuple[str, ...]:
    kinds = ", ".join(
        dict.fromkeys([*(item.kind for item in plugin.components), *("command" for _ in plugin.commands)])
    )
    summaries = [component.summary for component in plugin.components if component.summary]
    text = plugin.reason or (summaries[0] if len(plugin.components) == 1 and summaries else _joined_names(plugin))
    seconds = "" if plugin.import_seconds is None else f"{plugin.import_seconds * 1000:.0f} ms"
    return plugin.name, plugin.state, kinds, f"{plugin.distribution} {plugin.version}".strip(), seconds, text


def _joined_names(plugin: PluginInfo) -> str:
    return ", ".join([*(item.name for item in plugin.components), *(f"lens {name}" for name in plugin.commands)])


def _details(plugin: PluginInfo) -> Iterator[str]:
    yield f"{plugin.name}: {click.style(plugin.state, fg=_COLOURS[plugin.state])}"
    if plugin.reason:
        yield f"  reason        {plugin.reason}"
    yield from (f"                {line}" for line in plugin.traceback)
    yield from (f"  uses          {text}" for text in plugin.deprecations)
    yield f"  distribution  {plugin.distribution} {plugin.version}"
    yield f"  module        {plugin.module}"
    if plugin.import_seconds is not None:
        yield f"  import        {plugin.import_seconds * 1000:.1f} ms"
    yield from (f"  command       lens {name}" for name in plugin.commands)
    for component in plugin.components:
        yield from _component(component)


def _component(component: ComponentInfo) -> Iterator[str]:
    yield f"  {component.kind} {component.name}: {component.summary}"
    if not component.settings:
        yield "    no settings"
    for setting in component.settings:
        default = "required" if setting.required else f"default {msgspec.json.encode(setting.default).decode()}"
        text = f": {setting.documentation}" if setting.documentation else ""
        going = f" ({setting.deprecated})" if setting.deprecated else ""
        yield f"    {setting.name} ({setting.type}, {default}){text}{going}"
