"""Writes the reference pages docs/commands.md, docs/settings.md and docs/http_reference.md from the code itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from lens_core.base.self_metrics import SelfMetrics
from lens_core.cli import cli
from lens_core.config.settings import ClusterSettings, FilterSettings, ServerSettings, SpoolSettings
from lens_core.delivery.sending.policy import DeliverySettings
from lens_core.http.app import routes_of
from lens_core.http.openapi import openapi_document
from lens_core.http.openapi_routes import PREFIX
from lens_core.http.state import ApiState
from lens_core.http.tokens import TokenStore
from lens_core.plugin_api.analyzer import Analyzer
from lens_core.plugin_api.components import Component, Sink, Source
from lens_core.plugin_api.sink_answers import BatchLimits
from lens_core.plugin_host.host import PluginHost
from lens_core.plugin_host.info import (
    HOST_KEYS,
    KINDS,
    ComponentInfo,
    ComponentKind,
    SettingInfo,
    needs_settings,
    settings_in,
)
from lens_core.plugin_host.loading import OWN_DISTRIBUTION
from lens_core.testing.hosts import make_context

COMMANDS_HEAD = """# Commands

Made from the commands' own help by `python scripts/reference_pages.py`; a test compares.
Exit codes: 0 ok, 1 failed, 2 wrong usage, 78 bad configuration. Colours only on a terminal.
"""

WIDTH = 100


def commands_reference() -> str:
    """Return the page, from the help of every command."""
    sections = [COMMANDS_HEAD, *(_command_section(name, command) for name, command in walk("lens", cli))]
    return "\n".join(sections)


def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                yield from walk(f"{name} {child}", found)


def _command_section(name: str, command: click.Command) -> str:
    # click remembers the help option of whoever asks first; so ask with the names that the commands really have.
    context = click.Context(
        command,
        info_name=name,
        max_content_width=WIDTH,
        terminal_width=WIDTH,
        help_option_names=cli.context_settings["help_option_names"],
    )
    help_text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"## {name}\n\n```text\n{help_text}\n```\n"


SETTINGS_HEAD = """# Settings of the host and of every plugin

Made from the classes themselves by `python scripts/reference_pages.py`; a test compares.
`lens plugins NAME` shows the same in the terminal, also for plugins of others. How a file is read and what the host
itself understands is in [configuration.md](configuration.md).
"""
HOST_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "server": ServerSettings,
    "spool, for all pipelines or in one": SpoolSettings,
    "delivery, for all sinks or in one": DeliverySettings,
    "limits, in a sink": BatchLimits,
    "filter, in a pipeline or a sink": FilterSettings,
    "cluster": ClusterSettings,
}


def settings_reference() -> str:
    """Return the page, from the settings of the host and of every built-in plugin."""
    return "\n".join([SETTINGS_HEAD, *_host(), *(line for kind in KINDS for line in _kind(kind))])


def _host() -> Iterator[str]:
    yield "## Sections of the host\n"
    for name, settings in HOST_SECTIONS.items():
        yield from _table(name, " ".join((settings.__doc__ or "").split("\n\n")[0].split()), settings_in(settings))


def _kind(kind: ComponentKind) -> Iterator[str]:
    components = [
        component
        for plugin in PluginHost.load().plugins()
        if plugin.distribution == OWN_DISTRIBUTION
        for component in plugin.components
        if component.kind == kind
    ]
    yield f"## {kind.capitalize()}s\n"
    yield "Beside their own, all of them take " + ", ".join(f"`{key}`" for key in HOST_KEYS[kind]) + ".\n"
    without = [component for component in components if not component.settings]
    for component in sorted(components, key=lambda found: found.name):
        if component.settings:
            yield from _component(component)
    if without:
        names = ", ".join(f"`{component.name}`" for component in sorted(without, key=lambda found: found.name))
        yield f"Without settings of their own: {names}.\n"


def _component(component: ComponentInfo) -> Iterator[str]:
    yield from _table(component.name, component.summary, component.settings)


def _table(name: str, summary: str, settings: Iterable[SettingInfo]) -> Iterator[str]:
    yield f"### {name}\n\n{summary}\n\n| setting | type | default | meaning |\n|---|---|---|---|"
    yield from map(_row, settings)
    yield ""


def _row(setting: SettingInfo) -> str:
    default = "required" if setting.required else f"`{msgspec.json.encode(setting.default).decode()}`"
    meaning = (setting.documentation or "–") + (f" ({setting.deprecated})" if setting.deprecated else "")
    cells = [f"`{setting.name}`", setting.type, default.replace("`null`", "–"), meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


HTTP_HEAD = f"""# HTTP reference

Made from the OpenAPI document, which every daemon serves at `{PREFIX}/openapi.json`, by
`python scripts/reference_pages.py`; a test compares, and another asks every route whether
what is said of it is true. Paths are below `{PREFIX}` and `/v1`, unless they are said to be at the root. What bodies
and answers look like is told in [http.md](http.md).
"""
# Role → the title of its section and what it says.
ROLES = {
    "ingest": ("Sending", "Role `ingest`; without a token with `server.open_ingest: true`."),
    "read": ("Asking", "Role `read`."),
    "admin": ("Changing", "Role `admin`."),
    "": ("Open", "Without a token."),
}
AnyComponent = TypeVar("AnyComponent", bound=Component)


def http_reference() -> str:
    """The whole page: the routes that Lens and its own plugins have where nothing is configured."""
    with tempfile.TemporaryDirectory() as folder:
        document = openapi_document(*routes_of(_state(Path(folder))))
    found = _by_role(document)
    lines = [HTTP_HEAD, *(line for role in ROLES for line in _role_section(role, found[role])), *_parameters(document)]
    return "\n".join([*lines, *_bodies(document)])


def _state(folder: Path) -> ApiState:
    host = PluginHost.load()
    own = {
        component.name
        for plugin in host.plugins()
        if plugin.distribution == OWN_DISTRIBUTION
        for component in plugin.components
    }

    def made(kinds: list[type[AnyComponent]]) -> list[AnyComponent]:
        usable = [kind for kind in kinds if kind.name in own and not needs_settings(kind)]
        return [kind(kind.Settings(), make_context(kind.name, folder)) for kind in usable]

    sources: list[type[Source]] = [host.source(name) for name in host.names("source")]
    sinks: list[type[Sink]] = [host.sink(name) for name in host.names("sink")]
    analyzers: list[type[Analyzer]] = [host.analyzer(name) for name in host.names("analyzer")]
    return ApiState(
        metrics=SelfMetrics(),
        tokens=TokenStore(folder),
        directory=make_context("reference", folder).directory,
        sources=made(sources),
        sinks=made(sinks),
        analyzers=made(analyzers),
        status=dict,
        ready=str,
        replay=lambda sink: None,
    )


class Row(msgspec.Struct):
    """One line: what is told of a route, its methods, and whether it is below the prefix and at the root."""

    told: str
    methods: list[str]
    places: set[str]

    def where(self) -> str:
        """What to say of its place."""
        return " (also at the root)" if len(self.places) == 2 else " (at the root)" if "" in self.places else ""


def _by_role(document: Mapping[str, Any]) -> dict[str, dict[tuple[str, str], Row]]:
    """Role → path without prefix and what is told of it → the line."""
    found: dict[str, dict[tuple[str, str], Row]] = {role: {} for role in ROLES}
    for path, entry in document["paths"].items():
        for method, operation in entry.items():
            role = operation["security"][0]["token"][0] if operation["security"] else ""
            told = _told(operation)
            row = found[role].setdefault((path.removeprefix(PREFIX), told), Row(told, [], set()))
            row.places.add(PREFIX if path.startswith(PREFIX) else "")
            if method.upper() not in row.methods:
                row.methods.append(method.upper())
    return found


def _told(operation: Mapping[str, Any]) -> str:
    """What a route does and takes, as two cells."""
    names = [f"`{one['name']}`" for one in _query(operation)]
    return f"{operation['summary']} | {', '.join([*names, *_bodies_of(operation)]) or '–'}"


def _query(operation: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for one in operation["parameters"] if one["in"] == "query"]


def _bodies_of(operation: Mapping[str, Any]) -> Iterator[str]:
    """What a body may be: its type, and its content type where that is not the one that everybody expects."""
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        if media_type != "*/*":
            kind = _type(content["schema"]) if content["schema"] else ""
            label = "" if media_type == "application/json" else f"`{media_type}`"
            yield " ".join(part for part in ("the body", label, kind) if part)


def _role_section(role: str, rows: Mapping[tuple[str, str], Row]) -> Iterator[str]:
    title, text = ROLES[role]
    yield f"## {title}\n\n{text}\n\n| | route | what | takes |\n|---|---|---|---|"
    for (path, _), row in rows.items():
        yield f"| {', '.join(row.methods)} | `{path}`{row.where()} | {row.told} |"
    yield ""


def _parameters(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## Parameters\n\n| parameter | type | meaning |\n|---|---|---|"
    operations = [operation for entry in document["paths"].values() for operation in entry.values()]
    told = {
        f"| `{one['name']}` | {_type(one['schema'])} | {one['description']} |"
        for operation in operations
        for one in _query(operation)
    }
    yield from sorted(told)
    yield ""


def _bodies(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## Bodies\n"
    for name, schema in document["components"]["schemas"].items():
        summary = schema.get("description", "").partition("\n\n")[0]
        about = f"{' '.join(summary.split())}\n\n" if summary else ""
        yield f"### {name}\n\n{about}| field | type | |\n|---|---|---|"
        for field, kind in schema["properties"].items():
            notes = ["required"] * (field in schema.get("required", ())) + [kind.get("description", "")]
            yield f"| `{field}` | {_type(kind)} | {', '.join(filter(None, notes))} |"
        yield ""


def _type(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a word or two."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    return {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "object": "mapping",
        "boolean": "yes or no",
    }.get(schema.get("type", ""), "any")


def write_pages(docs: Path) -> None:
    """Write the three pages into a folder."""
    (docs / "commands.md").write_text(commands_reference())
    (docs / "settings.md").write_text(settings_reference())
    (docs / "http_reference.md").write_text(http_reference().rstrip("\n") + "\n")


if __name__ == "__main__":
    write_pages(Path(__file__).parents[1] / "docs")
