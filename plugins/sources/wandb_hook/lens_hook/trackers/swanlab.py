"""SwanLab: `Run._log_impl` since 0.8, `SwanLabRun.log` before. Its rows of the machine go past both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import tracking

_FAILED = {"crashed": 1, "aborted": 130}


def patch_swanlab(module: Any) -> None:
    """Patch the class `Run` of `swanlab.sdk.internal.run`."""
    tracking.wrap(module.Run, "_log_impl", _logging_of_swanlab)
    tracking.follow(module.Run, "finish", _note_swanlab_finish)


def patch_old_swanlab(module: Any) -> None:
    """Patch the class `SwanLabRun` of `swanlab.data.run.main`."""
    tracking.wrap(module.SwanLabRun, "log", _logged_before_0_8)
    tracking.follow(module.SwanLabRun, "finish", _note_old_finish)


def _logging_of_swanlab(original: Callable[..., Any]) -> Callable[..., Any]:
    def _log_impl(self: Any, data: Any, step: Any = None, *more: Any, **options: Any) -> Any:
        result = original(self, data, step, *more, **options)
        try:
            # One that SwanLab refuses raises nothing.
            if (step is None or (isinstance(step, int) and step >= 0)) and tracking.is_on():
                session = tracking.session_of(self, "swanlab", lambda: _describe_swanlab(self), self.id)
                tracking.log_row(session, data, step if step is not None else self._ctx._global_step)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            tracking.missed(error)
        return result

    return _log_impl


def _describe_swanlab(run: Any) -> dict[str, Any]:
    chosen = run._ctx.config.settings
    return {
        "id": run.id,
        "name": chosen.experiment.name,
        "experiment": chosen.project.name,
        "tags": list(chosen.experiment.tags or ()) if hasattr(chosen.experiment, "tags") else (),
        "url": run.url if run._path else "",
        "config": {str(key): run.config[key] for key in list(run.config)},
    }


def _note_swanlab_finish(_result: Any, self: Any, state: Any = "success", *_: Any, **__: Any) -> None:
    code = _FAILED.get(str(state).lower())
    tracking.close_run(self.__dict__.get(tracking.SESSION), {"exit_code": code} if code else None)


def _logged_before_0_8(original: Callable[..., Any]) -> Callable[..., Any]:
    def log_of_old(self: Any, data: Any, step: Any = None, *more: Any, **options: Any) -> Any:
        result = original(self, data, step, *more, **options)
        try:
            if (step is None or (isinstance(step, int) and step >= 0)) and tracking.is_on():
                session = tracking.session_of(self, "swanlab", lambda: _describe_old(self), _old_id(self))
                if step is None:
                    counter = self.__dict__.setdefault("_lens_hook_counter", tracking.KeyCounter())
                    step = counter.next_step(*data)
                tracking.log_row(session, data, step)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            tracking.missed(error)
        return result

    return log_of_old


def _old_id(run: Any) -> str:
    public = getattr(run, "public", None)
    return str(getattr(public, "run_id", None) or getattr(run, "id", None) or "")


def _describe_old(run: Any) -> dict[str, Any]:
    public = getattr(run, "public", None)
    return {
        "id": _old_id(run),
        "experiment": getattr(public, "project_name", None),
        "config": dict(getattr(run, "config", None) or {}),
    }


def _note_old_finish(*_: Any, **__: Any) -> None:
    """Wait for the end of the process: `finish` is a function of the class there, and may be called without a run."""
