"""Keras 3: `CallbackList.on_epoch_end`, on any backend. Its batches are not read: their values may not be there yet."""

from __future__ import annotations

from typing import Any

from .. import tracking


def patch_keras(module: Any) -> None:
    """Patch the class `CallbackList` of `keras.src.callbacks.callback_list`."""
    tracking.wrap(module.CallbackList, "on_epoch_end", tracking.framework("keras", _log_keras_row))


def _log_keras_row(self: Any, epoch: Any, logs: Any = None, *_: Any, **__: Any) -> None:
    if not logs or not tracking.is_on():
        return
    session = tracking.session_of(self, "keras", lambda: _describe_keras(self), _name(self))
    tracking.log_row(session, logs, int(epoch))


def _name(callbacks: Any) -> str:
    return str(getattr(getattr(callbacks, "_model", None), "name", None) or "")


def _describe_keras(callbacks: Any) -> dict[str, Any]:
    return {"name": _name(callbacks), "config": dict(getattr(callbacks, "params", None) or {})}
