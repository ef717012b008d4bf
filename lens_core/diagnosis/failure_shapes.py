"""Failures of ranks in the shapes that launchers, agents and masters report them in."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from .failures import RankFailure


def failures_of(given: Any) -> list[RankFailure]:
    """Failures as callers have them: {"error": text}, DLRover's {rank: {…}}, torch elastic's {rank: ProcessFailure}.

    A mapping may also be the text of one in JSON. A text under "error" is an exception's; while that exception is being
    handled its type is known too. Never raises: of what cannot be read its type is said.
    """
    try:
        return _failures_of(_decoded(given))
    except Exception as error:  # noqa: BLE001 - an object of somebody else may raise anything
        return [RankFailure(message=f"a failure that cannot be read: {type(given).__name__} ({type(error).__name__})")]


def _decoded(given: Any) -> Any:
    """The mapping that a text holds as JSON, else what was given."""
    if isinstance(given, str | bytes):
        with contextlib.suppress(ValueError, msgspec.DecodeError):
            decoded = msgspec.json.decode(given)
            if isinstance(decoded, dict):
                return decoded
    return given


def _failures_of(given: Any) -> list[RankFailure]:
    if given is None:
        return []
    if isinstance(given, BaseException):
        return [RankFailure(message=_spell(given), is_exception=True)]
    if not isinstance(given, Mapping):
        return [RankFailure(message=str(given))]
    found = []
    for key, value in given.items():
        rank = _whole_number(key)
        if rank is None and key in ("error", "exception"):
            found.append(_exception(value))
        elif rank is None and key not in ("exitcode", "exit_code", "message"):
            found.append(RankFailure(message=str(value)))
        elif rank is not None:
            found.append(_rank_failure(rank, value))
    if any(key in given for key in ("exitcode", "exit_code", "message")):
        found.append(_rank_failure(None, given))
    return found


def _exception(value: Any) -> RankFailure:
    if isinstance(value, BaseException):
        return RankFailure(message=_spell(value), is_exception=True)
    handled = sys.exc_info()[1]
    text = str(value)
    if handled is not None and str(handled) == text:
        text = _spell(handled)
    return RankFailure(message=text, is_exception=True)


def _spell(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _rank_failure(rank: int | None, value: Any) -> RankFailure:
    def first_value(*names: str) -> Any:
        for name in names:
            found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
            if found is not None:
                return found
        return None

    if isinstance(value, BaseException):
        return RankFailure(rank=rank, message=_spell(value), is_exception=True)
    if isinstance(value, str):
        return RankFailure(rank=rank, message=value)
    return RankFailure(
        rank=rank,
        exit_code=_whole_number(first_value("exitcode", "exit_code")),
        message=_message_text(first_value("message", "error", "error_data")),
        at=_time(first_value("timestamp", "datetime", "time")),
    )


def _message_text(message: Any) -> str:
    """The words of a message; torch elastic's error files have {"message": {"message": …, "extraInfo": {…}}}."""
    if isinstance(message, Mapping):
        parts = [message.get("message"), (message.get("extraInfo") or {}).get("py_callstack")]
        return "\n".join(_message_text(part) for part in parts if part)
    return "" if message is None else str(message)


def _whole_number(value: Any) -> int | None:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return int(value)
    return None


def _time(value: Any) -> float | None:
    """Seconds since the epoch of a number or of DLRover's `YYYY-MM-DD HH:MM:SS` (torch elastic: with an underscore)."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return float(value)
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d_%H:%M:%S"):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return time.mktime(time.strptime(value, form))
    return None
