"""Advice after a failure: restart the processes, replace the node, or stop; with the reason in words.

A node is blamed only for what a node can cause. A Python exception of the training's own is never the node's fault, and
a mistake that is made before the first step is not fixed by making it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from .failure_patterns import Cause, Match, search_causes

DEFAULT_MAX_RESTARTS = 3


class Decision(Enum):
    """The advised action; the values are DLRover's action types."""

    NONE = "no_action"
    RESTART_WORKER = "restart_worker"
    RELAUNCH_WORKER = "relaunch_worker"
    JOB_ABORT = "job_abortion"


class RankFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one rank's process: `exit_code` negative for a signal; `at` in seconds, None if unknown.

    `is_exception` says that the message is a Python exception's, whatever it reads.
    """

    rank: int | None = None
    exit_code: int | None = None
    message: str = ""
    at: float | None = None
    is_exception: bool = False


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The decision, its cause, and the words for people; `evidence` is the line that told."""

    decision: Decision
    cause: Cause
    reason: str
    evidence: str = ""
    rank: int | None = None


class _Rule(NamedTuple):
    """The actions after a cause: within the budget of restarts, and past it."""

    first: Decision
    later: Decision
    words: str
    # From this many restarts on it is "later", where that comes before the budget's end.
    patience: int | None = None


_RESTART, _RELAUNCH, _STOP = Decision.RESTART_WORKER, Decision.RELAUNCH_WORKER, Decision.JOB_ABORT
_RULES = {
    Cause.HARDWARE: _Rule(_RELAUNCH, _RELAUNCH, "the node's hardware reports an error"),
    Cause.DEVICE_MISSING: _Rule(_RELAUNCH, _RELAUNCH, "the node has no usable device"),
    Cause.DISK_FULL: _Rule(_RELAUNCH, _RELAUNCH, "the node's disk is full"),
    Cause.MISTAKE: _Rule(_STOP, _STOP, "the program cannot start like this; another attempt ends the same way"),
    Cause.USER_EXCEPTION: _Rule(_RESTART, _STOP, "the training's own code raised an exception"),
    Cause.DEVICE_MEMORY: _Rule(_RESTART, _STOP, "the device's memory was not enough; use a smaller batch", patience=1),
    Cause.HOST_MEMORY: _Rule(_RELAUNCH, _STOP, "the machine's memory was not enough", patience=2),
    Cause.COLLECTIVE_TIMEOUT: _Rule(_RESTART, _RELAUNCH, "ranks waited for each other until the timeout", patience=2),
    Cause.DEVICE_FAULT: _Rule(_RESTART, _RELAUNCH, "a kernel failed on the device", patience=2),
    Cause.PEER_LOST: _Rule(_RESTART, _RELAUNCH, "the connection to another rank broke"),
    Cause.NATIVE_CRASH: _Rule(_RESTART, _RELAUNCH, "the process crashed outside of Python"),
    Cause.KILLED: _Rule(_RESTART, _RELAUNCH, "the process was killed from outside"),
    Cause.TERMINATED: _Rule(_RESTART, _RELAUNCH, "the process was asked to end"),
    Cause.UNKNOWN: _Rule(_RESTART, _RELAUNCH, "nothing says why"),
}
_SIGNALS = {
    4: (Cause.NATIVE_CRASH, "SIGILL"),
    6: (Cause.NATIVE_CRASH, "SIGABRT"),
    7: (Cause.NATIVE_CRASH, "SIGBUS"),
    8: (Cause.NATIVE_CRASH, "SIGFPE"),
    9: (Cause.KILLED, "SIGKILL"),
    11: (Cause.NATIVE_CRASH, "SIGSEGV"),
    15: (Cause.TERMINATED, "SIGTERM"),
}
_USAGE_EXIT_CODE = 2
# Of several causes the first of these is the root; the others follow from it.
_ROOTS = (
    Cause.HARDWARE,
    Cause.DEVICE_MISSING,
    Cause.DISK_FULL,
    Cause.MISTAKE,
    Cause.DEVICE_MEMORY,
    Cause.HOST_MEMORY,
    Cause.DEVICE_FAULT,
    Cause.USER_EXCEPTION,
    Cause.NATIVE_CRASH,
    Cause.COLLECTIVE_TIMEOUT,
    Cause.KILLED,
    Cause.PEER_LOST,
    Cause.TERMINATED,
)
_OF_THE_PROGRAM = frozenset({Cause.USER_EXCEPTION, Cause.MISTAKE})


def advise(
    failures: Sequence[RankFailure],
    log: str = "",
    *,
    restart_count: int = 0,
    max_restarts: int = DEFAULT_MAX_RESTARTS,
) -> Advice:
    """The advice for these failures; `log` is the end of the training log of this attempt."""
    if not failures and not log.strip():
        return Advice(decision=Decision.NONE, cause=Cause.UNKNOWN, reason="no failure was given")
    found, rank = _root(failures, log)
    rule = _RULES[found.cause]
    patience = max_restarts if rule.patience is None else min(rule.patience, max_restarts)
    is_late = restart_count >= patience
    decision = rule.later if is_late else rule.first
    told = f" ({found.line})" if found.line else ""
    budget = f"; {_used(restart_count, max_restarts)}" if rule.first is _RESTART else ""
    return Advice(
        decision=decision,
        cause=found.cause,
        reason=f"{rule.words}{told}{budget}: {_WORDS[decision]}",
        evidence=found.line,
        rank=rank,
    )


def _used(restart_count: int, max_restarts: int) -> str:
    if restart_count > max_restarts:
        return f"{restart_count} restarts are used, {max_restarts} are allowed"
    return f"{restart_count} of {max_restarts} restarts are used"


_WORDS = {
    Decision.NONE: "nothing to do",
    _RESTART: "restart the processes on the same node",
    _RELAUNCH: "go on on another node",
    _STOP: "stop, a person has to change something",
}


def _root(failures: Sequence[RankFailure], log: str) -> tuple[Match, int | None]:
    """The cause from which the others follow, and the rank that failed first."""
    ordered = sorted(failures, key=lambda failure: (failure.at is None, failure.at or 0.0))
    told = [(match, failure.rank) for failure in ordered for match in [_cause_of(failure)] if match is not None]
    from_log = _best(search_causes(log))
    if told:
        # The rank that failed first; others mostly report that they lost it.
        best = min(told, key=lambda item: _ROOTS.index(item[0].cause) if item[0].cause in _ROOTS else len(_ROOTS))
        first = told[0] if told[0][0].cause in _OF_THE_PROGRAM else best
        if first[0].cause in _OF_THE_PROGRAM or from_log is None:
            return first
        if _before(first[0].cause, from_log.cause):
            return first
        return from_log, first[1]
    rank = ordered[0].rank if ordered else None
    if from_log is not None:
        return from_log, rank
    text = next((failure.message.strip().splitlines()[-1] for failure in ordered if failure.message.strip()), "")
    code = next((failure.exit_code for failure in ordered if failure.exit_code is not None), None)
    return Match(Cause.UNKNOWN, (text or (f"exit code {code}" if code is not None else ""))[:300]), rank


def _before(one: Cause, other: Cause) -> bool:
    return _ROOTS.index(one) <= _ROOTS.index(other)


def _cause_of(failure: RankFailure) -> Match | None:
    """The cause that a rank's own message or exit code tells; the message knows better."""
    by_message = _best(search_causes(failure.message))
    if by_message is not None:
        return by_message
    if failure.is_exception:
        return Match(Cause.USER_EXCEPTION, (failure.message.strip().splitlines() or [""])[-1][:300])
    code = failure.exit_code
    if code is None:
        return None
    signal = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if signal in _SIGNALS:
        cause, name = _SIGNALS[signal]
        return Match(cause, f"exit code {code}, {name}")
    return Match(Cause.MISTAKE, "exit code 2, wrong usage") if code == _USAGE_EXIT_CODE else None


def _best(matches: Sequence[Match]) -> Match | None:
    known = [match for match in matches if match.cause in _ROOTS]
    return min(known, key=lambda match: _ROOTS.index(match.cause), default=None)
