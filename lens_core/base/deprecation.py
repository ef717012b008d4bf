"""Deprecations: a deprecated name works for at least one more minor version, and its warning names the replacement.

`DEPRECATED` lists what is going of the plugin API; whoever uses it is warned once, and `lens plugins`,
`lens plugin check` and `lens doctor` name who does. A plugin marks a setting of its own with `deprecated`; whoever
writes it into a configuration gets a notice at its line.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec


class LensDeprecationWarning(DeprecationWarning):
    """A plugin uses a part of the plugin API that will go."""


class Deprecation(msgspec.Struct, frozen=True, kw_only=True):
    """Since which version it is not to be used any more, with which one it goes, and what to do instead.

    `target` is for names that modules export: where the thing itself is, as `module:name`.
    """

    since: str
    removal: str
    instead: str
    target: str = ""

    def __str__(self) -> str:
        return f"deprecated since {self.since}, goes with {self.removal}: {self.instead}"


# Deprecated names with versions of the plugin API, as plugins know them: `lens_core.Name` for an export of a public
# module, `Sink.name` for a method or attribute that a plugin's class has, `lens_name` for a hook.
DEPRECATED: dict[str, Deprecation] = {
    "lens_core.Door": Deprecation(since="1.3", removal="2.0", instead="take Gate", target="lens_core:Gate"),
    "lens_core.testing.RecordingDoor": Deprecation(
        since="1.3", removal="2.0", instead="take RecordingGate", target="lens_core.testing:RecordingGate"
    ),
}

# Uses: module → name → text. Kept, because a module that is imported already warns only once.
_uses: dict[str, dict[str, str]] = {}


def deprecated(*, since: str, removal: str, instead: str) -> msgspec.Meta:
    """Mark a setting: `Annotated[float, Meta(description="…"), deprecated(since="1.2", removal="2.0", instead="…")]`.

    The versions are those of the plugin's own distribution. `instead` is what to do, as in `take timeout_seconds`.
    """
    found = Deprecation(since=since, removal=removal, instead=instead)
    return msgspec.Meta(extra={"deprecated": found}, extra_json_schema={"deprecated": True})


def deprecation_in(notes: Sequence[msgspec.Meta]) -> Deprecation | None:
    """Return the text that `deprecated` put into a setting's annotation; None for a setting that stays."""
    found = [note.extra["deprecated"] for note in notes if note.extra and "deprecated" in note.extra]
    return found[-1] if found else None


def deprecated_names(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a public module: names that go still lead to what they meant, with a warning."""

    def find_name(name: str) -> Any:
        found = DEPRECATED.get(f"{module}.{name}")
        if found is None or not found.target:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(f"{module}.{name}", found, *_caller())
        where, _, target = found.target.partition(":")
        return getattr(importlib.import_module(where), target)

    return find_name


def former_name(name: str, present: str, *, since: str, removal: str) -> Any:
    """Return a property for an attribute's former name: it reads and sets the present one, with a warning.

    `name` is that of the class and of the attribute (`Source.door`), `present` the attribute that took its place.
    """
    found = DEPRECATED[name] = Deprecation(since=since, removal=removal, instead=f"take {present}")

    def read_present(instance: object) -> Any:
        _warn(name, found, *_caller())
        return getattr(instance, present)

    def write_present(instance: object, value: Any) -> None:
        _warn(name, found, *_caller())
        setattr(instance, present, value)

    return property(read_present, write_present)


def note_uses(module: str, hooks: Mapping[str, Any], classes: Iterable[type]) -> None:
    """Warn of the hooks (functions by name) and of the attributes of classes that a plugin has and that will go."""
    if not DEPRECATED:
        return
    for name, hook in hooks.items():
        _register_name(name, module, hook)
    for found in classes:
        for name, value in _overridden(found):
            _register_name(name, found.__module__, value)


def uses_of(module: str) -> list[str]:
    """List the deprecated names that a plugin's module, and the modules below it, use; one sentence each."""
    below = [found for name, found in sorted(_uses.items()) if name == module or name.startswith(f"{module}.")]
    return list(dict.fromkeys(text for found in below for text in found.values()))


def _overridden(found: type) -> Iterator[tuple[str, Any]]:
    """`Base.name` and the value of what a class has of its own in the place of something that will go."""
    own: dict[str, Any] = {}
    for base in found.__mro__:
        yield from ((f"{base.__name__}.{name}", value) for name, value in own.items() if name in vars(base))
        if not base.__module__.startswith("lens_core"):
            own = {**vars(base), **own}


def _register_name(name: str, module: str, value: Any) -> None:
    found = DEPRECATED.get(name)
    if found is not None:
        code = getattr(value, "__code__", None)
        file = code.co_filename if code else getattr(sys.modules.get(module), "__file__", None) or module
        _warn(name, found, module, file, code.co_firstlineno if code else 1)


def _caller() -> tuple[str, str, int]:
    """The module, file and line that asked for a name; the machinery of `import` lies in between."""
    frame = inspect.currentframe()
    while frame is not None and _is_between(frame):
        frame = frame.f_back
    if frame is None:
        return "", "", 0
    return frame.f_globals.get("__name__", ""), frame.f_code.co_filename, frame.f_lineno


def _is_between(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__") == __name__ or "importlib" in frame.f_code.co_filename


def _warn(name: str, found: Deprecation, module: str, file: str, line: int) -> None:
    if name in _uses.get(module, {}):
        return
    text = f"{name}, {found}"
    warnings.warn_explicit(text, LensDeprecationWarning, file, line, module=module)
    # Only now: where warnings are errors, the next try is one too.
    _uses.setdefault(module, {})[name] = text
