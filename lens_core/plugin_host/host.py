"""Finds plugins (entry points of the group `lens`), isolates the broken ones, and lists all with their state.

Entry points are loaded one by one: pluggy's own loader stops at the first import error and silently skips a name
that is already taken. Each plugin ends in one state: loaded, disabled, unavailable, failed or conflicting.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

import click
import msgspec
import pluggy

from ..base.deprecation import uses_of
from ..base.errors import PluginError
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Collector, Component, Detector, Sink, Source
from ..plugin_api.hook_specs import HookSpecs
from .info import KINDS, ComponentInfo, ComponentKind, PluginInfo, kind_of
from .loading import FOLDER_VARIABLE, Plugin, describe_entry_point, installed_entry_points, load_plugin, plugin_files

GROUP = "lens"
DISABLED_VARIABLE = "LENS_DISABLED_PLUGINS"
_STATE_WORDS = {
    "disabled": "is disabled",
    "unavailable": "is unavailable",
    "failed": "failed to load",
    "conflicting": "is conflicting",
}


@dataclass
class _Failures:
    """Failures of the calls into one component since the process started."""

    total: int = 0
    in_a_row: int = 0
    last_error: str = ""
    last_time: float | None = None
    paused: str = ""


class PluginHost:
    """All plugins of this environment; classes are looked up by kind and name."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self._lock = threading.Lock()
        self._failures: dict[tuple[ComponentKind, str], _Failures] = {}
        self._set_plugins(plugins)

    def _set_plugins(self, plugins: Iterable[Plugin]) -> None:
        found = sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution))
        _settle_conflicts(found)
        classes: dict[ComponentKind, dict[str, type[Component]]] = {kind: {} for kind in KINDS}
        for component in (component for plugin in found for component in plugin.classes):
            classes[kind_of(component)][component.name] = component
        self._plugins, self._classes = found, classes

    @classmethod
    def load(
        cls, entry_points: Iterable[EntryPoint] | None = None, *, disabled: Iterable[str] | None = None
    ) -> PluginHost:
        """Load every entry point of the group `lens`, or the given ones; a broken one never stops another.

        `disabled` are names of entry points that are not even imported; by default those that the variable
        LENS_DISABLED_PLUGINS lists, with commas between them. Without given entry points, the files of the folder
        that LENS_PLUGINS_DIR names are plugins too.
        """
        return cls(load_plugins(entry_points, disabled=disabled))

    def load_new_files(self) -> list[Plugin]:
        """Load the files of LENS_PLUGINS_DIR that were not there before; what was loaded stays as it is.

        Raises PluginError when the folder is gone.
        """
        folder = os.environ.get(FOLDER_VARIABLE, "")
        known = {plugin.distribution for plugin in self._plugins}
        new = load_files(Path(folder), known) if folder else []
        if new:
            self._set_plugins([*self._plugins, *new])
        return new

    def source(self, name: str) -> type[Source]:
        """The source plugin of this name; raises PluginError that says why there is none."""
        return cast(type[Source], self.component("source", name))

    def collector(self, name: str) -> type[Collector]:
        """The collector plugin of this name; raises PluginError that says why there is none."""
        return cast(type[Collector], self.component("collector", name))

    def detector(self, name: str) -> type[Detector]:
        """The detector plugin of this name; raises PluginError that says why there is none."""
        return cast(type[Detector], self.component("detector", name))

    def sink(self, name: str) -> type[Sink]:
        """The sink plugin of this name; raises PluginError that says why there is none."""
        return cast(type[Sink], self.component("sink", name))

    def analyzer(self, name: str) -> type[Analyzer]:
        """The analyzer plugin of this name; raises PluginError that says why there is none."""
        return cast(type[Analyzer], self.component("analyzer", name))

    def detectors(self) -> list[type[Detector]]:
        """All loaded detectors, by name."""
        return [cast(type[Detector], found) for _, found in sorted(self._classes["detector"].items())]

    def names(self, kind: ComponentKind) -> list[str]:
        """The names of all loaded components of a kind, sorted."""
        return sorted(self._classes[kind])

    def component(self, kind: ComponentKind, name: str) -> type[Component]:
        """The component of this kind and name; raises PluginError that says why there is none."""
        found = self._classes[kind].get(name)
        if found is None:
            raise PluginError(self.why_missing(kind, name))
        return found

    def why_missing(self, kind: ComponentKind, name: str) -> str:
        """Why there is no such component, and what to do about it."""
        for plugin in self._plugins:
            if plugin.name == name and plugin.state != "loaded":
                return f"the plugin {name} ({plugin.origin}) {_STATE_WORDS[plugin.state]}: {plugin.reason}"
        elsewhere = [other for other in KINDS if name in self._classes[other]]
        if elsewhere:
            return f"{name} is a {elsewhere[0]}, not a {kind}; write it under {elsewhere[0]}s"
        for other in sorted(KINDS, key=lambda other: other != kind):
            for found in self._classes[other].values():
                if name.lower() in found.also_called:
                    where = "" if other == kind else f", under {other}s"
                    return f"there is no {kind} plugin {name!r}; here the {other} {found.name} does that{where}"
        close = get_close_matches(name, self.names(kind), n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(self.names(kind)) or 'none'}"
        return f"there is no {kind} plugin {name!r}; {hint}"

    def plugins(self) -> list[PluginInfo]:
        """Every plugin, whatever its state, by name."""
        return [self._info(plugin) for plugin in self._plugins]

    def commands(self) -> dict[str, click.Command]:
        """The commands that loaded plugins bring to `lens`, by name."""
        found = [(str(command.name), command) for plugin in self.loaded() for command in plugin.commands]
        return dict(sorted(found, key=lambda one: one[0]))

    def loaded(self) -> list[Plugin]:
        """The plugins that are loaded, with their classes."""
        return [plugin for plugin in self._plugins if plugin.state == "loaded"]

    def is_built_in(self, kind: ComponentKind, name: str) -> bool:
        """Whether a component of this kind and name comes with Lens."""
        found = self._classes[kind].get(name)
        return any(plugin.is_built_in for plugin in self._plugins if found in plugin.classes)

    def owner_of(self, kind: ComponentKind, name: str) -> str:
        """The distribution, with its version, that a component of this kind and name comes from."""
        found = self._classes[kind].get(name)
        plugin = next((plugin for plugin in self._plugins if found in plugin.classes), None)
        return plugin.origin if plugin is not None else ""

    def loaded_from(self, name: str) -> list[Plugin]:
        """The plugins of this name, or of a distribution of this name, with their classes; for tools of authors."""
        return [plugin for plugin in self._plugins if name in (plugin.name, plugin.distribution)]

    def record_failure(self, name: str, error: BaseException | str, *, kind: ComponentKind = "sink") -> int:
        """Count a call into a component that raised; the answer is how many did so in a row."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        with self._lock:
            failures = self._failures.setdefault((kind, name), _Failures())
            failures.total += 1
            failures.in_a_row += 1
            failures.last_error = " ".join(text.split())[:500]
            failures.last_time = time.time()
            return failures.in_a_row

    def record_success(self, name: str, *, kind: ComponentKind = "sink") -> None:
        """A call into a component went well: failures in a row begin at zero again, a pause ends."""
        failures = self._failures.get((kind, name))
        if failures is not None:
            failures.in_a_row, failures.paused = 0, ""

    def pause(self, name: str, reason: str, *, kind: ComponentKind = "sink") -> None:
        """Say that a component is not called any more, and why."""
        with self._lock:
            self._failures.setdefault((kind, name), _Failures()).paused = reason

    def paused(self, name: str, *, kind: ComponentKind = "sink") -> str:
        """Why a component is paused; '' if it is not."""
        failures = self._failures.get((kind, name))
        return failures.paused if failures else ""

    def _info(self, plugin: Plugin) -> PluginInfo:
        return PluginInfo(
            name=plugin.name,
            state=plugin.state,
            reason=plugin.reason,
            distribution=plugin.distribution,
            version=plugin.version,
            module=plugin.module,
            import_seconds=plugin.import_seconds,
            traceback=plugin.traceback,
            deprecations=uses_of(plugin.module),
            components=[self._with_failures(component) for component in plugin.components],
            commands=[str(command.name) for command in plugin.commands],
        )

    def _with_failures(self, info: ComponentInfo) -> ComponentInfo:
        failures = self._failures.get((info.kind, info.name))
        if failures is None:
            return info
        return msgspec.structs.replace(
            info, failures=failures.total, last_error=failures.last_error, paused=failures.paused
        )


def load_plugins(
    entry_points: Iterable[EntryPoint] | None = None, *, disabled: Iterable[str] | None = None
) -> list[Plugin]:
    """Load the plugins for `PluginHost.load`, before conflicts are settled."""
    plugins: list[Plugin] = []
    found = installed_entry_points(GROUP, plugins) if entry_points is None else entry_points
    switched_off = _switched_off() if disabled is None else {name.strip() for name in disabled}
    manager = _manager()
    plugins += [_load_plugin(entry_point, manager, switched_off) for entry_point in found]
    folder = os.environ.get(FOLDER_VARIABLE, "") if entry_points is None else ""
    return [*plugins, *load_files(Path(folder), set(), manager, switched_off)] if folder else plugins


def load_files(
    folder: Path,
    known: set[str],
    manager: pluggy.PluginManager | None = None,
    switched_off: set[str] | None = None,
) -> list[Plugin]:
    """The plugins of a folder, but for the `known` files. Raises PluginError when the folder is not there."""
    manager = manager or _manager()
    switched_off = _switched_off() if switched_off is None else switched_off
    loaded = []
    for file in plugin_files(folder):
        if str(file.path) in known:
            continue
        plugin = file.refused() or _load_plugin(file.entry_point, manager, switched_off)
        plugin.distribution = str(file.path)
        loaded.append(plugin)
    return loaded


def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("lens")
    manager.add_hookspecs(HookSpecs)
    return manager


def _switched_off() -> set[str]:
    return {name.strip() for name in os.environ.get(DISABLED_VARIABLE, "").split(",")}


def _load_plugin(entry_point: EntryPoint, manager: pluggy.PluginManager, switched_off: set[str]) -> Plugin:
    if entry_point.name in switched_off:
        plugin = describe_entry_point(entry_point)
        plugin.end_with("disabled", f"listed in {DISABLED_VARIABLE}")
        return plugin
    # Output of a plugin during its import must not end up inside `lens plugins --json`.
    with contextlib.redirect_stdout(sys.stderr):
        return load_plugin(entry_point, manager)


def _settle_conflicts(plugins: list[Plugin]) -> None:
    """Two distributions that claim one name: neither wins, except that nobody silently replaces a built-in."""
    claims: dict[tuple[str, str], list[Plugin]] = {}
    for plugin in plugins:
        names = {("plugin", plugin.name)} | {(kind_of(found), found.name) for found in plugin.classes}
        names |= {("command", str(command.name)) for command in plugin.commands}
        for claim in names:
            claims.setdefault(claim, []).append(plugin)
    for (kind, name), claimants in sorted(claims.items()):
        if len(claimants) > 1:
            _settle(kind, name, [plugin for plugin in claimants if plugin.state in ("loaded", "conflicting")])


def _settle(kind: str, name: str, claimants: list[Plugin]) -> None:
    if len(claimants) < 2:
        return
    others = " and ".join(f"{plugin.origin} ({plugin.module})" for plugin in claimants)
    built_in = [plugin for plugin in claimants if plugin.is_built_in]
    mend = "uninstall one of them" if not built_in else "the one of Lens stays; rename the other"
    for plugin in claimants:
        if len(built_in) == 1 and plugin is built_in[0]:
            continue
        plugin.end_with("conflicting", f"the {kind} name {name} is claimed by {others}; {mend}")


__all__ = ["DISABLED_VARIABLE", "FOLDER_VARIABLE", "GROUP", "PluginHost", "load_plugins"]
