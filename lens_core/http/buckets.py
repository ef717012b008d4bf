"""Buckets of a curve, and its moving average, computed over all of its points. Pure, no I/O.

The moving average is the exponential one without a bias at its start, as TensorBoard and W&B draw it:
`m ← w·m + (1 − w)·v`, shown as `m / (1 − wⁿ)` after n steps. One step is one iteration: ranks that logged the same one
are averaged first. A value that is not finite makes no step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]

# Percentiles need all values at once; of a curve with more than so many none are given.
MOST_PERCENTILE_POINTS = 5_000_000
_FEWEST = 3


class Buckets(NamedTuple):
    """Columns of one length: `iterations`, `times` and `lasts` are those of the last point of each bucket.

    `steps` is how many iterations a bucket has, `counts` how many points, of which `finite` are finite.
    `means`, `lowest` and `highest` are of the finite values; without any they mean nothing. `smoothed` is the moving
    average at the end of the bucket, NaN where there is none yet.
    """

    numbers: Integers
    iterations: Integers
    times: Integers
    steps: Integers
    counts: Integers
    finite: Integers
    means: Doubles
    lowest: Doubles
    highest: Doubles
    lasts: Doubles
    smoothed: Doubles


class MovingAverage:
    """The state of a moving average: its weight, its mean with the bias, and its number of steps."""

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.mean = 0.0
        self.steps = 0
        self._low, self._high = math.inf, -math.inf

    def smooth_steps(self, values: Doubles) -> Doubles:
        """Take one step for each value, all of them finite, and return what is shown after each."""
        if not values.size:
            return values
        mean, weight, reach = (1 - self.weight) * values, self.weight, 1
        mean[0] += self.weight * self.mean
        # Each pass doubles how many values before it an element has summed up, until their weight is nothing.
        while reach < mean.size and weight > 0.0:
            mean[reach:] += weight * mean[:-reach]
            weight, reach = weight * weight, 2 * reach
        self.mean = float(mean[-1])
        steps = self.steps + np.arange(1, values.size + 1)
        self.steps += values.size
        shown = mean / -np.expm1(steps * math.log(self.weight)) if self.weight > 0 else mean
        # Rounding must not lead out of what was seen: a constant stays the constant that it is.
        low = np.minimum.accumulate(np.minimum(values, self._low))
        high = np.maximum.accumulate(np.maximum(values, self._high))
        self._low, self._high = float(low[-1]), float(high[-1])
        return np.clip(shown, low, high)


class CurveBuckets:
    """Gathers the points of one curve, in the order of its iterations, into at most `most` buckets.

    The first and the last iteration are buckets of their own. The others hold equally many iterations: one, until there
    are too many buckets, then twice as many; the points of one iteration are never parted. Points before `start_ms`
    count for the moving average only.
    """

    def __init__(self, most: int, average: MovingAverage | None, start_ms: int | None = None) -> None:
        self._average = average
        self._start_ms = start_ms
        self._most = max(_FEWEST, most)
        self._size = 1
        self._seen = 0
        self._found = _merge_rows([])
        self._held: tuple[Integers, Integers, Doubles] | None = None
        self._values: list[Doubles] = []
        self._finite = 0

    def append_to_curve(self, iterations: Integers, times: Integers, values: Doubles) -> None:
        """Add points; those of the last iteration are held back, because more of it may follow."""
        if not values.size:
            return
        if self._held is not None:
            held = self._held
            iterations, times = np.concatenate([held[0], iterations]), np.concatenate([held[1], times])
            values = np.concatenate([held[2], values])
        cut = int(np.searchsorted(iterations, iterations[-1]))
        self._held = iterations[cut:], times[cut:], values[cut:]
        if cut:
            self._gather(self._rows_of(iterations[:cut], times[:cut], values[:cut]))

    def buckets(self) -> Buckets:
        """End the curve."""
        if self._held is not None:
            points = self._rows_of(*self._held)
            self._held = None
            before = self._found.numbers
            number = before[-1] + 1 if before.size else 0
            self._found = _merge_rows([self._found, points._replace(numbers=np.full_like(points.numbers, number))])
        return self._found

    def figures(self) -> dict[str, Any]:
        """The figures of the whole curve: how many points, how many of them not finite, extremes and percentiles."""
        found = self._found
        finite = found.finite > 0
        described: dict[str, Any] = {
            "count": int(found.counts.sum()),
            "not_finite": int(found.counts.sum() - found.finite.sum()),
            "min": float(found.lowest[finite].min()) if finite.any() else None,
            "max": float(found.highest[finite].max()) if finite.any() else None,
            "p2": None,
            "p98": None,
        }
        if 0 < self._finite <= MOST_PERCENTILE_POINTS:
            with np.errstate(over="ignore", invalid="ignore"):
                both = np.percentile(np.concatenate(self._values), [2, 98])
            described["p2"], described["p98"] = (float(one) if np.isfinite(one) else None for one in both)
        return described

    def _rows_of(self, iterations: Integers, times: Integers, values: Doubles) -> Buckets:
        """The points as a row each."""
        is_finite = np.isfinite(values)
        smoothed = self._smooth(iterations, values, is_finite)
        if self._start_ms is not None:
            is_late = times >= self._start_ms
            iterations, times, values = iterations[is_late], times[is_late], values[is_late]
            is_finite, smoothed = is_finite[is_late], smoothed[is_late]
        finite = values[is_finite]
        self._finite += finite.size
        if self._finite <= MOST_PERCENTILE_POINTS:
            self._values.append(finite)
        else:
            self._values.clear()
        counts = is_finite.astype(np.int64)
        is_step = _differs_from_before(iterations)
        places = self._seen + np.cumsum(is_step) - 1
        self._seen += int(is_step.sum())
        return Buckets(
            np.where(places == 0, 0, 1 + (places - 1) // self._size),
            iterations,
            times,
            is_step.astype(np.int64),
            np.ones_like(counts),
            counts,
            np.where(is_finite, values, 0.0),
            np.where(is_finite, values, np.inf),
            np.where(is_finite, values, -np.inf),
            values,
            smoothed,
        )

    def _gather(self, points: Buckets) -> None:
        """Add rows to the buckets; where these get too many, two of them become one."""
        found = _merge_rows([self._found, points])
        while found.numbers.size > self._most - 1:
            self._size *= 2
            halved = np.where(found.numbers == 0, 0, 1 + (found.numbers - 1) // 2)
            found = _merge_rows([found._replace(numbers=halved)])
        self._found = found

    def _smooth(self, iterations: Integers, values: Doubles, is_finite: npt.NDArray[np.bool_]) -> Doubles:
        smoothed = np.full(values.size, np.nan)
        if self._average is None or not is_finite.any():
            return smoothed
        kept = np.flatnonzero(is_finite)
        starts = np.flatnonzero(_differs_from_before(iterations[kept]))
        lengths = np.diff(starts, append=kept.size)
        steps = values[kept]
        if starts.size < kept.size:
            steps = np.add.reduceat(steps / np.repeat(lengths, lengths), starts)
        smoothed[kept] = np.repeat(self._average.smooth_steps(steps), lengths)
        return smoothed


def _differs_from_before(numbers: Integers) -> npt.NDArray[np.bool_]:
    """Mark the numbers that differ from the one before them; the first does."""
    return np.append(numbers.size > 0, numbers[1:] != numbers[:-1])[: numbers.size]


def _merge_rows(parts: list[Buckets]) -> Buckets:
    """One row for each bucket; rows of one bucket stand together, in the order of their points."""
    filled = [part for part in parts if part.numbers.size]
    if not filled:
        none, no_values = np.empty(0, np.int64), np.empty(0)
        return Buckets(none, none, none, none, none, none, no_values, no_values, no_values, no_values, no_values)
    every = filled[0] if len(filled) == 1 else Buckets._make(map(np.concatenate, zip(*filled, strict=True)))
    starts = np.flatnonzero(_differs_from_before(every.numbers))
    if starts.size == every.numbers.size:
        return every
    lengths = np.diff(starts, append=every.numbers.size)
    ends = starts + lengths - 1
    finite = np.add.reduceat(every.finite, starts)
    # Shares of the mean, not a sum: that of large values would be infinite.
    shares = every.finite / np.repeat(np.maximum(finite, 1), lengths)
    lowest, highest = np.minimum.reduceat(every.lowest, starts), np.maximum.reduceat(every.highest, starts)
    means = np.add.reduceat(every.means * shares, starts)
    # The moving average of the last row that has one.
    places = np.where(np.isnan(every.smoothed), -1, np.arange(every.smoothed.size))
    newest = np.maximum.reduceat(places, starts)
    return Buckets(
        every.numbers[starts],
        every.iterations[ends],
        every.times[ends],
        np.add.reduceat(every.steps, starts),
        np.add.reduceat(every.counts, starts),
        finite,
        np.where(finite > 0, np.clip(means, lowest, highest), 0.0),
        lowest,
        highest,
        every.lasts[ends],
        np.where(newest >= 0, every.smoothed[newest], np.nan),
    )
