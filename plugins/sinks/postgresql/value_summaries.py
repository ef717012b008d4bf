"""Summaries of the values of a metric of a stream: the lowest and the highest that is a number, and the last. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .layouts import Layout, layouts_of

_LOWEST = -(2**63)


@dataclass(slots=True)
class ValueSummary:
    """The figures of some values; times are microseconds since the epoch. None where no value is a number.

    The last value, which may be NaN, is that of the highest iteration, and of one iteration that of the highest time.
    """

    lowest: float | None = None
    highest: float | None = None
    last: float | None = None
    last_us: int = _LOWEST
    last_iteration: int = _LOWEST

    def include(self, values: Sequence[float], time_us: int, iteration: int, last: float) -> None:
        """Add the values of points, at least one, of which `last` is the last; it has this time and iteration."""
        if (iteration, time_us) >= (self.last_iteration, self.last_us):
            self.last, self.last_us, self.last_iteration = float(last), time_us, iteration
        if len(values) == 1:
            lowest = highest = float(last)
            if last != last:
                return
        else:
            if sum(values) != sum(values):  # a NaN, or infinities of both signs
                values = [value for value in values if value == value]
                if not values:
                    return
            lowest, highest = float(min(values)), float(max(values))
        self._widen(lowest, highest)

    def include_many(self, lowest: float, highest: float, time_us: int, iteration: int, last: float) -> None:
        """Add the extremes of many values, NaN if none is a number, and the last of them."""
        if (iteration, time_us) >= (self.last_iteration, self.last_us):
            self.last, self.last_us, self.last_iteration = float(last), time_us, iteration
        if lowest == lowest:
            self._widen(lowest, highest)

    def _widen(self, lowest: float, highest: float) -> None:
        self.lowest = lowest if self.lowest is None or lowest < self.lowest else self.lowest
        self.highest = highest if self.highest is None or highest > self.highest else self.highest


def summarize_rows(
    summaries: dict[str, ValueSummary],
    rows: Sequence[Mapping[str, float]],
    times_us: Sequence[int],
    iterations: Sequence[int],
    layouts: Sequence[Layout] | None = None,
) -> dict[str, int]:
    """Add the values of rows to the summaries of their metrics; how many points each metric has.

    `layouts` are those of the rows, where they are known already.
    """
    points: dict[str, int] = {}
    for names, places, table in layouts_of(rows) if layouts is None else layouts:
        last = places[0]
        if len(places) > 1:
            *_, last = max((iterations[place], times_us[place], place) for place in places)
        if table is not None:
            if np.isnan(table).any():  # one that signals (Prometheus' stale marker) would hide numbers
                table = np.where(np.isnan(table), np.nan, table)
            ends = zip(np.fmin.reduce(table).tolist(), np.fmax.reduce(table).tolist(), strict=True)
            for name, (lowest, highest), last_value in zip(names, ends, rows[last].values(), strict=True):
                wide = summaries.setdefault(name, ValueSummary())
                wide.include_many(lowest, highest, times_us[last], iterations[last], last_value)
                points[name] = points.get(name, 0) + len(places)
            continue
        columns = zip(*[rows[place].values() for place in places], strict=True)
        for name, values, last_value in zip(names, columns, rows[last].values(), strict=True):
            summary = summaries.get(name)
            if summary is None:
                summary = summaries[name] = ValueSummary()
            summary.include(values, times_us[last], iterations[last], last_value)
            points[name] = points.get(name, 0) + len(places)
    return points
