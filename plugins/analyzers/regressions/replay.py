"""The replay check: steps that were done again must give the values of before, or the restore was wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np

from .finding import SCALE, Finding, Floats, Points, mad

Outcome = Literal["exact", "consistent", "shifted", "inconclusive", "none"]
_LEAST_POINTS = 5
_LEAST_SHIFT = 0.005
_RATE_DIFFERENCE = 0.001
_REPEATED_POINTS, _REPEATED_CORRELATION, _MOST_LAG = 50, 0.8, 50


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of the steps that two attempts have in common: median difference, noise, number of steps."""

    outcome: Outcome
    points: int = 0
    shift: float = 0.0
    noise: float = 0.0
    limit: float = 0.0


def compare_losses(before: Points, after: Points) -> Replay:
    """Compare the losses of the steps that both attempts have."""
    first, second = before.finite(), after.finite()
    common, at, again = np.intersect1d(first.iterations, second.iterations, return_indices=True)
    if len(common) < _LEAST_POINTS:
        return Replay(outcome="none", points=len(common))
    differences = second.values[again] - first.values[at]
    noise = SCALE * mad(np.diff(first.values))
    shift = float(np.median(differences))
    spread = float(np.median(np.abs(differences)))
    error = 3 * noise / math.sqrt(len(common))
    limit = max(error, _LEAST_SHIFT * abs(float(np.median(first.values[at]))))
    outcome: Outcome = "inconclusive"
    if spread <= 0.1 * noise or spread == 0:
        outcome = "exact"
    elif abs(shift) > limit:
        outcome = "shifted"
    elif spread <= 2 * noise and abs(shift) <= error:
        outcome = "consistent"
    return Replay(outcome=outcome, points=len(common), shift=shift, noise=noise, limit=limit)


def find_wrong_restore(before: Points, after: Points) -> list[Finding]:
    """Find that an attempt's replayed losses are not those of the attempt before."""
    replay = compare_losses(before, after)
    if replay.outcome != "shifted":
        return []
    return [
        _finding(
            after,
            "restore_differs",
            "the median difference of replayed losses is over 3 standard errors and over 0.5 %",
            {"replay": replay.outcome, **msgspec.to_builtins(replay)},
        )
    ]


def find_other_learning_rate(before: Points, after: Points) -> list[Finding]:
    """Find that the learning rate at equal steps is another than before."""
    first, second = before.finite(), after.finite()
    common, at, again = np.intersect1d(first.iterations, second.iterations, return_indices=True)
    if not len(common):
        return []
    old, new = first.values[at], second.values[again]
    differs = np.abs(new - old) > _RATE_DIFFERENCE * np.maximum(np.abs(old), 1e-300)
    if np.mean(differs) < 0.5:
        return []
    place = int(np.argmax(differs))
    return [
        _finding(
            after,
            "learning_rate_differs",
            "the learning rate of most equal steps differs by more than 0.1 %",
            {"before": float(old[place]), "after": float(new[place]), "points": len(common)},
        )
    ]


def find_other_samples(before: Points, after: Points) -> list[Finding]:
    """Find that the samples consumed up to equal steps are others than before: some were left out or come again."""
    first, second = before.finite(), after.finite()
    common, at, again = np.intersect1d(first.iterations, second.iterations, return_indices=True)
    if not len(common):
        return []
    differences = second.values[again] - first.values[at]
    if np.mean(differences != 0) < 0.5:
        return []
    place = int(np.argmax(differences != 0))
    figures = {"before": float(first.values[at][place]), "after": float(second.values[again][place])}
    rule = "the number of samples consumed up to most equal steps is another than before"
    return [_finding(after, "samples_differ", rule, {**figures, "points": len(common)})]


def find_repeated_data(before: Points, after: Points) -> list[Finding]:
    """Find that the losses of an attempt follow those of the one before at other steps: the same data, again."""
    old, new = _residuals(before.finite().values), _residuals(after.finite().values)[: _REPEATED_POINTS * 4]
    if len(old) < _REPEATED_POINTS or len(new) < _REPEATED_POINTS:
        return []
    first = before.finite()
    begin = int(np.searchsorted(first.iterations, after.finite().iterations[0]))
    best, best_lag = 0.0, 0
    for lag in range(-_MOST_LAG, _MOST_LAG + 1):
        start = begin + lag
        if lag == 0 or start < 0:
            continue
        part = old[start : start + len(new)]
        if len(part) < _REPEATED_POINTS:
            continue
        correlation = _correlation(part, new[: len(part)])
        if correlation > best:
            best, best_lag = correlation, lag
    if best <= _REPEATED_CORRELATION:
        return []
    details = {"correlation": best, "steps_apart": best_lag}
    rule = "losses without their trend correlate over 0.8 with those of other steps of the attempt before"
    return [_finding(after, "data_repeated", rule, details)]


def _residuals(values: Floats) -> Floats:
    """The values without their trend: differences from step to step."""
    return np.diff(values)


def _correlation(first: Floats, second: Floats) -> float:
    one, other = first - first.mean(), second - second.mean()
    size = float(np.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / size if size > 0 else 0.0


def _finding(after: Points, kind: str, rule: str, details: Mapping[str, object]) -> Finding:
    return Finding(
        type=kind, iteration=int(after.iterations[0]), time=float(after.times[0]), rule=rule, details={**details}
    )
