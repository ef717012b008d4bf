"""Divides the time between the rows of one attempt: the usual time of the steps, and the excess by its reasons."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from .facts import Floats, Ints
from .rows import MICRO, waits_of
from .series import Life, clamp, micros

JITTER = 0.10
DRIFT = 0.02
STALL_SECONDS = 60.0
STALL_FACTOR = 3.0
_PERIODIC_TIMES = 3
_PERIODIC_SHARE = 2 / 3
_PERIODIC_CLASSES = 16
_LIKE_FACTOR = 4.0
Bools = npt.NDArray[np.bool_]
_NO_STEPS: Ints = np.empty(0, dtype=np.int64)
_NO_TIMES: Floats = np.empty(0)
_NO_STALLS: Bools = np.empty(0, dtype=bool)


@dataclass
class Divided:
    """The intervals of an attempt: productive and slow time of each, and what the excesses were.

    `named` has the excesses that are booked already: bucket, intervals, amounts. `unnamed` has the steps before pauses
    that nobody explained, how long they were, and whether they are stalls; `unnamed_at` has their intervals.
    """

    productive: Floats
    slow: Floats
    named: list[tuple[str, Ints, Floats]] = field(default_factory=list)
    unnamed: tuple[Ints, Floats, Bools] = (_NO_STEPS, _NO_TIMES, _NO_STALLS)
    unnamed_at: Ints = field(default_factory=lambda: _NO_STEPS)

    @property
    def buckets(self) -> Counter[str]:
        """Return the sums of what is booked."""
        sums: Counter[str] = Counter()
        for bucket, _, amounts in self.named:
            sums[bucket] += float(amounts.sum())  # type: ignore[assignment]
        return sums


def stall_limit(usual: float) -> float:
    """The microseconds of silence, beyond the usual ones, that are a stall."""
    return max(STALL_SECONDS * MICRO, STALL_FACTOR * usual)


def divide(life: Life, base: Floats | None, best: Floats, origin: int, *, has_phases: bool) -> Divided:
    """Give each interval's time away; without a base all of it is productive. `best` is the best pace for each."""
    took = np.diff(life.times).astype(np.float64)
    if base is None:
        return Divided(took, np.zeros(len(took)))
    base = base[: len(took)]
    usual = np.diff(life.steps) * base
    over = took - usual
    exceeds = over > JITTER * usual
    core = np.where(exceeds, usual, took)
    productive = core.copy()
    if not has_phases:
        drifted = base > (1 + DRIFT) * best
        productive[drifted] = core[drifted] * best[drifted] / base[drifted]
    divided = Divided(productive, core - productive)
    where = np.flatnonzero(exceeds)
    _name_excesses(divided, _Excesses(life, where, over[where], usual[where]), origin, has_phases=has_phases)
    return divided


@dataclass
class _Excesses:
    """The time over the usual one of the intervals that exceed it; what is explained is subtracted."""

    life: Life
    where: Ints
    left: Floats
    usual: Floats

    @property
    def begins(self) -> Ints:
        """The moments at which the intervals begin."""
        return self.life.times[self.where]

    @property
    def ends(self) -> Ints:
        """The moments at which the intervals end."""
        return self.life.times[self.where + 1]

    def explain(self, divided: Divided, bucket: str, wanted: Floats) -> None:
        """Book as much of the wanted time as is left in each interval."""
        booked = np.clip(np.minimum(self.left, wanted), 0.0, None)
        self.left = self.left - booked
        some = booked > 0
        if some.any():
            divided.named.append((bucket, self.where[some], booked[some]))


def _name_excesses(divided: Divided, excesses: _Excesses, origin: int, *, has_phases: bool) -> None:
    """Give the excesses away in the order of the rules."""
    life, begins, ends = excesses.life, excesses.begins, excesses.ends
    saves = [clamp(span, life, origin) for span in life.facts.saves]
    runs = [clamp(span, life, origin) for span in life.facts.evaluations if not span.marker]
    marks = [clamp(span, life, origin)[0] for span in life.facts.evaluations if span.marker]
    excesses.explain(divided, "checkpoint", overlaps(saves, begins, ends))
    excesses.explain(divided, "evaluation", overlaps(runs, begins, ends))
    steps = life.steps[excesses.where]
    is_marked = _holds(marks, begins, ends, side="left") | np.isin(steps, np.array([*life.rewritten], dtype=np.int64))
    excesses.explain(divided, "evaluation", np.where(is_marked, excesses.left, 0.0))
    excesses.explain(divided, "data", _data_excess(life, life.steps[excesses.where + 1]))
    stalls = [micros(moment) - origin for moment in life.facts.stalls]
    limit = np.maximum(STALL_SECONDS * MICRO, STALL_FACTOR * excesses.usual)
    is_stall = (excesses.left > limit) | _holds(stalls, begins, ends, side="right")
    unnamed = excesses.left > 0
    if has_phases:
        varying = unnamed & ~is_stall
        divided.productive[excesses.where[varying]] += excesses.left[varying]
        unnamed &= is_stall
    divided.unnamed = (steps[unnamed], excesses.left[unnamed], is_stall[unnamed])
    divided.unnamed_at = excesses.where[unnamed]


def _holds(moments: Sequence[int], begins: Ints, ends: Ints, *, side: Literal["left", "right"]) -> Bools:
    """Whether a moment lies in an interval; `left`: one at its beginning counts, `right`: one at its end."""
    found = np.array(sorted(moments), dtype=np.int64)
    return np.searchsorted(found, ends, side=side) > np.searchsorted(found, begins, side=side)


def overlaps(spans: Iterable[tuple[int, int]], begins: Ints, ends: Ints) -> Floats:
    """Return for each interval how long the spans cover it together; overlapping moments count once."""
    joined: list[list[int]] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], stop)
        else:
            joined.append([start, stop])
    if not joined:
        return np.zeros(len(begins))
    edges = np.array(joined, dtype=np.int64)
    covered = np.concatenate([[0], np.cumsum(edges[:, 1] - edges[:, 0])])

    def until(moments: Ints) -> Ints:
        index = np.searchsorted(edges[:, 0], moments, side="right")
        inside = np.clip(edges[index - 1, 1] - moments, 0, None)
        return np.where(index > 0, covered[index] - inside, 0)

    return (until(ends) - until(begins)).astype(np.float64)


def overlap(spans: Iterable[tuple[int, int]], begin: int, end: int) -> float:
    """Return how long the spans cover one interval together."""
    return float(overlaps(spans, np.array([begin]), np.array([max(begin, end)]))[0])


def name_periodic(divided: Sequence[Divided], every: int) -> bool:
    """Book the unnamed excesses, as `periodic` where they come each K steps; whether any did.

    Pauses of one reason are about equally long: the longest are looked at first, so that neither a single hang nor many
    steps that are a little slow hide them.
    """
    steps = np.concatenate([_NO_STEPS, *(one.unnamed[0] for one in divided)])
    sizes = np.concatenate([_NO_TIMES, *(one.unnamed[1] for one in divided)])
    levels = np.floor(np.log(np.maximum(sizes, 1.0)) / np.log(_LIKE_FACTOR))
    periodic: set[int] = set()
    for level in sorted(set(levels.tolist()), reverse=True):
        alike = steps[(levels == level) | (levels == level - 1)]
        periodic |= _periodic(set(alike.tolist()) - periodic, every)
    members = np.array(sorted(periodic), dtype=np.int64)
    for one in divided:
        own, left, is_stall = one.unnamed
        is_periodic = np.isin(own, members)
        for bucket, chosen in (
            ("periodic", is_periodic),
            ("stalled", ~is_periodic & is_stall),
            ("slow", ~is_periodic & ~is_stall),
        ):
            if chosen.any():
                one.named.append((bucket, one.unnamed_at[chosen], left[chosen]))
    return bool(periodic)


def _periodic(steps: set[int], every: int) -> set[int]:
    """The steps that are one class of some K: at least three, and most of those that there could be."""
    found: set[int] = set()
    left = sorted(steps)
    for _ in range(_PERIODIC_CLASSES):
        if len(left) < _PERIODIC_TIMES:
            break
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


def _data_excess(life: Life, steps: Ints) -> Floats:
    """For each of the steps the logged wait for data above its own median, in microseconds."""
    known, seconds = waits_of(life.facts)
    if not len(known):
        return np.zeros(len(steps))
    place = np.minimum(np.searchsorted(known, steps), len(known) - 1)
    excess = np.clip(seconds[place] - np.median(seconds), 0.0, None) * MICRO
    return np.where(known[place] == steps, excess, 0.0)
