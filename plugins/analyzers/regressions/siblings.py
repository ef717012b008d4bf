"""Compares a job with its siblings: jobs of its name up to digits, of equal target, batch and world size."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from .finding import SCALE, Finding, Floats, Ints, Points

LEAST_SIBLINGS = 3
MOST_SIBLINGS = 8
_OUTSIDE_POINTS = 50
_LEAST_BAND = 0.01


class Sibling(msgspec.Struct, frozen=True, kw_only=True):
    """One job as siblings see it; None and 0 stand for what nobody said. `pace` is seconds per step by iteration."""

    uid: str
    loss: Points
    pace: Points
    target: int | None = None
    batch: float = 0.0
    world_size: int | None = None


def stem_of(name: str) -> str:
    """The name without its digits, by which siblings are found; '' where too little is left to go by."""
    stem = re.sub(r"\d+", "#", name)
    return stem if len(stem.replace("#", "")) >= 3 else ""


def are_comparable(own: Sibling, other: Sibling) -> bool:
    """Whether target, batch and world size are equal as far as both are known."""
    pairs = ((own.target, other.target), (own.batch, other.batch), (own.world_size, other.world_size))
    return all(not first or not second or first == second for first, second in pairs)


def compare_siblings(own: Sibling, others: Sequence[Sibling]) -> list[Finding]:
    """Find where a job leaves the band of at least three siblings for 50 logged points; nothing with fewer."""
    chosen = [other for other in others if other.uid != own.uid and are_comparable(own, other)]
    if len(chosen) < LEAST_SIBLINGS:
        return []
    found = _find_outside(own.loss.finite(), [one.loss.finite() for one in chosen], "loss_off", both_sides=True)
    return found + _find_outside(own.pace, [one.pace for one in chosen], "slower_than_siblings", both_sides=False)


def best_pace(own: Sibling, others: Sequence[Sibling]) -> float | None:
    """The lowest median of the seconds per step of comparable siblings; None where there are fewer than three."""
    chosen = [other for other in others if other.uid != own.uid and are_comparable(own, other)]
    paces = [float(np.median(other.pace.values)) for other in chosen if len(other.pace)]
    return min(paces) if len(paces) >= LEAST_SIBLINGS else None


def _find_outside(own: Points, others: Sequence[Points], kind: str, *, both_sides: bool) -> list[Finding]:
    iterations = own.iterations
    values = np.array([_at(other, iterations) for other in others]) if len(others) else np.empty((0, len(iterations)))
    known = np.isfinite(values).sum(axis=0) >= LEAST_SIBLINGS if len(values) else np.zeros(len(iterations), dtype=bool)
    if known.sum() < _OUTSIDE_POINTS:
        return []
    place = np.flatnonzero(known)
    centre = np.nanmedian(values[:, place], axis=0)
    spread = SCALE * np.nanmedian(np.abs(values[:, place] - centre), axis=0)
    band = np.maximum(3 * spread, _LEAST_BAND * np.abs(centre))
    above = own.values[place] - centre
    outside = (np.abs(above) if both_sides else above) > band
    runs = np.convolve(outside, np.ones(_OUTSIDE_POINTS), mode="valid") >= _OUTSIDE_POINTS - 0.5
    if not runs.any():
        return []
    begin = int(np.argmax(runs))
    at = begin + _OUTSIDE_POINTS - 1
    return [
        Finding(
            type=kind,
            iteration=int(iterations[place[at]]),
            time=float(own.times[place[at]]),
            rule="outside the siblings' median ± 3 spreads (at least 1 %) for 50 logged points",
            details={
                "value": float(own.values[place[at]]),
                "siblings_median": float(centre[at]),
                "band": float(band[at]),
                "siblings": len(others),
                "since_iteration": int(iterations[place[begin]]),
            },
        )
    ]


def _at(other: Points, iterations: Ints) -> Floats:
    """The values of a sibling at these iterations, between its points in a straight line; NaN outside of them."""
    if len(other) < 2:
        return np.full(len(iterations), np.nan)
    found: Floats = np.interp(iterations, other.iterations, other.values, left=np.nan, right=np.nan)
    return found
