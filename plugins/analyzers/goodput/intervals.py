"""Divides the time between the rows of one attempt: the usual time of the steps, and the excess by its reasons."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .series import MICRO, Floats, Life, clamp, micros

JITTER = 0.10
DRIFT = 0.02
STALL_SECONDS = 60.0
STALL_FACTOR = 3.0
_PERIODIC_TIMES = 3
_PERIODIC_SHARE = 2 / 3


@dataclass
class Divided:
    """The intervals of an attempt: productive and slow time of each, and what the excesses were."""

    productive: Floats
    slow: float = 0.0
    buckets: Counter[str] = field(default_factory=Counter)
    unnamed: list[tuple[int, float, str]] = field(default_factory=list)


def stall_limit(usual: float) -> float:
    """The microseconds of silence, beyond the usual ones, that are a stall."""
    return max(STALL_SECONDS * MICRO, STALL_FACTOR * usual)


def divide(life: Life, base: Floats | None, best: float | None, origin: int, *, has_phases: bool) -> Divided:
    """Give each interval's time away; without a base all of it is productive."""
    took = np.diff(life.times).astype(np.float64)
    if base is None or best is None:
        return Divided(took)
    base = base[: len(took)]
    usual = np.diff(life.steps) * base
    over = took - usual
    exceeds = over > JITTER * usual
    core = np.where(exceeds, usual, took)
    productive = core.copy()
    if not has_phases:
        drifted = base > (1 + DRIFT) * best
        productive[drifted] = core[drifted] * best / base[drifted]
    divided = Divided(productive, slow=float((core - productive).sum()))
    saves = [clamp(span, life, origin) for span in life.facts.saves]
    runs = [clamp(span, life, origin) for span in life.facts.evaluations if not span.marker]
    marks = [clamp(span, life, origin)[0] for span in life.facts.evaluations if span.marker]
    stalls = [micros(moment) - origin for moment in life.facts.stalls]
    data = _data_excess(life)
    for index in np.flatnonzero(exceeds):
        begin, end = int(life.times[index]), int(life.times[index + 1])
        step, left = int(life.steps[index]), float(over[index])
        left -= _book(divided.buckets, "checkpoint", left, overlap(saves, begin, end))
        left -= _book(divided.buckets, "evaluation", left, overlap(runs, begin, end))
        if step in life.rewritten or any(begin <= mark < end for mark in marks):
            left -= _book(divided.buckets, "evaluation", left, left)
        left -= _book(divided.buckets, "data", left, data.get(int(life.steps[index + 1]), 0.0))
        if left <= 0:
            continue
        if left > stall_limit(float(usual[index])) or any(begin < moment <= end for moment in stalls):
            divided.unnamed.append((step, left, "stalled"))
        elif has_phases:
            divided.productive[index] += left
        else:
            divided.unnamed.append((step, left, "slow"))
    return divided


def overlap(spans: Iterable[tuple[int, int]], begin: int, end: int) -> float:
    """Return how long the spans cover an interval together; overlapping moments count once."""
    covered, reached = 0, begin
    for start, stop in sorted(spans):
        start, stop = max(start, reached), min(stop, end)
        if stop > start:
            covered += stop - start
            reached = stop
    return float(covered)


def name_periodic(divided: Sequence[Divided], every: int) -> bool:
    """Book the unnamed excesses, as `periodic` where they come each K steps; whether any did."""
    steps = {step for one in divided for step, _, _ in one.unnamed}
    periodic = _periodic(steps, every)
    for one in divided:
        for step, left, bucket in one.unnamed:
            one.buckets["periodic" if step in periodic else bucket] += left  # type: ignore[assignment]
    return bool(periodic)


def _periodic(steps: set[int], every: int) -> set[int]:
    """The steps that are one class of some K: at least three, and most of those that there could be."""
    found: set[int] = set()
    left = sorted(steps)
    while len(left) >= _PERIODIC_TIMES:
        gaps = Counter(later - earlier for earlier, later in itertools.pairwise(left))
        gaps.update(later - earlier for earlier, later in zip(left, left[2:], strict=False))
        best: list[int] = []
        for period, _ in gaps.most_common(8):
            if period < 2 * every:  # slow steps in a row are no pause that comes again
                continue
            residue, count = Counter(step % period for step in left).most_common(1)[0]
            members = [step for step in left if step % period == residue]
            possible = (members[-1] - members[0]) // period + 1
            if count >= _PERIODIC_TIMES and count >= _PERIODIC_SHARE * possible and count > len(best):
                best = members
        if not best:
            break
        found.update(best)
        left = [step for step in left if step not in found]
    return found


def _book(buckets: Counter[str], bucket: str, left: float, wanted: float) -> float:
    booked = min(left, wanted)
    if booked > 0:
        buckets[bucket] += booked  # type: ignore[assignment]
    return booked


def _data_excess(life: Life) -> dict[int, float]:
    """For each row the logged wait for data above its own median, in microseconds."""
    if not life.facts.data:
        return {}
    usual = float(np.median([wait.seconds for wait in life.facts.data]))
    return {wait.step: max(0.0, wait.seconds - usual) * MICRO for wait in life.facts.data}
