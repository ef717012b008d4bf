"""The sections of components (`sources`, `sinks`, `analyzers` …): instances of plugins with their settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from ..base.deprecation import deprecation_in
from ..base.errors import PluginError
from ..base.setting_types import field_types, split_annotation
from ..delivery.sending.policy import DeliverySettings
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Collector, Component
from ..plugin_api.instance import ComponentConfig, why_not_isolated
from ..plugin_api.sink_answers import BatchLimits
from ..plugin_host.host import PluginHost
from ..plugin_host.info import ComponentKind, host_keys, needs_settings
from .conversion import Failed, convert, fields_given, to_struct
from .document import Node
from .problems import Problems
from .settings import AnalyzerConfig, CollectorConfig, FilterSettings, SinkConfig

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
NAME_RULE = "letters, digits, dots, dashes and underscores, at most 64"

_Seconds = Annotated[float, Meta(gt=0)]
_OPTIONS: dict[ComponentKind, dict[str, Any]] = {
    "source": {"isolate": bool},
    "collector": {"interval_seconds": _Seconds, "timeout_seconds": _Seconds},
    "detector": {"enabled": bool},
    "analyzer": {"interval_seconds": _Seconds, "timeout_seconds": _Seconds, "enabled": bool},
    "sink": {
        "required": bool,
        "filter": FilterSettings,
        "limits": BatchLimits,
        "delivery": DeliverySettings,
        "isolate": bool,
    },
}


class ComponentReader:
    """Reads the sections of components; what has a problem is left out of the answers.

    `known` are all names that were written, good or bad, so that a pipeline may name them without another problem.
    `delivery` holds for the sinks that write nothing else.
    """

    def __init__(self, host: PluginHost, problems: Problems, delivery: DeliverySettings) -> None:
        self._host = host
        self._delivery = delivery
        self._problems = problems
        self.known: dict[ComponentKind, dict[str, Node]] = {kind: {} for kind in _OPTIONS}
        self.disabled: dict[ComponentKind, list[str]] = {"detector": [], "analyzer": []}

    def read_section(self, kind: ComponentKind, section: Node | None) -> dict[str, Any]:
        """The instances of one section by name."""
        entries = self._entries(kind, section)
        found: dict[str, Any] = {}
        for name, entry in entries.items():
            place = section.key_place(name) if section else entry.place
            self.known[kind][name] = Node(None, place)
            if not NAME.fullmatch(name):
                self._problems.append_error(place, f"{kind}s: the name {name!r} must be made of {NAME_RULE}")
                continue
            component = self._component(kind, name, entry)
            if component is not None:
                found[name] = component
        return found

    def defaults(self, kind: ComponentKind) -> dict[str, ComponentConfig]:
        """All loaded plugins of a kind that work without settings."""
        found = {}
        for name in self._host.names(kind):
            plugin = self._host.component(kind, name)
            if not needs_settings(plugin):
                found[name] = _build(kind, name, plugin, plugin.Settings(), {}, written=False)
                self.known[kind].setdefault(name, Node(None))
        return found

    def _entries(self, kind: ComponentKind, section: Node | None) -> dict[str, Node]:
        if section is None or section.value is None or section.broken:
            return {}
        if not isinstance(section.value, dict):
            expected = f"{kind}s: expected a mapping of names to settings, got {section.shape}"
            self._problems.append_error(section.place, f"{expected}; write {_first_name(section)}: {{SETTING: VALUE}}")
            return {}
        return section.value

    def _component(self, kind: ComponentKind, name: str, entry: Node) -> ComponentConfig | None:
        path = f"{kind}s.{name}"
        if kind in self.disabled and entry.value is False:
            self._disable(kind, name, name, entry)
            return None
        if entry.value is None and not entry.broken:
            entry = Node({}, entry.place, keys={})
        if not isinstance(entry.value, dict):
            if not entry.broken:
                self._problems.append_error(entry.place, f"{path}: expected settings (a mapping), got {entry.shape}")
            return None
        plugin = self._plugin(kind, name, entry, path)
        options = self._options(kind, entry, path, host_keys(plugin) if plugin else tuple(_OPTIONS[kind]))
        if plugin is None:
            return None
        if options.get("enabled") is False:
            self._disable(kind, name, plugin.name, entry)
            return None
        own = {key: value for key, value in entry.value.items() if key not in host_keys(plugin)}
        settings = to_struct(
            Node(own, entry.place, keys=entry.keys),
            plugin.Settings,
            path,
            self._problems,
            also=host_keys(plugin),
        )
        if isinstance(settings, Failed) or any(isinstance(option, Failed) for option in options.values()):
            return None
        self._check_isolation(plugin, options, path, entry)
        self._notice_deprecated(plugin, path, entry)
        if kind == "sink":
            own = {
                name: fields_given(options[name], entry.value[name])
                for name in ("limits", "delivery")
                if name in options
            }
            options["limits"] = own.get("limits", {})
            options["delivery"] = msgspec.structs.replace(self._delivery, **own.get("delivery", {}))
        return _build(kind, name, plugin, settings, options)

    def _notice_deprecated(self, plugin: type[Component], path: str, entry: Node) -> None:
        types = field_types(plugin.Settings)
        for key in entry.value:
            found = deprecation_in(split_annotation(types[key])[1]) if key in types else None
            if found is not None:
                self._problems.append_notice(entry.key_place(key), f"{path}.{key} is {found}")

    def _disable(self, kind: ComponentKind, name: str, type_name: str, entry: Node) -> None:
        if name == type_name and type_name not in self._host.names(kind):
            self._problems.append_error(entry.place, f"{kind}s.{name}: {self._host.why_missing(kind, name)}")
        else:
            self.disabled[kind].append(name)
            self.known[kind].pop(name)

    def _check_isolation(self, plugin: type[Component], options: dict[str, Any], path: str, entry: Node) -> None:
        if options.get("isolate") and (reason := why_not_isolated(plugin)):
            text = f"{path}.isolate: {plugin.name} cannot have a process of its own: {reason}; remove the line"
            self._problems.append_error(entry.key_place("isolate"), text)

    def _options(self, kind: ComponentKind, entry: Node, path: str, keys: Sequence[str]) -> dict[str, Any]:
        return {
            key: convert(entry.value[key], option, f"{path}.{key}", self._problems)
            for key, option in _OPTIONS[kind].items()
            if key in entry.value and key in keys
        }

    def _plugin(self, kind: ComponentKind, name: str, entry: Node, path: str) -> type[Component] | None:
        written = entry.value.get("type")
        if written is not None and (written.broken or not isinstance(written.value, str)):
            if not written.broken:
                self._problems.append_error(
                    written.place, f"{path}.type: expected the name of a plugin, got {written.shape}"
                )
            return None
        type_name = written.value if written else name
        try:
            return self._host.component(kind, type_name)
        except PluginError:
            place = written.place if written else self.known[kind][name].place
            why = self._host.why_missing(kind, written.name if written else name)
            self._problems.append_error(
                place, f"{path}: {why}" + ("" if written else "; or say which with type: PLUGIN")
            )
            return None


def _first_name(section: Node) -> str:
    """The name that somebody wrote where a mapping of names is due, for an example."""
    first = section.value[0] if isinstance(section.value, list) and section.value else section
    return first.value if isinstance(first.value, str) and NAME.fullmatch(first.value) else "NAME"


def _build(
    kind: ComponentKind,
    name: str,
    plugin: type[Component],
    settings: msgspec.Struct,
    options: dict[str, Any],
    *,
    written: bool = True,
) -> ComponentConfig:
    common: dict[str, Any] = {"name": name, "type": plugin.name, "plugin": plugin, "settings": settings}
    common["written"] = written
    if kind == "sink":
        return SinkConfig(**common, **options)
    if kind in ("collector", "analyzer"):
        scheduled = cast("type[Collector | Analyzer]", plugin)
        return (CollectorConfig if kind == "collector" else AnalyzerConfig)(
            **common,
            interval_seconds=options.get("interval_seconds", scheduled.interval_seconds),
            timeout_seconds=options.get("timeout_seconds", scheduled.timeout_seconds),
        )
    return ComponentConfig(**common, **({"isolate": options["isolate"]} if options.get("isolate") else {}))
