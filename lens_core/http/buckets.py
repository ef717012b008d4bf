"""Buckets of a curve, and its moving average, computed over all of its points. Pure, no I/O.

The moving average is the exponential one without a bias at its start, as TensorBoard and W&B draw it:
`m ← w·m + (1 − w)·v`, shown as `m / (1 − wⁿ)` after n steps. One step is one iteration: ranks that logged the same one
are averaged first. A value that is not finite makes no step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]

# Percentiles need all values at once; of a curve with more than so many none are given.
MOST_PERCENTILE_POINTS = 5_000_000
_FEWEST = 3
_FEW_VALUES, _SAMPLE_VALUES = 20_000, 4_000
_LARGEST = float(np.finfo(np.float64).max)
# The sums of shares of values below it do not leave what a number can hold, whatever their rounding.
_LARGE = _LARGEST / 4


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


_NO_NUMBERS, _NO_VALUES = np.empty(0, np.int64), np.empty(0)
_NONE = Buckets._make([*[_NO_NUMBERS] * 6, *[_NO_VALUES] * 5])


class Points(NamedTuple):
    """Points of one curve as columns."""

    iterations: Integers
    times: Integers
    values: Doubles


class Extremes(NamedTuple):
    """Beside means: of how many values each is, how many of these are finite, the lowest and highest finite one."""

    counts: Integers
    finite: Integers
    lowest: Doubles
    highest: Doubles


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
        is_large = max(abs(self.mean), values.max(), -values.min()) > _LARGE
        # Each pass doubles how many values before it an element has summed up, until their weight is nothing.
        while reach < mean.size and weight > 0.0:
            with np.errstate(over="ignore"):
                mean[reach:] += weight * mean[:-reach]
            if is_large:  # rounding would make it infinite for ever
                np.clip(mean, -_LARGEST, _LARGEST, out=mean)
            weight, reach = weight * weight, 2 * reach
        self.mean = float(mean[-1])
        steps = self.steps + np.arange(1, values.size + 1)
        self.steps += values.size
        with np.errstate(over="ignore"):
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

    def __init__(
        self, most: int, average: MovingAverage | None, start_ms: int | None = None, *, percentiles: bool = True
    ) -> None:
        self._has_percentiles = percentiles
        self._average = average
        self._start_ms = start_ms
        self._most = max(_FEWEST, most)
        self._size = 1
        self._seen = 0
        self._found = _NONE
        self._held: tuple[Integers, Integers, Doubles] | None = None
        self._end: Buckets | None = None
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

    def append_summaries(self, means: Points, lasts: Doubles, extremes: Extremes) -> None:
        """Add the whole curve, where each point is the mean of several: `lasts` and `extremes` stand beside it."""
        rows = self._rows_of(*means, is_reduced=False)
        if self._start_ms is not None:
            is_late = means.times >= self._start_ms
            lasts, extremes = lasts[is_late], Extremes._make(column[is_late] for column in extremes)
        has_numbers = extremes.finite > 0
        rows = rows._replace(
            counts=extremes.counts,
            finite=extremes.finite,
            lowest=np.where(has_numbers, extremes.lowest, np.inf),
            highest=np.where(has_numbers, extremes.highest, -np.inf),
            lasts=lasts,
        )
        if lasts.size:
            self._gather(Buckets._make(column[:-1] for column in rows))
            self._end = Buckets._make(column[-1:] for column in rows)

    def append_parts(self, parts: Buckets) -> None:
        """Add parts of the curve, whose numbers are not known; no iteration is in two of them.

        A part is never divided: the bucket that its last iteration belongs to has all of it.
        """
        if self._held is not None:
            self._gather(self._rows_of(*self._held))
            self._held = None
        places = self._seen + np.cumsum(parts.steps) - 1
        self._seen += int(parts.steps.sum())
        has_numbers = parts.finite > 0
        self._gather(
            parts._replace(
                numbers=np.where(places == 0, 0, 1 + (places - 1) // self._size),
                lowest=np.where(has_numbers, parts.lowest, np.inf),
                highest=np.where(has_numbers, parts.highest, -np.inf),
            )
        )

    def buckets(self) -> Buckets:
        """End the curve."""
        if self._held is not None:
            self._end = self._rows_of(*self._held)
            self._held = None
        if self._end is not None:
            points, self._end = self._end, None
            before = self._found.numbers
            number = before[-1] + 1 if before.size else 0
            ended = points._replace(numbers=np.full_like(points.numbers, number))
            self._found = _merge_rows(_stack_rows([self._found, ended]))
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
        if self._has_percentiles and 0 < self._finite <= MOST_PERCENTILE_POINTS:
            values = np.concatenate(self._values)
            for name, share in (("p2", 0.02), ("p98", 0.98)):
                found_value = percentile(values, share)
                described[name] = found_value if math.isfinite(found_value) else None
        return described

    def _rows_of(self, iterations: Integers, times: Integers, values: Doubles, *, is_reduced: bool = True) -> Buckets:
        """The points as a row for each of their buckets, or for each point."""
        is_finite = np.isfinite(values)
        smoothed = self._smooth(iterations, values, is_finite)
        if self._start_ms is not None:
            is_late = times >= self._start_ms
            iterations, times, values = iterations[is_late], times[is_late], values[is_late]
            is_finite, smoothed = is_finite[is_late], smoothed[is_late]
        if not values.size:
            return _NONE
        self._keep_finite(values if is_finite.all() else values[is_finite])
        # First the places at which steps begin, of these those of buckets: without a column of all points.
        first_of_step = np.flatnonzero(_differs_from_before(iterations))
        ends_at = self._seen + first_of_step.size
        numbers = np.arange(self._number_of(self._seen), self._number_of(ends_at - 1) + 1)
        firsts = np.maximum(np.where(numbers == 0, 0, 1 + (numbers - 1) * self._size) - self._seen, 0)
        steps, starts = np.diff(firsts, append=first_of_step.size), first_of_step[firsts]
        if not is_reduced:
            numbers = np.repeat(numbers, np.diff(starts, append=values.size))
            starts = np.arange(values.size)
            steps = np.zeros(values.size, np.int64)
            steps[first_of_step] = 1
        self._seen = ends_at
        counts = np.diff(starts, append=values.size)
        ends = starts + counts - 1
        low = high = filled = values
        finite = counts
        if not is_finite.all():
            finite = np.add.reduceat(is_finite, starts, dtype=np.int64)
            low, high, filled = (np.where(is_finite, values, other) for other in (np.inf, -np.inf, 0.0))
        lowest, highest = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
        means = np.where(finite > 0, np.clip(_means(filled, finite, starts), lowest, highest), 0.0)
        return Buckets(
            numbers,
            iterations[ends],
            times[ends],
            steps,
            counts,
            finite,
            means,
            lowest,
            highest,
            values[ends],
            _last_known(smoothed, starts),
        )

    def _number_of(self, place: int) -> int:
        """The bucket of a step."""
        return 0 if place == 0 else 1 + (place - 1) // self._size

    def _keep_finite(self, values: Doubles) -> None:
        """Keep values for the percentiles, as long as these are not too many."""
        self._finite += values.size
        if not self._has_percentiles:
            return
        if self._finite <= MOST_PERCENTILE_POINTS:
            self._values.append(values)
        else:
            self._values.clear()

    def _gather(self, points: Buckets) -> None:
        """Add rows to the buckets; where these get too many, two of them become one, as often as it takes."""
        every = _stack_rows([self._found, points])
        numbers = every.numbers
        while np.count_nonzero(_differs_from_before(numbers)) > self._most - 1:
            self._size *= 2
            numbers = np.where(numbers == 0, 0, 1 + (numbers - 1) // 2)
        self._found = _merge_rows(every._replace(numbers=numbers))

    def _smooth(self, iterations: Integers, values: Doubles, is_finite: npt.NDArray[np.bool_]) -> Doubles:
        smoothed = np.full(values.size, np.nan)
        if self._average is None or not is_finite.any():
            return smoothed
        kept = np.flatnonzero(is_finite)
        starts = np.flatnonzero(_differs_from_before(iterations[kept]))
        lengths = np.diff(starts, append=kept.size)
        steps = values[kept]
        if starts.size < kept.size:
            low, high = np.minimum.reduceat(steps, starts), np.maximum.reduceat(steps, starts)
            steps = np.clip(_means(steps, lengths, starts), low, high)
        smoothed[kept] = np.repeat(self._average.smooth_steps(steps), lengths)
        return smoothed


def _differs_from_before(numbers: Integers) -> npt.NDArray[np.bool_]:
    """Mark the numbers that differ from the one before them; the first does."""
    return np.append(numbers.size > 0, numbers[1:] != numbers[:-1])[: numbers.size]


def _stack_rows(parts: Sequence[Buckets]) -> Buckets:
    """The rows of all parts, one after the other."""
    filled = [part for part in parts if part.numbers.size]
    if not filled:
        return _NONE
    return filled[0] if len(filled) == 1 else Buckets._make(map(np.concatenate, zip(*filled, strict=True)))


def _merge_rows(every: Buckets) -> Buckets:
    """One row for each bucket; rows of one bucket stand together, in the order of their points."""
    starts = np.flatnonzero(_differs_from_before(every.numbers))
    if starts.size == every.numbers.size:
        return every
    lengths = np.diff(starts, append=every.numbers.size)
    ends = starts + lengths - 1
    finite = np.add.reduceat(every.finite, starts)
    # Shares of the mean, not a sum: that of large values would be infinite.
    shares = every.finite / np.repeat(np.maximum(finite, 1), lengths)
    lowest, highest = np.minimum.reduceat(every.lowest, starts), np.maximum.reduceat(every.highest, starts)
    with np.errstate(over="ignore"):
        means = np.add.reduceat(every.means * shares, starts)
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
        _last_known(every.smoothed, starts),
    )


def _means(values: Doubles, counts: Integers, starts: Integers) -> Doubles:
    """The mean of each part: its sum divided by its count, or where that sum is infinite the sum of the shares."""
    parts = np.maximum(counts, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        means: Doubles = np.add.reduceat(values, starts) / parts
        if not np.isfinite(means).all():
            means = np.add.reduceat(values / np.repeat(parts, np.diff(starts, append=values.size)), starts)
    return means


def _last_known(values: Doubles, starts: Integers) -> Doubles:
    """The last number of each part; NaN for a part without any."""
    is_known = ~np.isnan(values)
    if is_known.all():
        newest = np.append(starts[1:], values.size) - 1
    elif not is_known.any():
        return np.full(starts.size, np.nan)
    else:
        newest = np.maximum.reduceat(np.where(is_known, np.arange(values.size), -1), starts)
    return np.where(newest >= 0, values[newest], np.nan)


def percentile(values: Doubles, share: float) -> float:
    """A percentile of finite values, between its two neighbours where it falls between them.

    Of many values only the tail beyond it is ordered, which a sample finds; where the sample misleads, all of them.
    """
    if share > 0.5:
        return -percentile(-values, 1 - share)
    place = share * (values.size - 1)
    below = int(place)
    if values.size > _FEW_VALUES:
        sample = np.sort(values[:: values.size // _SAMPLE_VALUES])
        bound = sample[min(sample.size - 1, int(2 * share * sample.size))]
        tail = values[np.flatnonzero(values <= bound)]  # twice as fast as by the mask
        values = tail if tail.size > below + 1 else values
    above = min(below + 1, values.size - 1)
    ordered = np.partition(values, [below, above])
    low, high = float(ordered[below]), float(ordered[above])
    part, width = place - below, high - low
    return low + width * part if math.isfinite(width) else low * (1 - part) + high * part
