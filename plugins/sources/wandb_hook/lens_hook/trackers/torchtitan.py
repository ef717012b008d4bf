"""torchtitan: the `log` of its loggers, whose argument is the whole row; it runs without any tracker, too."""

from __future__ import annotations

from typing import Any

from .. import tracking


def patch_torchtitan(module: Any) -> None:
    """Patch the classes `LoggerContainer` and `BaseLogger` of `torchtitan.components.metrics`."""
    for name in ("LoggerContainer", "BaseLogger"):
        tracking.wrap(getattr(module, name), "log", tracking.framework("torchtitan", _log_torchtitan_row))


def _log_torchtitan_row(self: Any, metrics: Any, step: Any, *_: Any, **__: Any) -> None:
    if metrics and tracking.is_on():
        tracking.log_row(tracking.session_of(self, "torchtitan", dict), metrics, int(step))
