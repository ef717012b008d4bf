"""`attach()`: the hook on from a script, whatever was imported before."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from . import TARGETS, arm, complete, on_import, runtime, say, settings
from .discovery import is_being_imported


def attach(config: str | None, options: Mapping[str, Any]) -> None:
    """Arm the hook, and patch what has been imported already."""
    known = {field.name for field in dataclasses.fields(settings.Settings)} - {"config"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise TypeError(f"attach() got an unknown option {unknown[0]!r}; there are {', '.join(sorted(known))}")
    if runtime.existing() is not None and (options or config):
        say.once("attach", "attach() came after the first run; its options have no effect any more")
    runtime.configure({**options, **({"config": config} if config else {})})
    if config:
        runtime.get_runtime()  # so that the daemon is up when the first run starts
    arm()
    complete()
    for name in list(TARGETS):
        module = sys.modules.get(name)
        if module is not None and not is_being_imported(module):
            on_import(name, module)
    _adopt_running(sys.modules.get("wandb"))


def _adopt_running(wandb: Any) -> None:
    """A run that was started before us."""
    run = getattr(wandb, "run", None)
    if run is None or not runtime.get_settings().follows("wandb"):
        return
    from . import wandb_source

    wandb_source.adopt(run)
