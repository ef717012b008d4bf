"""The tools of a tracker's file: replace a method, open a run, log a row. `docs/trackers.md` shows how to use them.

Nothing here raises into a user's call, and whatever fails is said once on stderr.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from . import echo, process_end, runtime, say
from .buffer import Summary
from .session import Session
from .values import snapshot

MARK = "_lens_hook_original"
SESSION = "_lens_hook_session"
_MOST_KEYS = 20_000

Method = Callable[..., Any]


def wrap(owner: Any, name: str, wrapper: Callable[[Method], Method]) -> None:
    """Replace the method `name` of a class, or a function of a module, by `wrapper(original)`; once.

    A wrapper must have the original's parameter names and call it first. One that is missing, because the tracker has
    changed, is said.
    """
    original = vars(owner).get(name)
    if original is None:
        where = f"{owner.__module__}.{owner.__name__}"
        say.once(f"{where}.{name}", f"{where} has no {name}; it is not listened to")
        return
    if hasattr(original, MARK):
        return
    replacement = functools.wraps(original)(wrapper(original))
    setattr(replacement, MARK, original)
    setattr(owner, name, replacement)


def follow(owner: Any, name: str, after: Callable[..., object]) -> None:
    """Have `after(result, *args, **kwargs)` called after each call of a method that has returned, async ones too.

    A method that the tracker does not have (in another version) is left out without a word.
    """
    if vars(owner).get(name) is None:
        return

    def wrapper(original: Method) -> Method:
        @functools.wraps(original)
        def followed(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            quietly(after, result, *args, **kwargs)
            return result

        @functools.wraps(original)
        async def followed_later(*args: Any, **kwargs: Any) -> Any:
            result = await original(*args, **kwargs)
            quietly(after, result, *args, **kwargs)
            return result

        return followed_later if inspect.iscoroutinefunction(original) else followed

    wrap(owner, name, wrapper)


def quietly(function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """Call a function of a tracker's file; an error of it is said once and counted."""
    try:
        function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - the user's call goes on
        missed(error)


def missed(error: Exception) -> None:
    """Say once that a row was missed, and count it; never raises."""
    say.report_failure("missed", "a row was missed", error)
    hook = runtime.existing()
    if hook is not None:
        hook.buffer.counts.missed += 1


def is_on() -> bool:
    """Whether rows are wanted in this process."""
    return runtime.get_runtime().buffer.on


def session_of(owner: Any, tracker: str, describe: Callable[[], Mapping[str, Any]], run_id: str = "") -> Session:
    """The session of a tracker's object, made at its first row.

    `describe()` answers some of `id`, `name`, `experiment`, `tags`, `parent`, `url`, `config`. It is called by the
    hook's own thread, so it must not ask the network or a database.
    """
    session: Session | None = owner.__dict__.get(SESSION)
    if session is None:
        session = owner.__dict__[SESSION] = open_run(tracker, run_id, describe)
    return session


def open_run(tracker: str, run_id: str, describe: Callable[[], Mapping[str, Any]]) -> Session:
    """Open a session whose rows have the data source `tracker`, and whose evidence says what `describe()` answers."""
    return runtime.get_runtime().open_session(tracker, str(run_id)[:500], lambda: _facts(tracker, describe))


def _facts(tracker: str, describe: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    try:
        known = dict(describe())
    except Exception as error:  # noqa: BLE001 - somebody else's object, perhaps of a version that nobody knew
        say.debug(f"a run of {tracker} cannot be described: {type(error).__name__}")
        known = {}
    config, experiment = known.pop("config", None), known.get("experiment")
    facts: dict[str, Any] = {"tracker": {"tracker": tracker, **{key: value for key, value in known.items() if value}}}
    if config:
        facts["config"] = config
    if experiment:
        facts["project"] = str(experiment)
    return facts


def log_row(
    session: Session,
    values: Mapping[Any, Any],
    step: int | None = None,
    event_time: float | None = None,
    *,
    mirror_of: str = "",
) -> None:
    """Queue one row; without a step it gets the next of the session. Never waits.

    `mirror_of` is the data source that the tracker has copied the row from.
    """
    buffer = session.buffer
    if not buffer.on:
        return
    data = snapshot(values)
    if echo.inside or mirror_of:
        data = echo.as_echo(data, of=mirror_of)
    now = time.time()
    if event_time is not None and 0.0 < event_time < now:
        now = event_time
    if step is not None and type(step) is not int:
        step = int(step)
    buffer.append_row((session, data, step, None if step is None else False, None, None, now))


def log_summary(session: Session, values: Mapping[Any, Any]) -> None:
    """Queue values that belong to the run and to no step."""
    data = snapshot(values)
    of = echo.hear_echo() if echo.inside else ""
    session.buffer.append_row((session, Summary(data, of), None, False, None, None, time.time()))


def close_run(session: Session | None, details: Mapping[str, Any] | None = None) -> None:
    """Say that a run is over; `details` may hold `exit_code` and `reason` of a failure."""
    hook = runtime.existing()
    if hook is None or session is None or not hook.buffer.on:
        return
    how: dict[str, Any] = {}
    if details:  # in a `with` that an exception leaves, or in the tracker's own `sys.excepthook`
        error = sys.exc_info()[1]
        how = process_end.of_this_process() if error is None else process_end.describe_end(error)
    hook.close_session(session, {"finished": True, **how, **(details or {})})


def framework(name: str, log_own: Callable[..., object]) -> Callable[[Method], Method]:
    """A wrapper for a framework's logging method: what is logged inside is its echo, and `log_own` its own row.

    `log_own` has the method's parameters, and is called if no tracker has logged anything inside. Nested calls are the
    outermost one's.
    """

    def wrapper(original: Method) -> Method:
        @functools.wraps(original)
        def marked(*args: Any, **kwargs: Any) -> Any:
            mark = echo.enter(name)
            if mark is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            finally:
                echo.leave()
            if not mark.heard:
                quietly(log_own, *args, **kwargs)
            return result

        return marked

    return wrapper


class KeyCounter:
    """Steps for a tracker that is given none: each key counts its own values, as most trackers do."""

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}

    def next_step(self, *keys: Any) -> int:
        """The step of a row with these keys."""
        counts = self._counts
        if len(counts) > _MOST_KEYS:
            counts.clear()
        step = max([counts.get(key, 0) for key in keys], default=0)
        for key in keys:
            counts[key] = step + 1
        return step
