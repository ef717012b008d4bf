"""Descriptions of plugins: states, components, settings; the shapes of `lens plugins --json`."""

from __future__ import annotations

import functools
from typing import Any, Literal

import msgspec

from ..base.deprecation import deprecation_in
from ..base.setting_types import (
    describe_type,
    field_documentation,
    field_types,
    is_secret,
    required_fields,
    split_annotation,
)
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Collector, Component, Detector, Sink, Source
from ..plugin_api.store import Store

PluginState = Literal["loaded", "disabled", "unavailable", "failed", "conflicting"]
ComponentKind = Literal["source", "collector", "detector", "sink", "analyzer"]

KINDS: dict[ComponentKind, type[Component]] = {
    "source": Source,
    "collector": Collector,
    "detector": Detector,
    "sink": Sink,
    "analyzer": Analyzer,
}
# Keys of the configuration that the host reads itself; a plugin's settings may not use them.
HOST_KEYS: dict[ComponentKind, tuple[str, ...]] = {
    "source": ("type", "isolate"),
    "collector": ("type", "interval_seconds", "timeout_seconds"),
    "detector": ("type", "enabled"),
    "sink": ("type", "required", "filter", "limits", "delivery", "isolate"),
    "analyzer": ("type", "interval_seconds", "timeout_seconds", "enabled"),
}
# Keys that came after API 1.0: a plugin whose settings have one keeps it, and the host's is not for that plugin.
YIELDING_KEYS = frozenset({"isolate"})
HOOKS: dict[str, ComponentKind] = {f"lens_{kind}s": kind for kind in KINDS}
COMMANDS_HOOK = "lens_commands"


class SettingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a component; `default` is None where it is required or has none, *** where it is a secret.

    `deprecated` says since when it is not to be used any more and what to do instead; '' for one that stays.
    """

    name: str
    type: str
    required: bool
    default: Any = None
    documentation: str = ""
    deprecated: str = ""


class ComponentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One class that a plugin announces; `failures` counts the calls that raised since the process started."""

    name: str
    kind: ComponentKind
    summary: str
    settings: list[SettingInfo]
    answers_queries: bool = False
    failures: int = 0
    last_error: str = ""
    paused: str = ""


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point of the group `lens`, its state, and why; times in seconds.

    `deprecations` are the parts of the plugin API that it uses and that will go, one sentence for each; `commands` the
    names of the commands of `lens` that it brings.
    """

    name: str
    state: PluginState
    reason: str = ""
    distribution: str = ""
    version: str = ""
    module: str = ""
    import_seconds: float | None = None
    traceback: list[str] = []
    deprecations: list[str] = []
    components: list[ComponentInfo] = []
    commands: list[str] = []


def host_keys(component: type[Component]) -> tuple[str, ...]:
    """Return the keys that the host reads itself in the section of a component."""
    own = YIELDING_KEYS.intersection(component.Settings.__struct_encode_fields__)
    return tuple(key for key in HOST_KEYS[kind_of(component)] if key not in own)


def kind_of(component: type[Component]) -> ComponentKind:
    """Return which kind a class is."""
    return next(kind for kind, base in KINDS.items() if issubclass(component, base))


def summary_of(component: type[Component]) -> str:
    """The first sentence of the class's own docstring; a docstring inherited from Lens says nothing about it."""
    own = component.__dict__.get("__doc__") or ""
    return " ".join(own.strip().split("\n\n")[0].split())


def settings_of(component: type[Component]) -> list[SettingInfo]:
    """The settings of a component, required ones first, otherwise in the order of their class."""
    return [*settings_in(component.Settings)]


@functools.lru_cache(maxsize=1024)
def settings_in(settings: type[msgspec.Struct]) -> tuple[SettingInfo, ...]:
    """Describe the fields of a class of settings, required ones first."""
    documentation = field_documentation(settings)
    types = field_types(settings)
    found = [
        SettingInfo(
            name=field.encode_name,
            type=describe_type(types[field.encode_name]),
            required=field.required,
            default=_default(field, secret=is_secret(types[field.encode_name])),
            documentation=documentation.get(field.encode_name, ""),
            deprecated=str(deprecation_in(split_annotation(types[field.encode_name])[1]) or ""),
        )
        for field in msgspec.structs.fields(settings)
    ]
    return tuple(sorted(found, key=lambda setting: not setting.required))


def needs_settings(component: type[Component]) -> bool:
    """Whether a component cannot be made without settings."""
    return bool(required_fields(component.Settings))


def component_info(component: type[Component]) -> ComponentInfo:
    """Describe a class for `lens plugins`."""
    return ComponentInfo(
        name=component.name,
        kind=kind_of(component),
        summary=summary_of(component),
        settings=settings_of(component),
        answers_queries=issubclass(component, Store),
    )


def _default(field: msgspec.structs.FieldInfo, *, secret: bool) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    elif field.default is not msgspec.NODEFAULT:
        value = field.default
    else:
        return None
    if secret and value:
        return "***"
    return msgspec.to_builtins(value, enc_hook=str)
