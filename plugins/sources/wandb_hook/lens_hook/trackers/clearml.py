"""ClearML: `Reporter.report_scalar`, one scalar a call.

The machine's metrics (`:monitor:…`) are no training rows, values of the whole task are its summary. ClearML repeats
what the event writers of TensorBoard are given; such rows are marked as theirs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .. import echo, tracking

_MONITOR = ":monitor:"
_SINGLE = -(2**31)  # the iteration of `report_single_value`
_sessions: dict[str, Any] = {}


class _Task:
    """Carries the session of one task."""


def patch_clearml(module: Any) -> None:
    """Patch the class `Reporter` of `clearml.backend_interface.metrics.reporter`."""
    tracking.wrap(module.Reporter, "report_scalar", _reported)


def patch_mirror(module: Any) -> None:
    """Patch ClearML's own event writer, which repeats the rows of TensorBoard's."""
    owner = getattr(module, "EventTrainsWriter", None)
    if owner is not None and "add_event" in vars(owner):
        tracking.wrap(owner, "add_event", _mirrored)


def _mirrored(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def add_event_of_mirror(*args: Any, **kwargs: Any) -> Any:
        mark = echo.enter("tensorflow")
        try:
            return original(*args, **kwargs)
        finally:
            if mark is not None:
                echo.leave()

    return add_event_of_mirror


def _reported(original: Callable[..., Any]) -> Callable[..., Any]:
    def report_scalar(self: Any, title: Any, series: Any, value: Any, iter: Any, *more: Any, **options: Any) -> Any:
        result = original(self, title, series, value, iter, *more, **options)
        try:
            if tracking.is_on() and not str(title).startswith(_MONITOR):
                _log_clearml_value(self, str(title), str(series), value, iter)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            tracking.missed(error)
        return result

    return report_scalar


def _log_clearml_value(reporter: Any, title: str, series: str, value: Any, iteration: Any) -> None:
    task_id = str(getattr(reporter._metrics, "_task_id", None) or "")
    task = _sessions.get(task_id)
    if task is None:
        task = _sessions[task_id] = _Task()
    session = tracking.session_of(task, "clearml", lambda: _describe_clearml(task_id), task_id)
    if int(iteration) == _SINGLE:
        tracking.log_summary(session, {series: value})
        return
    tracking.log_row(session, {title if title == series else f"{title}/{series}": value}, int(iteration))


def _describe_clearml(task_id: str) -> dict[str, Any]:
    """Answer what the task object of this process holds; its server is not asked."""
    tasks: Any = sys.modules.get("clearml.task") or sys.modules.get("clearml")
    task = vars(tasks.Task).get("_Task__main_task") if tasks is not None else None
    data = getattr(task, "_data", None)
    if task is None or str(getattr(task, "id", "")) != task_id:
        return {"id": task_id}
    return {
        "id": task_id,
        "name": getattr(data, "name", None),
        "experiment": _project(task),
        "tags": list(getattr(data, "tags", None) or ()),
        "parent": getattr(data, "parent", None),
    }


def _project(task: Any) -> str:
    """The project's name, where the task has looked it up already."""
    known = getattr(task, "_project_name", None)
    return str(known[1] or "") if isinstance(known, tuple) and len(known) == 2 else ""
