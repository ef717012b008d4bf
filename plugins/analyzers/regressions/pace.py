"""Steps that become slower: within an attempt by Page–Hinkley, and after a restart against the attempt before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .finding import SCALE, Finding, Floats, Points, mad
from .memory import theil_sen

CLIP, DRIFT, ALARM = 0.05, 0.01, 0.25
CONFIRM_RATIO, CONFIRM_ERRORS, CONFIRM_INTERVALS = 1.03, 5.0, 30
_REFERENCE = 50
_WARM_UP = 20
_SETTLING = 5
_MOST_NODES = 20
_LEAST_CREEP, _CREEP_AN_HOUR, _CREEP_IN_ALL, _CREEP_OF_QUARTER = 80, 0.01, 0.05, 0.1


def seconds_per_step(progress: Points) -> Floats:
    """The seconds per step of each interval between rows; values are not looked at."""
    steps = np.diff(progress.iterations)
    return np.diff(progress.times) / np.maximum(steps, 1)


def split_by_batch(progress: Points, batch: Points) -> list[tuple[float | None, Points]]:
    """The stretches of an attempt that have one batch size, each with that size: only in one are step times comparable.

    The row that ends a stretch begins the next, because an interval has the batch size of the step that ends it.
    """
    sizes = batch.finite()
    if not len(sizes) or not len(progress):
        return [(None, progress)]
    changed = np.flatnonzero(np.append(True, np.diff(sizes.values) != 0))
    places = np.searchsorted(progress.iterations, sizes.iterations[changed])
    found: list[tuple[float | None, Points]] = []
    for number, place in enumerate(changed.tolist()):
        begin = max(0, int(places[number]) - 1) if number else 0
        end = int(places[number + 1]) if number + 1 < len(places) else len(progress)
        part = Points(progress.iterations[begin:end], progress.times[begin:end], progress.values[begin:end])
        if len(part):
            found.append((float(sizes.values[place]), part))
    return found or [(None, progress)]


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
                        "cost_seconds": reference
                        * (ratio - 1.0)
                        * float(progress.iterations[-1] - progress.iterations[since]),
                    },
                )
            )
        begin = since if found and found[-1].iteration == int(progress.iterations[at + 1]) else at + 1
    return found


def find_slower_after_restart(before: Points, after: Points, new_nodes: Sequence[str] = ()) -> list[Finding]:
    """Compare the last 50 intervals of an attempt with the first 50 of the next, of the same world size.

    `new_nodes` are the nodes that came in with the restart.
    """
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
            details={
                "ratio": ratio,
                "seconds_before": reference,
                "seconds_after": reference * ratio,
                "cost_seconds": reference * (ratio - 1.0) * float(after.iterations[-1] - after.iterations[0]),
                **({"new_nodes": [*new_nodes][:_MOST_NODES]} if new_nodes else {}),
            },
        )
    ]


def find_step_time_creep(progress: Points) -> list[Finding]:
    """Find steps that get slower all the time: over 1 % an hour and over 5 % in all, in each quarter of the attempt."""
    paces = seconds_per_step(progress)[_SETTLING:]
    times = progress.times[_SETTLING + 1 :]
    if len(paces) < _LEAST_CREEP:
        return []
    hours = (times - times[0]) / 3600
    trend = theil_sen(hours, paces)
    begin = trend.newest - trend.slope * float(hours[-1]) if trend is not None else 0.0
    if trend is None or not begin > 0 or trend.lower <= _CREEP_AN_HOUR * begin:
        return []
    growth = trend.slope * float(hours[-1])
    quarters = np.diff([np.median(part) for part in np.array_split(paces, 4)])
    # A jump is one step among the quarters, and has a finding of its own.
    if growth <= _CREEP_IN_ALL * begin or np.any(quarters < _CREEP_OF_QUARTER * growth):
        return []
    return [
        Finding(
            type="step_time_creep",
            iteration=int(progress.iterations[-1]),
            time=float(progress.times[-1]),
            rule="Theil–Sen slope of the step time: lower bound over 1 % an hour, over 5 % in all, in each quarter",
            details={
                "percent_an_hour": 100 * trend.slope / begin,
                "seconds_before": begin,
                "seconds_after": trend.newest,
                "cost_seconds": 0.5 * growth * float(progress.iterations[-1] - progress.iterations[_SETTLING]),
            },
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
