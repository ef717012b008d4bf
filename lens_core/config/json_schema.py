"""The JSON schema of a configuration file, made from the settings of the plugins that are installed here."""

from __future__ import annotations

from typing import Any

import msgspec

from ..base.setting_types import field_documentation, field_types, required_fields, schema_of
from ..delivery.sending.policy import DeliverySettings
from ..model.records import RECORD_KINDS
from ..plugin_api.components import API_VERSION, Component
from ..plugin_api.sink_answers import BatchLimits
from ..plugin_host.host import PluginHost
from ..plugin_host.info import ComponentKind, needs_settings, summary_of
from .settings import ClusterSettings, FilterSettings, ServerSettings, SpoolSettings

# A number or a switch may come from a variable: then the file holds a text.
_REFERENCE = {"type": "string", "pattern": r"\$\{.+\}"}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"}
_SECONDS = {"type": "number", "exclusiveMinimum": 0}
_ISOLATE = {"type": "boolean", "default": False, "description": "a process of its own, which can be killed"}


def json_schema(host: PluginHost) -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a whole configuration file; secrets are `writeOnly` strings."""
    builder = _Builder(host)
    properties = {
        "server": builder.ref(ServerSettings),
        "data_dir": {"type": "string", "description": "where spools and the embedded PostgreSQL live"},
        "spool": builder.ref(SpoolSettings),
        "delivery": builder.ref(DeliverySettings),
        "sources": builder.section("source"),
        "collectors": builder.section("collector"),
        "sinks": builder.section("sink"),
        "detectors": builder.section("detector"),
        "analyzers": builder.section("analyzer"),
        "pipelines": {"type": "object", "propertyNames": _NAME, "additionalProperties": builder.pipeline()},
        "store": {"type": "string", "description": "the sink that answers queries, where several could"},
        "cluster": builder.ref(ClusterSettings),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Lens configuration (plugin API {API_VERSION})",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": builder.definitions(),
    }


class _Builder:
    def __init__(self, host: PluginHost) -> None:
        self._host = host
        kinds: tuple[ComponentKind, ...] = ("source", "collector", "sink", "detector", "analyzer")
        self._components = {kind: [host.component(kind, name) for name in host.names(kind)] for kind in kinds}
        types: list[type[msgspec.Struct]] = [ServerSettings, SpoolSettings, FilterSettings, ClusterSettings]
        types += [BatchLimits, DeliverySettings]
        types += [found.Settings for components in self._components.values() for found in components]
        self._types = [*dict.fromkeys(types)]
        self._defs: dict[str, Any] = {}
        self._schemas = {kind: self._schema(kind) for kind in self._types}
        for kind in self._types:
            _document(self._resolve(kind), kind)

    def _schema(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        """The schema of one settings type, under a name of its own."""
        prefix = f"{kind.__module__.rpartition('.')[2]}." if kind.__name__ in self._defs else ""
        template = f"#/$defs/{prefix}{{name}}"
        try:
            (schema,), definitions = msgspec.json.schema_components(
                [kind], schema_hook=schema_of, ref_template=template
            )
        except TypeError:  # msgspec has no text for a default (a path)
            schema, definitions = _field_by_field(kind, template)
        self._defs.update({prefix + name: definition for name, definition in definitions.items()})
        return schema

    def ref(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        """The schema of a settings type, or nothing at all where the section is empty."""
        return {"anyOf": [self._schemas[kind], {"type": "null"}]}

    def _resolve(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        schema: dict[str, Any] = self._schemas[kind]
        reference = schema.get("$ref")
        return self._defs[reference.rpartition("/")[2]] if reference else schema

    def definitions(self) -> dict[str, Any]:
        """All shared definitions; numbers and switches also take `${NAME}`."""
        return {name: _with_references(schema) for name, schema in sorted(self._defs.items())}

    def section(self, kind: ComponentKind) -> dict[str, Any]:
        """Instances by name: one that is called like its plugin needs no `type`, any other does."""
        components = self._components[kind]
        typed = [{"$ref": self._define(kind, found), "required": ["type"]} for found in components]
        self._defs[f"any.{kind}"] = {"anyOf": typed} if typed else {"not": {}}
        any_of_them = {"$ref": f"#/$defs/any.{kind}"}
        named = {
            found.name: {"anyOf": [{"$ref": self._define(kind, found)}, *_shortcuts(kind, found), any_of_them]}
            for found in components
        }
        section = {
            "type": "object",
            "propertyNames": _NAME,
            "properties": named,
            "additionalProperties": any_of_them,
        }
        return {"anyOf": [section, {"type": "null"}]}

    def _define(self, kind: ComponentKind, component: type[Component]) -> str:
        """The reference to one instance of a plugin; its definition is made the first time."""
        name = f"{kind}.{component.name}"
        own = self._resolve(component.Settings)
        self._defs.setdefault(
            name,
            {
                "type": "object",
                "description": summary_of(component),
                "properties": {"type": {"const": component.name}, **_host_options(kind), **own.get("properties", {})},
                "required": own.get("required", []),
                "additionalProperties": False,
            },
        )
        return f"#/$defs/{name}"

    def pipeline(self) -> dict[str, Any]:
        """One pipeline."""
        names = {"anyOf": [{"type": "array", "items": _NAME, "minItems": 1}, _NAME]}
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "from": {**names, "description": "sources, collectors and analyzers; left out: all"},
                "to": {**names, "description": "sinks; left out: all"},
                "filter": self._schemas[FilterSettings],
                "spool": self._schemas[SpoolSettings],
            },
        }


def _shortcuts(kind: ComponentKind, component: type[Component]) -> list[dict[str, Any]]:
    """Return the short forms of a mapping: nothing at all, or `false` for a component that is on by default."""
    nothing: list[dict[str, Any]] = [] if needs_settings(component) else [{"type": "null"}]
    return [*nothing, {"const": False}] if kind in ("detector", "analyzer") else nothing


def _host_options(kind: ComponentKind) -> dict[str, Any]:
    if kind == "collector":
        return {"interval_seconds": _SECONDS, "timeout_seconds": _SECONDS}
    if kind == "analyzer":
        enabled = {"type": "boolean", "default": True}
        return {"interval_seconds": _SECONDS, "timeout_seconds": _SECONDS, "enabled": enabled}
    if kind == "detector":
        return {"enabled": {"type": "boolean", "default": True}}
    if kind == "sink":
        return {
            "required": {"type": "boolean", "default": True},
            "filter": {"$ref": f"#/$defs/{FilterSettings.__name__}"},
            "limits": {"$ref": f"#/$defs/{BatchLimits.__name__}"},
            "delivery": {"$ref": f"#/$defs/{DeliverySettings.__name__}"},
            "isolate": _ISOLATE,
        }
    return {"isolate": _ISOLATE}


def _field_by_field(kind: type[msgspec.Struct], template: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of settings and what it refers to, without defaults; a field with paths inside may be anything."""
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for name, of in field_types(kind).items():
        try:
            (properties[name],), more = msgspec.json.schema_components(
                [of], schema_hook=schema_of, ref_template=template
            )
        except TypeError:
            properties[name], more = {}, {}
        definitions.update(more)
    missing = required_fields(kind)
    required = [name for name in kind.__struct_encode_fields__ if name in missing]
    whole = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return whole, definitions


def _document(schema: dict[str, Any], settings: type[msgspec.Struct]) -> None:
    for name, text in field_documentation(settings).items():
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", text)
    if settings is FilterSettings:
        schema["properties"]["kinds"]["items"] = {"enum": [*RECORD_KINDS]}


def _with_references(schema: Any) -> Any:
    """The same schema, in which numbers and switches may also be a text with a reference."""
    if isinstance(schema, list):
        return [_with_references(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in ("integer", "number", "boolean"):
        outer = {key: schema[key] for key in ("description", "default", "deprecated") if key in schema}
        inner = {key: value for key, value in schema.items() if key not in outer}
        return {**outer, "anyOf": [inner, _REFERENCE]}
    return {
        key: value if key in ("default", "const", "enum") else _with_references(value) for key, value in schema.items()
    }
