"""Aim: `RunTracker.__call__`. Its metrics of the machine (`__system__…`) and its terminal lines pass there, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import tracking

_SYSTEM = "__system__"
_COUNTER, _FACTS = "_lens_hook_counter", "_lens_hook_facts"


def patch_aim(module: Any) -> None:
    """Patch the class `RunTracker` of `aim.sdk.tracker`."""
    tracking.follow(module.RunTracker, "__init__", _note_run)
    tracking.wrap(module.RunTracker, "__call__", _tracked)


def _note_run(_result: Any, self: Any, run: Any, *_: Any, **__: Any) -> None:
    self.__dict__[_FACTS] = run


def _tracked(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(
        self: Any,
        value: Any,
        name: Any = None,
        step: Any = None,
        epoch: Any = None,
        *more: Any,
        context: Any = None,
        **options: Any,
    ) -> Any:
        result = original(self, value, name, step, epoch, *more, context=context, **options)
        try:
            if tracking.is_on():
                _log_aim_value(self, value, name, step, context)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            tracking.missed(error)
        return result

    return __call__


def _log_aim_value(tracker: Any, value: Any, name: Any, step: Any, context: Any) -> None:
    prefix = _prefix(context) if context else ""
    row = {}
    for key, number in (value if type(value) is dict or isinstance(value, Mapping) else {name: value}).items():
        is_number = type(number) is float or type(number) is int or hasattr(number, "__float__")
        if is_number and not key.startswith(_SYSTEM):
            row[prefix + key] = number
    if not row:
        return
    session = tracker.__dict__.get(tracking.SESSION)
    if session is None:  # read now, in the thread that owns Aim's storage
        facts = tracker.__dict__[_FACTS] = _read_facts(tracker.__dict__.get(_FACTS), tracker)
        session = tracking.session_of(tracker, "aim", lambda: facts, tracker.hash)
    if step is None:
        step = tracker.__dict__.setdefault(_COUNTER, tracking.KeyCounter()).next_step(*row)
    tracking.log_row(session, row, step)


def _prefix(context: Any) -> str:
    """A context such as `{"subset": "train"}` as the beginning of a name: `train/`."""
    if not isinstance(context, Mapping):
        return ""
    return "".join(f"{value}/" for _, value in sorted(context.items(), key=lambda item: str(item[0])))


def _read_facts(run: Any, tracker: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": tracker.hash}
    if run is None:
        return facts
    for key, read in (
        ("name", lambda: run.name),
        ("experiment", lambda: run.experiment),
        ("tags", lambda: list(run.tags)),
        ("config", lambda: run.get("hparams", None)),
    ):
        tracking.quietly(lambda key=key, read=read: facts.update({key: read()}))
    return facts
