"""Hugging Face's Trainer, and so TRL and what is built on it: `CallbackHandler.on_log`, which every rank calls."""

from __future__ import annotations

from typing import Any

from .. import tracking

_LAST = "_lens_hook_last_step"


def patch_transformers(module: Any) -> None:
    """Patch the class `CallbackHandler` of `transformers.trainer_callback`."""
    tracking.wrap(module.CallbackHandler, "on_log", tracking.framework("transformers", _log_transformers_row))


def _log_transformers_row(self: Any, args: Any, state: Any, control: Any, logs: Any = None, *_: Any, **__: Any) -> None:
    if not logs or not tracking.is_on():
        return
    own, step = self.__dict__, int(state.global_step)
    if step < own.get(_LAST, step):  # `train()` once more: a new attempt
        own.pop(tracking.SESSION, None)
    own[_LAST] = step
    run_id = str(getattr(args, "run_name", None) or getattr(args, "output_dir", None) or "")
    session = tracking.session_of(self, "transformers", lambda: _describe_transformers(args), run_id)
    tracking.log_row(session, logs, step)


def _describe_transformers(args: Any) -> dict[str, Any]:
    return {"name": getattr(args, "run_name", None) or getattr(args, "output_dir", None), "config": args.to_dict()}
