"""Loads plugins one by one, from entry points and from files of a folder.

Single files as plugins, for trying things out: every `*.py` of the folder that LENS_PLUGINS_DIR names.

A file is imported as the module of its own name, from the end of the search path: so it may import its neighbours (a
name that begins with `_` is never a plugin itself), a collector of it may be isolated, and it replaces nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import (
    EntryPoint,
    distributions,
    entry_points,
)
from pathlib import Path
from typing import Any

import click
import msgspec
import pluggy
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from ..base.deprecation import note_uses
from ..base.errors import PluginError
from ..base.setting_types import field_types, foreign_types
from ..plugin_api.commands import OWN_COMMANDS
from ..plugin_api.components import API_VERSION, Component
from .info import (
    COMMANDS_HOOK,
    HOOKS,
    KINDS,
    ComponentInfo,
    PluginState,
    component_info,
    host_keys,
)
from .requirements import missing_requirements, name_and_version

FOLDER_VARIABLE = "LENS_PLUGINS_DIR"


class PluginFile(msgspec.Struct, frozen=True):
    """One file of the folder."""

    path: Path

    @property
    def entry_point(self) -> EntryPoint:
        """The file as if a distribution announced it."""
        return EntryPoint(name=self.path.stem, value=self.path.stem, group="lens")

    def refused(self) -> Plugin | None:
        """A failed plugin if the file cannot be imported under its name; None if it can."""
        reason = self._why_not()
        if not reason:
            return None
        plugin = Plugin(name=self.path.stem, module=self.path.stem, distribution="", version="")
        plugin.end_with("failed", reason)
        return plugin

    def _why_not(self) -> str:
        if not self.path.stem.isidentifier():
            return f"{self.path.name} is no name for a module; take lower case letters, digits and underscores"
        found = importlib.util.find_spec(self.path.stem)
        if found is None or found.origin is None or Path(found.origin).resolve() != self.path.resolve():
            return f"there is another module {self.path.stem}; rename the file"
        return ""


def plugin_files(folder: Path) -> list[PluginFile]:
    """The plugins of a folder, by name; the folder is on the search path afterwards. Raises PluginError without it."""
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise PluginError(f"the folder of plugins, {folder}, is not there; fix --plugins-dir or {FOLDER_VARIABLE}")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()  # a file may have come while this process runs
    return [PluginFile(path) for path in sorted(folder.glob("*.py")) if not path.name.startswith(("_", "."))]


OWN_DISTRIBUTION = "lens-agent"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_COMMAND = re.compile(r"[a-z][a-z0-9-]{0,63}")
_FRAMES_SHOWN = 4


@dataclass
class Plugin:
    """One entry point and its state."""

    name: str
    module: str
    distribution: str
    version: str
    state: PluginState = "loaded"
    reason: str = ""
    traceback: list[str] = field(default_factory=list)
    import_seconds: float | None = None
    classes: list[type[Component]] = field(default_factory=list)
    components: list[ComponentInfo] = field(default_factory=list)
    commands: list[click.Command] = field(default_factory=list)

    @property
    def is_built_in(self) -> bool:
        """Whether it came with Lens itself."""
        return canonicalize_name(self.distribution) == OWN_DISTRIBUTION

    @property
    def origin(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}".strip()

    def end_with(self, state: PluginState, reason: str, error: BaseException | None = None) -> None:
        """Leave the state `loaded`: nothing of this plugin is used."""
        self.state, self.reason, self.classes, self.components, self.commands = state, reason, [], [], []
        if error is not None:
            self.traceback = short_traceback(error)


def installed_entry_points(group: str, broken: list[Plugin]) -> list[EntryPoint]:
    """The entry points of a group, by name. A distribution whose metadata cannot be read goes to `broken`, if it
    seems to be meant for us, and hides no other.
    """
    try:
        found = list(entry_points(group=group))
    except Exception:  # noqa: BLE001 - one unreadable file stops importlib.metadata for all; so look one by one
        found = list(_read_singly(group, broken))
    return sorted(found, key=lambda entry_point: entry_point.name)


def _read_singly(group: str, broken: list[Plugin]) -> Iterator[EntryPoint]:
    seen: set[str] = set()
    for one in distributions():
        name = one.metadata["Name"] or ""
        if canonicalize_name(name) in seen:
            continue
        seen.add(canonicalize_name(name))
        try:
            yield from [found for found in one.entry_points if found.group == group]
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is this distribution's failure
            if f"[{group}]" in (one.read_text("entry_points.txt") or ""):
                plugin = Plugin(name=name, module="", distribution=name, version=one.version)
                plugin.end_with("failed", f"its entry_points.txt cannot be read: {_error_line(error)}")
                broken.append(plugin)


def load_plugin(entry_point: EntryPoint, manager: pluggy.PluginManager) -> Plugin:
    """Import one entry point, register it with pluggy and call its hooks; never raises because of the plugin."""
    plugin = describe_entry_point(entry_point)
    missing = list(missing_requirements(entry_point.dist, entry_point.extras)) if entry_point.extras else []
    if missing:
        plugin.end_with("unavailable", _what_to_install(entry_point, missing))
        return plugin
    announced = _import(entry_point, plugin)
    if announced is not None:
        _announce(announced, plugin, manager)
    return plugin


def describe_entry_point(entry_point: EntryPoint) -> Plugin:
    """Describe the origin of an entry point before anything of it is imported."""
    name, version = name_and_version(entry_point.dist) if entry_point.dist else ("(unknown)", "")
    return Plugin(name=entry_point.name, module=entry_point.module, distribution=name, version=version)


def _import(entry_point: EntryPoint, plugin: Plugin) -> Any:
    started = time.perf_counter()
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        if error.name and not _is_within(entry_point.module, error.name):
            missing = list(missing_requirements(entry_point.dist, ())) or [error.name]
            plugin.end_with("unavailable", _what_to_install(entry_point, missing, module=error.name))
        else:
            plugin.end_with("failed", _error_line(error), error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises when imported is its failure
        plugin.end_with("failed", _error_line(error), error)
    finally:
        plugin.import_seconds = time.perf_counter() - started
    return None


def _is_within(module: str, missing: str) -> bool:
    """Whether the missing module is the plugin's own (or a package around it): then the plugin itself is broken."""
    return module == missing or module.startswith(missing + ".") or missing.startswith(module + ".")


def _what_to_install(entry_point: EntryPoint, missing: list[str], module: str = "") -> str:
    if entry_point.extras and entry_point.dist is not None:
        wanted = f"{entry_point.dist.metadata['Name']}[{','.join(sorted(entry_point.extras))}]"
        return f'pip install "{wanted}" (not installed: {", ".join(missing)})'
    if module and missing == [module]:
        return f'the module "{module}" is not installed, and its distribution does not say what provides it'
    return "pip install " + " ".join(f'"{requirement}"' for requirement in missing)


def _announce(announced: Any, plugin: Plugin, manager: pluggy.PluginManager) -> None:
    """Register the plugin with pluggy, call each of its hooks alone, and keep its classes if all of them are right."""
    registered = f"{plugin.distribution}:{plugin.name}"
    try:
        if manager.is_registered(announced):
            raise PluginError(f"{plugin.module} is announced twice; one entry point is enough")
        manager.register(announced, registered)
        manager.check_pending()
        answers = list(_call_hooks(announced, manager))
        plugin.classes = list(_components(answers))
        plugin.commands = list(_commands(answers))
        plugin.components = [component_info(found) for found in plugin.classes]
        hooks = [caller.name for caller in manager.get_hookcallers(announced) or ()]
        note_uses(plugin.module, {name: getattr(announced, name, None) for name in hooks}, plugin.classes)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a hook that raises fails alone
        plugin.end_with("failed", _error_line(error), None if isinstance(error, PluginError) else error)
        if manager.get_plugin(registered) is announced:
            manager.unregister(announced)


def _call_hooks(announced: Any, manager: pluggy.PluginManager) -> Iterator[tuple[str, Any]]:
    """The name of each hook that is implemented, with each of its answers."""
    hooks = [caller.name for caller in manager.get_hookcallers(announced) or ()]
    if not hooks:
        raise PluginError(f"announces nothing; mark a function with @hookimpl: {', '.join((*HOOKS, COMMANDS_HOOK))}")
    others = [other for other in manager.get_plugins() if other is not announced]
    for hook in hooks:
        yield from ((hook, answer) for answer in manager.subset_hook_caller(hook, others)())


def _components(answers: Iterable[tuple[str, Any]]) -> Iterator[type[Component]]:
    for hook, answer in answers:
        if hook != COMMANDS_HOOK:
            for component in _as_list(hook, answer, "classes"):
                check_component(component, hook)
                yield component


def _commands(answers: Iterable[tuple[str, Any]]) -> Iterator[click.Command]:
    for hook, answer in answers:
        if hook == COMMANDS_HOOK:
            for command in _as_list(hook, answer, "click commands"):
                _check_command(command)
                yield command


def _check_command(command: Any) -> None:
    """Raise PluginError unless `lens` can have this as one of its commands."""
    if not isinstance(command, click.Command):
        raise PluginError(f"{COMMANDS_HOOK} must return click commands, it returned {_type_name(command)}")
    if not isinstance(command.name, str) or not _COMMAND.fullmatch(command.name):
        raise PluginError(f"a command's name must be lower case letters, digits and hyphens, it is {command.name!r}")
    if command.name in OWN_COMMANDS:
        raise PluginError(f"the command `lens {command.name}` is Lens' own; give the plugin's another name")


def _as_list(hook: str, answer: Any, of: str) -> list[Any]:
    if isinstance(answer, type) or not isinstance(answer, (list, tuple, set, frozenset)):
        raise PluginError(f"{hook} must return a list of {of}, it returned {_type_name(answer)}")
    return list(answer)


def check_component(component: Any, hook: str) -> None:
    """Raise PluginError unless a class can be used as what it is announced as."""
    base = KINDS[HOOKS[hook]]
    if not (isinstance(component, type) and issubclass(component, base)):
        raise PluginError(f"{hook} must return subclasses of {base.__name__}, it returned {_type_name(component)}")
    where = f"{component.__module__}.{component.__qualname__}"
    name = getattr(component, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PluginError(f"{where}.name must be lower case letters, digits and underscores, it is {name!r}")
    if inspect.isabstract(component):
        raise PluginError(f"{where} does not implement {', '.join(sorted(component.__abstractmethods__))}")
    _check_api(component, where)
    _check_settings(component, where)


def _check_api(component: type[Component], where: str) -> None:
    try:
        supported = SpecifierSet(component.api)
    except (InvalidSpecifier, TypeError, AttributeError):
        raise PluginError(f'{where}.api must be a range such as ">=1,<2", it is {component.api!r}') from None
    if not supported.contains(API_VERSION):
        raise PluginError(
            f"needs plugin API {supported}, this Lens has {API_VERSION}; "
            "install a version of the plugin, or of lens-agent, that fits the other"
        )


def _check_settings(component: type[Component], where: str) -> None:
    settings = component.Settings
    if not (isinstance(settings, type) and issubclass(settings, msgspec.Struct)):
        raise PluginError(f"{where}.Settings must be a msgspec.Struct")
    options = settings.__struct_config__
    if not (options.frozen and options.forbid_unknown_fields):
        raise PluginError(f"{where}.Settings must be declared with frozen=True, forbid_unknown_fields=True")
    try:
        names = field_types(settings)
    except (NameError, TypeError) as error:
        raise PluginError(f"{where}.Settings has a type that cannot be resolved: {error}") from None
    try:
        msgspec.json.Decoder(settings)
    except TypeError as error:
        text = " ".join(str(error).split())
        raise PluginError(f"{where}.Settings has a type that no configuration can give: {text}") from None
    foreign = foreign_types(settings)
    if foreign:
        raise PluginError(
            f"{where}.Settings has a type that no configuration can give: {', '.join(foreign)}; "
            "take a text or a number and make it of that"
        )
    taken = [name for name in names if name in host_keys(component)]
    if taken:
        raise PluginError(f"{where}.Settings must not use the names that the host reads itself: {', '.join(taken)}")


def _type_name(value: Any) -> str:
    return f"the class {value.__qualname__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _error_line(error: BaseException) -> str:
    """One line of an error: its type, unless it is one of ours, and its text."""
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, PluginError) else f"{type(error).__name__}: {text}".rstrip(": ")


def short_traceback(error: BaseException) -> list[str]:
    """The last frames of an error as `file:line in function`, without those of the host and of importlib."""
    frames = [
        f"{frame.filename}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__ and "/pluggy/" not in frame.filename
    ]
    return frames[-_FRAMES_SHOWN:]
