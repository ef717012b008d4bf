"""Signs before a loss that is no number: loss scales that fall, steps that are skipped, odd learning rates."""

from __future__ import annotations

from collections import deque

import numpy as np

from .finding import Finding, Points
from .loss import WARM_UP_POINTS, WARM_UP_STEPS

_HALVINGS, _HALVING_STEPS = 3, 100
_SKIPPED_SHARE, _SKIPPED_STEPS = 0.05, 200
_RATE_JUMP = 2.0
_CLIP_POINTS, _HEALTHY_SHARE, _CLIPPED_SHARE = 300, 0.005, 0.05


def find_falling_scale(scale: Points) -> list[Finding]:
    """Find the first place where the loss scale was halved three times within a hundred steps."""
    clean = _settled(scale.finite())
    halved: deque[int] = deque(maxlen=_HALVINGS)
    pairs = zip(clean.values.tolist(), clean.values[1:].tolist(), clean.iterations[1:].tolist(), strict=False)
    for index, (before, now, iteration) in enumerate(pairs):
        if not 0 < now <= before / 2:
            continue
        halved.append(iteration)
        if len(halved) == _HALVINGS and iteration - halved[0] <= _HALVING_STEPS:
            return [
                Finding(
                    type="nan_precursor",
                    iteration=iteration,
                    time=float(clean.times[index + 1]),
                    rule="the loss scale was halved three times within a hundred steps",
                    details={"loss_scale": now, "iterations": [*halved]},
                )
            ]
    return []


def find_skipped_steps(skipped: Points) -> list[Finding]:
    """Find the first place where over 5 % of 200 steps were skipped; a point counts the steps skipped up to it."""
    clean = _settled(skipped.finite())
    if len(clean) < 2:
        return []
    sums = np.concatenate([[0.0], np.cumsum(np.clip(clean.values, 0, None))])
    begins = np.searchsorted(clean.iterations, clean.iterations - _SKIPPED_STEPS, side="right")
    within = sums[1:] - sums[begins]
    passed = clean.iterations - clean.iterations[0] >= _SKIPPED_STEPS
    found = np.flatnonzero((within > _SKIPPED_SHARE * _SKIPPED_STEPS) & passed)
    if not len(found):
        return []
    at = int(found[0])
    return [
        Finding(
            type="nan_precursor",
            iteration=int(clean.iterations[at]),
            time=float(clean.times[at]),
            rule="over 5 % of the last 200 steps were skipped",
            details={"skipped": float(within[at])},
        )
    ]


def find_odd_learning_rate(rate: Points) -> list[Finding]:
    """Find a learning rate that is no number, below zero, or that more than doubles after the warm-up; the first."""
    settled = _settled(rate)
    values = settled.values
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        jumps = np.concatenate([[1.0], values[1:] / values[:-1]]) if len(values) else values
    reasons = (
        ("is no finite number", ~np.isfinite(values)),
        ("is below zero", values < 0),
        ("more than doubled behind the warm-up", (jumps > _RATE_JUMP) & np.isfinite(jumps)),
    )
    first = [(int(np.argmax(odd)), reason) for reason, odd in reasons if odd.any()]
    if not first:
        return []
    at, reason = min(first)
    return [
        Finding(
            type="learning_rate_odd",
            iteration=int(settled.iterations[at]),
            time=float(settled.times[at]),
            rule=f"the learning rate {reason}",
            details={"before": float(values[at - 1]) if at else None, "after": str(float(values[at]))},
        )
    ]


def find_clipping(grad_norm: Points, clip: float | None) -> list[Finding]:
    """Find that over 5 % of 300 gradient norms are above the clip value in a run that had 0.5 % at most before.

    Many runs clip most of their steps from the beginning and train well: only the change says something.
    """
    clean = _settled(grad_norm.finite())
    if clip is None or clip <= 0 or len(clean) < 2 * _CLIP_POINTS:
        return []
    sums = np.concatenate([[0], np.cumsum(clean.values > clip)])
    shares = (sums[_CLIP_POINTS:] - sums[:-_CLIP_POINTS]) / _CLIP_POINTS
    healthy = np.flatnonzero(shares <= _HEALTHY_SHARE)
    if not len(healthy):
        return []
    late = np.flatnonzero(shares[healthy[0] :] > _CLIPPED_SHARE)
    if not len(late):
        return []
    at = int(healthy[0] + late[0])
    last = at + _CLIP_POINTS - 1
    return [
        Finding(
            type="clipping",
            iteration=int(clean.iterations[last]),
            time=float(clean.times[last]),
            rule="over 5 % of 300 gradient norms are above the clip value, 0.5 % at most before",
            details={"share": float(shares[at]), "clip_value": clip},
        )
    ]


def _settled(points: Points) -> Points:
    """The points after the warm-up."""
    late = np.flatnonzero(points.iterations >= WARM_UP_STEPS)
    begin = max(int(late[0]) if len(late) else len(points), WARM_UP_POINTS)
    return Points(points.iterations[begin:], points.times[begin:], points.values[begin:])
