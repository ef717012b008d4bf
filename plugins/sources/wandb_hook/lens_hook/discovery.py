"""Brings the trackers together: those of this package, those of other distributions, those that a script adds.

A distribution brings a tracker by an entry point of the group `lens_hook.trackers`. Its name is the module whose import
is waited for, its value the function that patches that module; the tracker is called as that module's package is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Union

from . import TARGETS, TRACKERS, on_import, runtime, say

GROUP = "lens_hook.trackers"
Patch = Union[str, Callable[[Any], object]]


def patch_module(tracker: str, patch: Any, module: Any) -> None:
    """Call `patch` (a function, or where one is) with a tracker's module, unless the hook is not to listen to it."""
    chosen = runtime.get_settings()
    _warn_about_unknown(chosen.named_trackers())
    if not chosen.follows(tracker):
        return
    runtime.expect()
    function = _function(patch) if isinstance(patch, str) else patch
    function(module)


def _function(place: str) -> Any:
    path, _, name = place.partition(":")
    found: Any = __import__(path, fromlist=["*"])
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _warn_about_unknown(named: frozenset[str]) -> None:
    known = {*TRACKERS, *(tracker for tracker, _ in TARGETS.values())}
    unknown = sorted(named - known)
    if unknown:
        say.once("trackers", f"PRIMUS_LENS_TRACKERS names {unknown[0]!r}; known are {', '.join(sorted(known))}")


def add_tracker(name: str, module: str, patch: Patch) -> None:
    """Have `patch(module)` called as soon as the module is imported, or now if it has been."""
    if not callable(patch) and ":" not in str(patch):
        raise ValueError(f"patch must be a function, or like 'package.module:function', not {patch!r}")
    if module in TARGETS:
        raise ValueError(f"{module} is waited for already, by the tracker {TARGETS[module][0]}")
    TARGETS[module] = (name, patch)
    loaded = sys.modules.get(module)
    if loaded is not None and not is_being_imported(loaded):
        on_import(module, loaded)


def is_being_imported(module: Any) -> bool:
    """Whether a module's code is still running."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def add_installed_trackers() -> None:
    """Add the trackers that other distributions bring; one that cannot be added is said, and is no one else's loss."""
    from importlib import metadata

    for point in _entry_points(metadata.entry_points()):
        try:
            add_tracker(point.name.partition(".")[0], point.name, point.value.partition("[")[0].strip())
        except ValueError as error:
            say.once(f"tracker {point.name}", f"the entry point {point.name} of {GROUP} is ignored: {error}")


def _entry_points(found: Any) -> Iterable[Any]:
    if hasattr(found, "select"):
        selected: Iterable[Any] = found.select(group=GROUP)
        return selected
    older: Iterable[Any] = found.get(GROUP, ())  # Python 3.9
    return older
