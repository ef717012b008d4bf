"""Points of one metric as columns of numpy arrays. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Series(NamedTuple):
    """Points as columns of one length; times are microseconds since the epoch.

    `streams`: the place of each point's stream in the list that was asked for. `weights`: how many points each stands
    for, so that a block's extremes count as much as the rows that they were chosen from.
    """

    steps: Integers
    iterations: Integers
    times: Integers
    values: Doubles
    streams: Integers
    weights: Doubles

    @staticmethod
    def from_rows(rows: Iterable[Integers], values: Doubles, stream: int) -> Series:
        """Points of one stream: steps, iterations and times, and the values beside them."""
        steps, iterations, times = rows
        return Series(steps, iterations, times, values, np.full(values.size, stream), np.ones(values.size))

    @property
    def size(self) -> int:
        """Return the number of points."""
        return self.values.size

    def select(self, which: Any) -> Series:
        """The points at these positions; a slice or a mask will do, too."""
        return Series._make(column[which] for column in self)

    def between(self, start_us: int, end_us: int, low: int, high: int) -> Series:
        """The points in a range of times and in one of iterations, both ends included."""
        is_in = (self.times >= start_us) & (self.times <= end_us) & (self.iterations >= low) & (self.iterations <= high)
        return self if is_in.all() else self.select(is_in)

    def by_step(self) -> Series:
        """Points of one stream in the order of their steps."""
        # Compared, not subtracted: the difference of two steps may have more than 64 bits.
        return self if (self.steps[1:] > self.steps[:-1]).all() else self.select(np.argsort(self.steps))

    def ordered(self, groups: Integers, sides: Integers) -> Series:
        """The points in the order group, iteration, time, side, step."""
        if (np.diff(groups) == 0).all() and (self.iterations[1:] > self.iterations[:-1]).all():
            return self
        return self.select(np.lexsort((self.steps, sides, self.times, self.iterations, groups)))


def concatenated(pieces: Iterable[Series]) -> Series:
    """All pieces one after the other."""
    found = list(pieces)
    if not found:
        nothing = np.empty(0, np.int64)
        return Series(nothing, nothing, nothing, np.empty(0), nothing, np.empty(0))
    return found[0] if len(found) == 1 else Series._make(map(np.concatenate, zip(*found, strict=True)))


def extremes(values: Doubles, starts: Integers) -> Integers:
    """Positions of the lowest, the highest and the first NaN of each part of values, ascending.

    `starts`: where the parts begin, ascending from 0; none of them is empty.
    """
    lengths = np.diff(starts, append=values.size)
    parts = np.repeat(np.arange(starts.size), lengths)
    is_extreme = np.zeros(values.size, np.bool_)
    is_extreme[_first_of_parts(np.isnan(values), parts)] = True
    for bound in (np.fmin, np.fmax):
        is_extreme[_first_of_parts(values == np.repeat(bound.reduceat(values, starts), lengths), parts)] = True
    return np.flatnonzero(is_extreme)


def _first_of_parts(is_wanted: Mask, parts: Integers) -> Integers:
    """The first wanted position of each part that has one."""
    positions = np.flatnonzero(is_wanted)
    return positions[np.diff(parts[positions], prepend=-1) > 0]


def total_of(values: Doubles) -> float:
    """The sum of the values that are numbers; NaN where infinities of both signs are among them."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(values[~np.isnan(values)].sum(dtype=np.longdouble))
