"""Ray Train: `report` of a worker's context, of version 2 (the default) and of version 1."""

from __future__ import annotations

from typing import Any

from .. import tracking

_COUNTER = "_lens_hook_counter"


def patch_ray(module: Any) -> None:
    """Patch the class `TrainContext` of `ray.train.v2`."""
    tracking.wrap(module.TrainContext, "report", tracking.framework("ray", _log_ray_row))


def patch_old_ray(module: Any) -> None:
    """Patch the class `_TrainSession` of `ray.train`."""
    tracking.wrap(module._TrainSession, "report", tracking.framework("ray", _log_ray_row))


def _log_ray_row(self: Any, metrics: Any, *_: Any, **__: Any) -> None:
    if not metrics or not tracking.is_on():
        return
    step = metrics.get("training_iteration")
    if not isinstance(step, int):
        step = self.__dict__.setdefault(_COUNTER, tracking.KeyCounter()).next_step(None)
    name = _experiment(self)
    tracking.log_row(tracking.session_of(self, "ray", lambda: {"experiment": name}, name), metrics, step)


def _experiment(context: Any) -> str:
    read = getattr(context, "get_experiment_name", None)
    name = read() if callable(read) else getattr(context, "experiment_name", None)
    return str(name or "")
