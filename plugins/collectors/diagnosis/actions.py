"""What is to be done after a failure, in the shape of DLRover's node actions."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lens_core.diagnosis import Advice, Decision, RankFailure

LOCAL_INSTANCE = -3


class DiagnosisActionType(str, Enum):
    """The actions; the values are DLRover's, and compare equal to its strings."""

    NONE = Decision.NONE.value
    RESTART_WORKER = Decision.RESTART_WORKER.value
    RELAUNCH_WORKER = Decision.RELAUNCH_WORKER.value
    JOB_ABORT = Decision.JOB_ABORT.value


@dataclass(frozen=True)
class DiagnosisAction:
    """One action: `reason` says why in words, `cause` by name, `evidence` is the line that told. Times in seconds."""

    action_type: DiagnosisActionType
    reason: str = ""
    cause: str = ""
    evidence: str = ""
    rank: int | None = None
    instance: int = LOCAL_INSTANCE
    timestamp: float = field(default_factory=time.time)

    @classmethod
    def of(cls, advice: Advice) -> DiagnosisAction:
        """The action of an advice."""
        kind = DiagnosisActionType(advice.decision.value)
        return cls(kind, advice.reason, advice.cause.value, advice.evidence, advice.rank)


def failures_of(given: Any) -> list[RankFailure]:
    """Failures as callers have them: {"error": text}, DLRover's {rank: {…}}, torch elastic's {rank: ProcessFailure}.

    A text under "error" is an exception's; while that exception is being handled its type is known too.
    """
    if given is None:
        return []
    if isinstance(given, BaseException):
        return [RankFailure(message=_spell(given), is_exception=True)]
    if not isinstance(given, Mapping):
        return [RankFailure(message=str(given))]
    found = []
    for key, value in given.items():
        rank = _whole(key)
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
    def get(*names: str) -> Any:
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
        exit_code=_whole(get("exitcode", "exit_code")),
        message=_text(get("message", "error", "error_data")),
        at=_time(get("timestamp", "datetime", "time")),
    )


def _text(message: Any) -> str:
    """The words of a message; torch elastic's error files have {"message": {"message": …, "extraInfo": {…}}}."""
    if isinstance(message, Mapping):
        parts = [message.get("message"), (message.get("extraInfo") or {}).get("py_callstack")]
        return "\n".join(_text(part) for part in parts if part)
    return "" if message is None else str(message)


def _whole(value: Any) -> int | None:
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
