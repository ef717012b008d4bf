"""Accelerate: `Accelerator.log`, which logs on the main process only, with or without trackers."""

from __future__ import annotations

from typing import Any

from .. import tracking

_COUNTER, _PROJECT = "_lens_hook_counter", "_lens_hook_project"


def patch_accelerate(module: Any) -> None:
    """Patch the class `Accelerator` of `accelerate.accelerator`."""
    tracking.wrap(module.Accelerator, "log", tracking.framework("accelerate", _log_accelerate_row))
    tracking.follow(module.Accelerator, "init_trackers", _note_project)


def _note_project(_result: Any, self: Any, project_name: Any = "", config: Any = None, *_: Any, **__: Any) -> None:
    self.__dict__[_PROJECT] = (str(project_name), dict(config or {}))


def _log_accelerate_row(self: Any, values: Any, step: Any = None, *_: Any, **__: Any) -> None:
    if not values or not self.is_main_process or not tracking.is_on():
        return
    project, config = self.__dict__.get(_PROJECT, ("", {}))
    session = tracking.session_of(self, "accelerate", lambda: {"experiment": project, "config": config}, project)
    if step is None:
        step = self.__dict__.setdefault(_COUNTER, tracking.KeyCounter()).next_step(*values)
    tracking.log_row(session, values, step)
