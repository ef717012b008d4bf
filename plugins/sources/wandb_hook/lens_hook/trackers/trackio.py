"""Trackio: `Run.log`, the public method itself, so a bound one that was kept before the hook came is not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import tracking


def patch_trackio(module: Any) -> None:
    """Patch the class `Run` of `trackio.run`. System metrics go through a method of their own."""
    tracking.wrap(module.Run, "log", _logging_of_trackio)
    tracking.follow(module.Run, "finish", _note_trackio_finish)


def _logging_of_trackio(original: Callable[..., Any]) -> Callable[..., Any]:
    def log(self: Any, metrics: Any, step: Any = None, *more: Any, **options: Any) -> Any:
        result = original(self, metrics, step, *more, **options)
        try:
            if tracking.is_on():
                session = tracking.session_of(self, "trackio", lambda: _describe_trackio(self), self.id)
                tracking.log_row(session, metrics, step if step is not None else self._next_step - 1)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            tracking.missed(error)
        return result

    return log


def _describe_trackio(run: Any) -> dict[str, Any]:
    url = str(getattr(run, "url", None) or "")
    return {
        "id": run.id,
        "name": run.name,
        "experiment": run.project,
        "parent": getattr(run, "group", None),
        "url": url if url.startswith(("http://", "https://")) else "",
        "config": {key: value for key, value in dict(run.config).items() if not str(key).startswith("_")},
    }


def _note_trackio_finish(_result: Any, self: Any, *_: Any, **__: Any) -> None:
    tracking.close_run(self.__dict__.get(tracking.SESSION))
