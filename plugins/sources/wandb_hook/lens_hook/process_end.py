"""The end of this process: its exit code and its last error, as far as Python lets an exit handler know them.

An uncaught exception is in `sys.last_value`, but so is one of a notebook's or a debugger's. An exit by `sys.exit` is
told to nobody: `watch` replaces that function by one whose SystemExit notices where it is let go of. `raise SystemExit`
without `sys.exit`, `os._exit` and signals with their default action stay unseen.
"""

from __future__ import annotations

import builtins
import functools
import signal
import sys
import threading
from typing import Any

from .redact import text

_MARK = "_lens_hook_original"
_SIGNALLED = 128  # a shell's exit code of a process that a signal ended, minus the signal
_noticed: dict[str, Any] = {}  # of the SystemExit that went through to the top, if one did


class _Exit(SystemExit):
    """A SystemExit that knows whether it ended the process: it is then let go of by no frame of Python's."""

    __module__, __qualname__ = "builtins", "SystemExit"  # looks and prints as any other

    def __del__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident and not _has_caller():
            _noticed.update(describe_end(self))

    def __reduce__(self) -> Any:
        return SystemExit, self.args


_Exit.__name__ = "SystemExit"


def _has_caller() -> bool:
    """Whether there is a frame of Python's below that of `__del__`."""
    try:
        sys._getframe(2)
    except ValueError:
        return False
    return True


def watch_exits() -> None:
    """Replace `sys.exit`, and what `exit` and `quit` do, by what notices an exit; calling it again does nothing."""
    if not hasattr(sys.exit, _MARK):
        sys.exit = _noticing(sys.exit)
    quitter = type(getattr(builtins, "exit", None))
    call = vars(quitter).get("__call__") if quitter.__module__ == "_sitebuiltins" else None
    if call is not None and not hasattr(call, _MARK):
        quitter.__call__ = _noticing(call)  # type: ignore[method-assign]


def _noticing(original: Any) -> Any:
    @functools.wraps(original)
    def exit(*args: Any, **options: Any) -> Any:
        try:
            return original(*args, **options)
        except SystemExit as error:
            if type(error) is not SystemExit:  # somebody's own, or ours already
                raise
            code, context = error.args, error.__context__
        _raise(code, context)

    setattr(exit, _MARK, original)
    return exit


def _raise(args: tuple[Any, ...], context: BaseException | None) -> None:
    # Bound to no name: a frame of the traceback that holds it would keep it beyond the end of the process.
    raise _with_context(_Exit(*args), context)


def _with_context(error: SystemExit, context: BaseException | None) -> SystemExit:
    error.__context__ = context
    return error


def describe_end(error: BaseException | None) -> dict[str, Any]:
    """Details of an event about a process that `error` ends: `exit_code`, and the last error's `reason`; never raises.

    Nothing for None and for an exit with code 0.
    """
    if error is None:
        return {}
    if isinstance(error, SystemExit):
        return _describe_exit(error)
    if isinstance(error, KeyboardInterrupt):
        number = int(signal.SIGINT)
        return {"exit_code": _SIGNALLED + number, "signal": "SIGINT", **_describe_error(error)}
    return {"exit_code": 1, **_describe_error(error)}


def _describe_exit(error: SystemExit) -> dict[str, Any]:
    code = error.code
    if code is None or (isinstance(code, int) and not code & 0xFF):
        return {}
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    details: dict[str, Any] = {"exit_code": code & 0xFF if isinstance(code, int) else 1}
    if not isinstance(code, int):
        details["reason"] = text(_words(code))
    elif isinstance(cause, Exception):  # `except …: print(…); sys.exit(1)`
        details.update(_describe_error(cause))
    else:
        details["reason"] = f"sys.exit({code})"
    if details["exit_code"] > _SIGNALLED:
        name = _signal_name(details["exit_code"] - _SIGNALLED)
        details.update({"signal": name} if name else {})
    return details


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _describe_error(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    where = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    words = _words(error)
    return {"exception": kind.__name__, "reason": text(f"{where}{kind.__qualname__}{': ' if words else ''}{words}")}


def _words(value: Any) -> str:
    try:
        return str(value).strip()
    except Exception:  # noqa: BLE001 - the text of a user's own exception
        return "(its text cannot be read)"


def of_this_process() -> dict[str, Any]:
    """Details of how this process ends, asked for by an exit handler: empty where it ends well."""
    if _noticed:
        return dict(_noticed)
    in_flight = sys.exc_info()[1]  # in a child of multiprocessing, whose finalizers run below the exception
    return describe_end(in_flight if in_flight is not None else _uncaught())


def _uncaught() -> BaseException | None:
    """The exception that ended the main program; not one that a notebook, a prompt or a test runner has shown."""
    error = getattr(sys, "last_value", None)
    trace = getattr(sys, "last_traceback", None)
    if not isinstance(error, BaseException) or hasattr(sys, "ps1") or sys.flags.interactive:
        return None
    if trace is None:  # nothing of the program ran: a syntax error
        return error
    frame = trace.tb_frame
    is_outermost = frame.f_globals is vars(sys.modules.get("__main__", builtins)) or (
        frame.f_globals.get("__name__") == "runpy"
    )
    return error if is_outermost and frame.f_code.co_name in ("<module>", "_run_module_as_main") else None
