"""Steps that become slower: within an attempt by Page–Hinkley, and after a restart against the attempt before."""

from __future__ import annotations

import math

import numpy as np

from .finding import SCALE, Finding, Floats, Points, mad

CLIP, DRIFT, ALARM = 0.05, 0.01, 0.25
CONFIRM_RATIO, CONFIRM_ERRORS, CONFIRM_INTERVALS = 1.03, 5.0, 30
_REFERENCE = 50
_WARM_UP = 20
_SETTLING = 5


def seconds_per_step(progress: Points) -> Floats:
    """The seconds per step of each interval between rows; values are not looked at."""
    steps = np.diff(progress.iterations)
    return np.diff(progress.times) / np.maximum(steps, 1)


def find_slower(progress: Points) -> list[Finding]:
    """Find where an attempt became slower than its best sustained pace, and stayed so; each change once."""
    paces = seconds_per_step(progress)
    found: list[Finding] = []
    begin = _SETTLING
    while len(paces) - begin >= _WARM_UP + 3:
        alarm = _alarm(paces, begin)
        if alarm is None:
            break
        since, at, reference = alarm
        ratio, errors = _compare(paces[begin:since], paces[max(since, at - CONFIRM_INTERVALS + 1) : at + 1], reference)
        if ratio >= CONFIRM_RATIO and errors >= CONFIRM_ERRORS:
            found.append(
                Finding(
                    type="slower",
                    iteration=int(progress.iterations[at + 1]),
                    time=float(progress.times[at + 1]),
                    rule="Page–Hinkley on the step time (clip 5 %, drift 1 %, alarm 0.25), confirmed by medians",
                    details={
                        "ratio": ratio,
                        "seconds_before": reference,
                        "seconds_after": reference * ratio,
                        "since_iteration": int(progress.iterations[since + 1]),
                        "steps_to_find": at - since + 1,
                    },
                )
            )
        begin = since if found and found[-1].iteration == int(progress.iterations[at + 1]) else at + 1
    return found


def find_slower_after_restart(before: Points, after: Points) -> list[Finding]:
    """Compare the last 50 intervals of an attempt with the first 50 of the next, of the same world size."""
    old, new = seconds_per_step(before)[-_REFERENCE:], seconds_per_step(after)[_SETTLING : _SETTLING + _REFERENCE]
    if len(old) < _WARM_UP or len(new) < _REFERENCE:
        return []
    reference = float(np.median(old))
    if not reference > 0:
        return []
    ratio, errors = _compare(old, new, reference)
    if ratio < CONFIRM_RATIO or errors < CONFIRM_ERRORS:
        return []
    at = _SETTLING + _REFERENCE
    return [
        Finding(
            type="slower_after_restart",
            iteration=int(after.iterations[at]),
            time=float(after.times[at]),
            rule="median of 50 intervals after the restart over that before it, at least 3 % and 5 standard errors",
            details={"ratio": ratio, "seconds_before": reference, "seconds_after": reference * ratio},
        )
    ]


def _alarm(paces: Floats, begin: int) -> tuple[int, int, float] | None:
    """The interval since which the pace is slower, that of the alarm, and the reference; None without an alarm."""
    reference = _reference(paces[begin : begin + _REFERENCE])
    if not reference > 0:
        return None
    total = lowest = 0.0
    since = begin
    best = reference
    for index in range(begin, len(paces)):
        if (index - begin) % _REFERENCE == 0 and index - begin >= _REFERENCE:
            best = min(best, _reference(paces[index - _REFERENCE : index]))
        pace = float(paces[index])
        if not pace > 0 or not math.isfinite(pace):
            continue
        total += min(CLIP, max(-CLIP, math.log(pace / best))) - DRIFT
        if total <= lowest:
            lowest, since = total, index + 1
        elif total - lowest > ALARM and index - begin >= _WARM_UP:
            return since, index, best
    return None


def _reference(paces: Floats) -> float:
    return float(np.median(paces)) if len(paces) else 0.0


def _compare(before: Floats, after: Floats, reference: float) -> tuple[float, float]:
    """The ratio of the medians, and their difference in standard errors."""
    level = float(np.median(after))
    error = math.hypot(_error(before[-_REFERENCE:]), _error(after))
    return level / reference, (level - reference) / max(error, 1e-6 * reference)


def _error(paces: Floats) -> float:
    """The standard error of a median."""
    return 1.2533 * SCALE * mad(paces) / math.sqrt(len(paces)) if len(paces) else 0.0
