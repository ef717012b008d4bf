"""Comet: `CometExperiment._log_metric` since 3.49, `BaseExperiment._log_metric` before; one scalar a call.

Comet's own metrics of the machine pass there, too, and are no training rows. Metrics that it repeats of MLflow or
TensorBoard are marked as theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .. import tracking

_MIRRORED = {"mlflow": "mlflow", "tensorboard": "tensorflow", "tensorboardX": "tensorflow"}
_OWN = ("sys.", "process duration")
_COUNTER = "_lens_hook_counter"
_dictionary = threading.local()  # `step` of the dictionary that this thread logs


def patch_comet(module: Any) -> None:
    """Patch the experiment class of `comet_ml.experiment`."""
    owner = getattr(module, "CometExperiment", None) or module.BaseExperiment
    tracking.wrap(owner, "_log_metric", _logging_of_comet)
    if "_log_metrics" in vars(owner):
        tracking.wrap(owner, "_log_metrics", _logging_of_dictionaries)
    tracking.follow(owner, "end", _note_end)


def _logging_of_comet(original: Callable[..., Any]) -> Callable[..., Any]:
    def _log_metric(
        self: Any,
        name: Any,
        value: Any,
        step: Any = None,
        epoch: Any = None,
        include_context: Any = True,
        framework: Any = None,
        *more: Any,
        **options: Any,
    ) -> Any:
        result = original(self, name, value, step, epoch, include_context, framework, *more, **options)
        try:
            if tracking.is_on() and value is not None:
                _log_comet_value(self, str(name), value, step, epoch, include_context, framework)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            tracking.missed(error)
        return result

    return _log_metric


def _logging_of_dictionaries(original: Callable[..., Any]) -> Callable[..., Any]:
    """A dictionary's step is the experiment's while its values are logged, unless another thread moves that on."""

    def _log_metrics(self: Any, *values: Any, **options: Any) -> Any:
        _dictionary.step = options.get("step", values[2] if len(values) > 2 else None)
        try:
            return original(self, *values, **options)
        finally:
            _dictionary.step = None

    return _log_metrics


def _log_comet_value(
    run: Any, name: str, value: Any, given: Any, epoch: Any, include_context: Any, framework: Any
) -> None:
    if name.startswith(_OWN):
        return
    session = tracking.session_of(run, "comet", lambda: _describe_comet(run), run.get_key())
    mirror = _MIRRORED.get(str(framework), "")
    full_name = run._fullname(name, include_context=include_context)
    # Another thread may have moved the experiment's step on since the call.
    told = given if given is not None else getattr(_dictionary, "step", None)
    step = told if type(told) is int else run.curr_step
    if mirror == "mlflow" and epoch is not None:
        step = epoch
    if step is None:
        step = run.__dict__.setdefault(_COUNTER, tracking.KeyCounter()).next_step(full_name)
    tracking.log_row(session, {full_name: value}, step, mirror_of=mirror)


def _describe_comet(run: Any) -> dict[str, Any]:
    workspace, project = getattr(run, "workspace", None), getattr(run, "project_name", None)
    url = getattr(run, "url", None)
    return {
        "id": run.get_key(),
        "name": getattr(run, "name", None),
        "experiment": "/".join(str(part) for part in (workspace, project) if part),
        "tags": list(getattr(run, "tags", None) or ()),
        "url": url if isinstance(url, str) and url.startswith("http") else "",
        "config": dict(getattr(run, "params", None) or {}),
    }


def _note_end(_result: Any, self: Any, *_: Any, **__: Any) -> None:
    tracking.close_run(self.__dict__.get(tracking.SESSION))
