"""wandb: patches on the class `Run`, below every guard and decorator, through which all logging passes.

`Run._log` is looked up through the run at call time, so it also catches bound methods that somebody kept. A row is
taken after wandb accepted it. Checked with wandb 0.16.6 to 0.31.0.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from time import time
from typing import Any

from . import process_end, runtime, say
from .buffer import Summary
from .echo import as_echo, hear_echo, inside
from .session import Session
from .values import snapshot
from .wandb_facts import run_facts, run_id

_SESSION = "_lens_hook_session"
_MARK = "_lens_hook_original"
_COUNTER, _OLD_COUNTER = "_local_step", "_step"  # wandb's step of the next row: since 0.27.2, and before
_EXPORTER = "primus_lens_wandb_exporter"


def on_wandb(module: Any) -> None:
    """wandb itself has been imported: say on it that the hook is on."""
    run_class = getattr(sys.modules.get("wandb.sdk.wandb_run"), "Run", None)
    if any(hasattr(vars(run_class or object).get(name), _MARK) for name in ("_log", "log")):
        module._primus_lens_patched = True


def on_wandb_run(module: Any) -> None:
    """Patch the class `Run` of `wandb.sdk.wandb_run`."""
    if not runtime.get_settings().enabled:
        return
    runtime.expect()
    run_class = module.Run
    name = "_log" if hasattr(run_class, "_log") else "log"
    _wrap(run_class, name, _logging)
    _wrap(run_class, "_on_start", functools.partial(_followed_by, after=_started))
    _wrap(run_class, "_on_finish", functools.partial(_followed_by, after=_finished))
    _wrap(run_class, "_define_metric", _defining)
    _wrap(run_class, "_summary_update_callback", _summarising)
    _wrap(run_class, "_config_callback", functools.partial(_followed_by, after=_config_changed))


def on_wandb_init(module: Any) -> None:
    """Patch the making of disabled runs, which log nothing and start nothing."""
    if not runtime.get_settings().enabled:
        return
    for owner in vars(module).values():
        for name in ("make_disabled_run", "_make_run_disabled"):
            if isinstance(owner, type) and name in vars(owner):
                _wrap(owner, name, _disabling)


def _wrap(owner: type, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Replace a method unless it is missing or replaced already."""
    original = vars(owner).get(name)
    if original is None or hasattr(original, _MARK):
        return
    replacement = functools.wraps(original)(wrapper(original))
    setattr(replacement, _MARK, original)
    setattr(owner, name, replacement)


def _logging(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_log(self, data, step=None, commit=None, ...)`, and its row left to the worker once wandb has accepted it."""

    def _log(self: Any, data: Any, step: Any = None, commit: Any = None, *more: Any, **options: Any) -> Any:
        session: Session | None = None
        try:
            own = self.__dict__
            session = own.get(_SESSION)
            if session is None or session.buffer.enhance:
                session, data = _prepared(self, data)
            name = _COUNTER if _COUNTER in own else _OLD_COUNTER
            before, now = own.get(name), time()
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            _missed(error)
            session = None
        if session is None:
            return original(self, data, step, commit, *more, **options)
        result = original(self, data, step, commit, *more, **options)
        try:
            if step is not None and type(step) is not int:
                step = int(step)
            row = snapshot(data)
            if inside:
                row = as_echo(row)
            session.buffer.append_row((session, row, step, commit, before, own.get(name), now))
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            _missed(error)
        return result

    return _log


def _prepared(run: Any, data: Any) -> tuple[Session | None, Any]:
    """The run's session, None when the hook is off, and what wandb is to get: the data, enhanced where asked for."""
    try:
        session: Session | None = run.__dict__.get(_SESSION) or _session_if_on(run)
        if session is None or not session.buffer.on:
            return None, data
        if session.buffer.enhance and isinstance(data, Mapping):
            data = {**data, "_primus_lens_enabled": True, **runtime.get_runtime().system_values}
    except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
        _missed(error)
        return None, data
    return session, data


def _missed(error: Exception) -> None:
    say.report_failure("missed", "a row was missed", error)
    with contextlib.suppress(Exception):  # it is said; nothing that we do after that is worth a user's call
        hook = runtime.existing()
        if hook is not None:
            hook.buffer.counts.missed += 1


def _session_if_on(run: Any) -> Session | None:
    hook = runtime.get_runtime()
    return _session_of(hook, run) if hook.buffer.on else None


def _session_of(hook: runtime.Runtime, run: Any) -> Session:
    """The run's session; made now if its start was not seen (hook attached later, or run of another process)."""
    session: Session | None = run.__dict__.get(_SESSION)
    if session is None:
        session = hook.open_session("wandb", run_id(run), run_facts(run))
        run.__dict__[_SESSION] = session
    return session


def _followed_by(original: Callable[..., Any], after: Callable[[Any], None]) -> Callable[..., Any]:
    """The original, and `after(self)` once it has returned."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            after(self)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            _missed(error)
        return result

    return method


def adopt(run: Any) -> None:
    """Begin with a run that was started before the hook came."""
    hook = runtime.get_runtime()
    if stands_back(hook):
        return
    if "log" in getattr(run, "__dict__", {}) or type(run).__name__ in ("NoopRun", "RunDisabled"):
        watch_disabled(run)
    else:
        _session_of(hook, run)


def _started(run: Any) -> None:
    hook = runtime.get_runtime()
    if stands_back(hook):
        return
    run.__dict__.pop(_SESSION, None)
    _session_of(hook, run)


def stands_back(hook: runtime.Runtime) -> bool:
    """Whether upstream's exporter does the work in this process already."""
    if hook.buffer.on and any(name == _EXPORTER or name.startswith(_EXPORTER + ".") for name in list(sys.modules)):
        hook.buffer.turn_off()
        say.once("exporter", f"{_EXPORTER} is active in this process; standing back")
    return not hook.buffer.on


def _finished(run: Any) -> None:
    hook = runtime.existing()
    session = run.__dict__.get(_SESSION)
    if hook is None or session is None or not hook.buffer.on:
        return
    code = run.__dict__.get("_exit_code")
    error = sys.exc_info()[1] if code else None  # `with wandb.init():` is left by an exception
    known = {"exit_code": code} if isinstance(code, int) else {}
    hook.close_session(session, {"finished": True, **process_end.describe_end(error), **known})


def _config_changed(run: Any) -> None:
    session = run.__dict__.get(_SESSION)
    if session is not None:
        session.evidence_due = True


def _defining(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_define_metric(self, name, step_metric=None, ...)`: remember the axis."""

    def _define_metric(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            name = args[0] if args else kwargs.get("name")
            axis = args[1] if len(args) > 1 else kwargs.get("step_metric")
            axis = getattr(axis, "name", axis)
            if isinstance(name, str) and isinstance(axis, str):
                session = _session_if_on(self)
                if session is not None:
                    sync = args[2] if len(args) > 2 else kwargs.get("step_sync")
                    session.define_axis(name, axis, carried=sync is None or bool(sync))
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            _missed(error)
        return result

    return _define_metric


def _summarising(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_summary_update_callback(self, record)`: what somebody set by `run.summary[...] = x`."""

    def _summary_update_callback(self: Any, record: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, record, *args, **kwargs)
        try:
            session: Session | None = self.__dict__.get(_SESSION)
            if session is not None:
                values = snapshot({".".join(map(str, item.key)): item.value for item in record.update})
                if values:
                    of = hear_echo() if inside else ""
                    session.buffer.append_row((session, Summary(values, of), None, False, None, None, time()))
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            _missed(error)
        return result

    return _summary_update_callback


def _disabling(original: Callable[..., Any]) -> Callable[..., Any]:
    """The making of a disabled run, whose `log` is then ours."""

    def make_disabled_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = original(self, *args, **kwargs)
        try:
            watch_disabled(run)
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            _missed(error)
        return run

    return make_disabled_run


def watch_disabled(run: Any) -> None:
    """Take the rows of a disabled run: its `log` is an attribute of the object, and so is ours.

    A disabled run takes names of any type, where others raise.
    """
    hook = runtime.get_runtime()
    if stands_back(hook) or hasattr(run.log, _MARK):
        return
    original = run.log
    session = hook.open_session("wandb", run_id(run), run_facts(run))

    def log(data: Any, step: int | None = None, commit: bool | None = None, *args: Any, **kwargs: Any) -> Any:
        result = original(data, step, commit, *args, **kwargs)
        try:
            taken = {name if isinstance(name, str) else str(name): value for name, value in snapshot(data).items()}
            taken = as_echo(taken) if inside else taken
            hook.buffer.append_row((session, taken, None if step is None else int(step), commit, None, None, time()))
        except Exception as error:  # noqa: BLE001 - said once; the user's call goes on
            _missed(error)
        return result

    setattr(log, _MARK, original)
    run.log = log
    wandb: Any = sys.modules.get("wandb")
    if getattr(wandb, "run", None) is run:
        wandb.log = log
