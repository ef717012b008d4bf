"""Lightning: `_LoggerConnector.log_metrics`, with `logger=False` too.

Without a logger the metrics are read here, which waits for the device once every `log_every_n_steps`.
"""

from __future__ import annotations

from typing import Any

from .. import tracking


def patch_lightning(module: Any) -> None:
    """Patch the class `_LoggerConnector` of `lightning.pytorch` or `pytorch_lightning`."""
    tracking.wrap(module._LoggerConnector, "log_metrics", tracking.framework("lightning", _log_lightning_row))


def _log_lightning_row(self: Any, metrics: Any, step: Any = None, *_: Any, **__: Any) -> None:
    if not metrics or not tracking.is_on():
        return
    trainer, values = self.trainer, dict(metrics)
    named = values.pop("step", None) if step is None else None
    if named is not None:
        step = int(named)
    elif step is None:
        values.setdefault("epoch", trainer.current_epoch)
        step = trainer.fit_loop.epoch_loop._batches_that_stepped
    session = tracking.session_of(
        self, "lightning", lambda: _describe_lightning(trainer), str(trainer.default_root_dir)
    )
    tracking.log_row(session, values, step)


def _describe_lightning(trainer: Any) -> dict[str, Any]:
    module = trainer.lightning_module
    return {"name": type(module).__name__, "config": dict(getattr(module, "hparams", None) or {})}
