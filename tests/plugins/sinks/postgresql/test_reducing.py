"""Blocks and reductions by themselves, beside what plain Python makes of the same points."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.aggregating import Aggregator
from lens_plugins.sinks.postgresql.blocks import (
    pack_spaced,
    pack_summary,
    summary_positions,
    unpack_spaced,
    unpack_summaries,
)
from lens_plugins.sinks.postgresql.reducing import reduce_series, shares, thin
from lens_plugins.sinks.postgresql.series import Series, extremes

from lens_core import PointQuery

INTEGERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
SPACED = st.builds(range, st.integers(-99, 99), st.integers(100, 500), st.integers(1, 99)).map(list)


def series_of(values: list[float]) -> Series:
    """Points of one stream, one each step."""
    numbers = np.arange(len(values))
    return Series.from_rows((numbers, numbers, numbers), np.array(values, float), 0)


def same(one: float, other: float) -> bool:
    """Whether two values are the same, NaN too."""
    return one == other or (one != one and other != other)


@given(st.lists(INTEGERS, max_size=40) | SPACED)
def test_spaced_numbers_come_back(numbers: list[int]) -> None:
    packed = pack_spaced(np.array(numbers, np.int64))
    assert unpack_spaced(packed, len(numbers)).tolist() == numbers


@given(st.lists(FLOATS, min_size=1, max_size=60), st.sets(st.integers(1, 59), max_size=10))
def test_extremes_are_those_of_each_part(values: list[float], cuts: set[int]) -> None:
    starts = [0, *sorted(cut for cut in cuts if cut < len(values))]
    found = extremes(np.array(values), np.array(starts)).tolist()
    wanted: set[int] = set()
    for low, high in zip(starts, [*starts[1:], len(values)], strict=True):
        numbers = [position for position in range(low, high) if values[position] == values[position]]
        wanted |= set([position for position in range(low, high) if position not in numbers][:1])
        if numbers:
            wanted |= {min(numbers, key=values.__getitem__), max(numbers, key=values.__getitem__)}
    assert found == sorted(wanted)


@given(st.lists(FLOATS, min_size=1, max_size=300), st.integers(1, 100))
def test_reducing_keeps_ends_and_extremes(values: list[float], size: int) -> None:
    reduced = reduce_series(series_of(values), size)
    steps = reduced.steps.tolist()
    assert len(steps) <= size
    assert steps == sorted(set(steps))
    assert steps[-1] == len(values) - 1
    assert size == 1 or steps[0] == 0
    assert all(same(values[step], value) for step, value in zip(steps, reduced.values.tolist(), strict=True))
    known = [value for value in values if value == value]
    if known and size >= 5:
        assert {min(known), max(known)} <= set(reduced.values.tolist())


@given(st.integers(4, 300), st.sampled_from([-50.0, 50.0, -math.inf, math.inf]), st.data())
def test_of_three_points_one_is_a_spike(count: int, height: float, data: st.DataObject) -> None:
    calm = [1.0 + (position % 7) / 10 for position in range(count)]
    spike = data.draw(st.integers(0, count - 1))
    calm[spike] = height
    assert spike in reduce_series(series_of(calm), 3).steps


@given(st.lists(FLOATS, min_size=1, max_size=600), st.integers(1, 128))
def test_thin_points_stand_for_all(values: list[float], part: int) -> None:
    found = thin(series_of(values), part)
    assert found.weights.sum() == pytest.approx(len(values))
    assert {0, len(values) - 1} <= set(found.steps.tolist())
    known = [value for value in values if value == value]
    if known:
        assert {min(known), max(known)} <= set(found.values.tolist())
    assert np.isnan(found.values).any() == any(map(math.isnan, values))


@given(st.lists(st.lists(FLOATS, min_size=1, max_size=300), max_size=4))
def test_summaries_come_back_one_after_the_other(blocks: list[list[float]]) -> None:
    chosen = [series_of(values).select(summary_positions(np.array(values))) for values in blocks]
    found = unpack_summaries([pack_summary(one) for one in chosen], [len(b) for b in blocks], range(len(blocks)))
    assert found.iterations.tolist() == [step for one in chosen for step in one.iterations.tolist()]
    assert found.streams.tolist() == [number for number, one in enumerate(chosen) for _ in range(one.size)]
    assert found.weights.sum() == pytest.approx(sum(map(len, blocks)))
    for values, one in zip(blocks, chosen, strict=True):
        assert len(values) > 64 or one.size == len(values)


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=300), st.data(), st.integers(1, 2000))
def test_shares_are_never_more_than_there_is(counts: list[int], data: st.DataObject, max_points: int) -> None:
    newest = data.draw(st.integers(0, len(counts) - 1))
    found = shares(counts, newest, max_points)
    assert sum(found) <= max_points
    for least in (1, 2, 4):
        if max(least * len(counts), len(counts) + 1) <= max_points:  # the newest has both ends first
            assert all(share >= min(least, count) for share, count in zip(found, counts, strict=True))
    assert found[newest] >= min(2, max_points, counts[newest])


POINTS = st.lists(st.tuples(st.integers(-5000, 10_000), FLOATS), min_size=1, max_size=60)


@given(st.lists(POINTS, min_size=1, max_size=4))
def test_aggregates_are_those_of_the_points(pieces: list[list[tuple[int, float]]]) -> None:
    inside = defaultdict(list)
    for time, value in (point for piece in pieces for point in piece):
        inside[time // 1000].append((time, value))
    for aggregate in ("mean", "min", "max", "sum", "count", "first", "last"):
        query = PointQuery(workload_uid="w", aggregate=aggregate, interval_ms=1)
        gathered = Aggregator(query, np.array([5]))
        for piece in pieces:
            times = np.array([time for time, _ in piece])
            gathered.append_points(Series.from_rows((times, times, times), np.array([value for _, value in piece]), 0))
        (found,) = gathered.figures()
        assert found.times.tolist() == [number * 1000 for number in sorted(inside)]
        assert found.iterations.tolist() == [max(time for time, _ in inside[number]) for number in sorted(inside)]
        for number, figure in zip(sorted(inside), found.values.tolist(), strict=True):
            assert is_figure(aggregate, [point for point in inside[number] if point[1] == point[1]], figure)


def is_figure(aggregate: str, points: list[tuple[int, float]], figure: float) -> bool:
    """Whether a figure is right; of values at the same time any may be the first or last."""
    values = [value for _, value in points]
    if aggregate == "count":
        return figure == len(values)
    if not values:
        return math.isnan(figure)
    if aggregate in ("first", "last"):
        moment = (min if aggregate == "first" else max)(time for time, _ in points)
        return figure in [value for time, value in points if time == moment]
    if aggregate in ("min", "max"):
        return figure == (min if aggregate == "min" else max)(values)
    total = math.fsum(values) if all(map(math.isfinite, values)) and max(map(abs, values)) < 1e300 else sum(values)
    wanted = total / len(values) if aggregate == "mean" else total
    largest = max(map(abs, values))
    return (
        same(figure, wanted) or math.isclose(figure, wanted, rel_tol=1e-9, abs_tol=1e-12 * largest) or largest > 1e300
    )
