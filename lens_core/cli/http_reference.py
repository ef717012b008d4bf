"""Every HTTP route, from the OpenAPI document: `python -m lens_core.cli.http_reference > docs/http_reference.md`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from ..base.self_metrics import SelfMetrics
from ..http.app import routes_of
from ..http.openapi import openapi_document
from ..http.openapi_routes import PREFIX
from ..http.state import ApiState
from ..http.tokens import TokenStore
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Component, Sink, Source
from ..plugin_host.host import PluginHost
from ..plugin_host.info import needs_settings
from ..plugin_host.loading import OWN_DISTRIBUTION
from ..testing.hosts import make_context

HEAD = f"""# HTTP reference

Made from the OpenAPI document, which every daemon serves at `{PREFIX}/openapi.json`, by
`python -m lens_core.cli.http_reference > docs/http_reference.md`; a test compares, and another asks every route whether
what is said of it is true. Paths are below `{PREFIX}` and `/v1`, unless they are said to be at the root. What bodies
and answers look like is told in [http.md](http.md).
"""
# Role → the title of its section and what it says.
SECTIONS = {
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
    lines = [HEAD, *(line for role in SECTIONS for line in _section(role, found[role])), *_parameters(document)]
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
    found: dict[str, dict[tuple[str, str], Row]] = {role: {} for role in SECTIONS}
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


def _section(role: str, rows: Mapping[tuple[str, str], Row]) -> Iterator[str]:
    title, text = SECTIONS[role]
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


if __name__ == "__main__":
    click.echo(http_reference().rstrip("\n"))
