"""Buckets and the moving average: every figure is that of all points, however they arrive."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lens_core.http.buckets import Buckets, CurveBuckets, MovingAverage, percentile

LARGEST = sys.float_info.max
EXTREMES = [0.0, 5e-324, -1e-323, 2.2e-308, 1e-300, 1e-4, 1.0, 1e300, 1e308, -1e308, LARGEST, -LARGEST]
VALUES = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([math.nan, *EXTREMES]))
WEIGHTS = st.one_of(st.sampled_from([0.0, 0.6, 0.99, 0.9999]), st.floats(0, 0.999999))
POINTS = st.lists(st.tuples(st.integers(0, 2), VALUES), max_size=120)


def reduced(
    points: Sequence[tuple[int, float]], most: int, weight: float | None, cuts: Sequence[int] = ()
) -> tuple[Buckets, CurveBuckets]:
    """The buckets of points (iteration and value), which arrive in pieces."""
    curve = CurveBuckets(most, None if weight is None else MovingAverage(weight))
    bounds = [0, *sorted(min(cut, len(points)) for cut in cuts), len(points)]
    for low, high in pairwise(bounds):
        iterations = np.array([iteration for iteration, _ in points[low:high]], np.int64)
        curve.append_to_curve(
            iterations, iterations * 1000, np.array([value for _, value in points[low:high]], np.float64)
        )
    return curve.buckets(), curve


def expected_average(points: Sequence[tuple[int, float]], weight: float) -> float | None:
    """The definition, step by step."""
    mean, steps = 0.0, 0
    for iteration in dict.fromkeys(iteration for iteration, _ in points):
        found = [value for one, value in points if one == iteration and math.isfinite(value)]
        if found:
            mean = weight * mean + (1 - weight) * sum(value / len(found) for value in found)
            steps += 1
    return mean / (1 - weight**steps) if steps else None


def placed(moves: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Points whose iterations never go back."""
    iterations = np.cumsum([move for move, _ in moves]).tolist()
    return [(iteration, value) for iteration, (_, value) in zip(iterations, moves, strict=True)]


@given(POINTS, st.integers(3, 40), WEIGHTS, st.lists(st.integers(0, 120), max_size=4))
@example([(1, math.nan)] * 5, 3, 0.9, [2])
def test_every_figure_is_that_of_all_points(
    moves: list[tuple[int, float]], most: int, weight: float, cuts: list[int]
) -> None:
    points = placed(moves)
    found, curve = reduced(points, most, weight, cuts)
    assert found.counts.size <= most
    assert found.counts.sum() == len(points)
    place = 0
    for number, count in enumerate(found.counts.tolist()):
        part = points[place : place + count]
        finite = [value for _, value in part if math.isfinite(value)]
        assert found.iterations[number] == part[-1][0]
        assert found.lasts[number] == pytest.approx(part[-1][1], nan_ok=True)
        assert found.finite[number] == len(finite)
        if finite:
            assert (found.lowest[number], found.highest[number]) == (min(finite), max(finite))
            mean = sum(value / len(finite) for value in finite)
            assert found.means[number] == pytest.approx(mean, rel=1e-9, abs=1e-9 * max(map(abs, finite)))
            assert min(finite) <= found.means[number] <= max(finite)
        place += count
    if points:
        assert (found.steps[0], found.steps[-1]) == (1, 1)  # both ends are of one iteration
        assert found.steps.sum() == len({iteration for iteration, _ in points})
        assert len(set(found.iterations.tolist())) == found.iterations.size
        numbers = [value for _, value in points if math.isfinite(value)]
        figures = curve.figures()
        assert (figures["count"], figures["not_finite"]) == (len(points), len(points) - len(numbers))
        assert (figures["min"], figures["max"]) == (min(numbers, default=None), max(numbers, default=None))
        average = expected_average(points, weight)
        if average is not None:
            shown = found.smoothed[~np.isnan(found.smoothed)][-1]
            assert shown == pytest.approx(average, rel=1e-6, abs=1e-9 * max(map(abs, numbers)))


@given(st.one_of(st.floats(-LARGEST, LARGEST), st.sampled_from(EXTREMES)), st.integers(1, 5000), WEIGHTS)
def test_a_constant_stays_what_it_is(value: float, count: int, weight: float) -> None:
    found, curve = reduced([(step, value) for step in range(count)], 100, weight)
    assert set(found.means.tolist()) == set(found.smoothed.tolist()) == {value}
    assert curve.figures()["p2"] == curve.figures()["p98"] == value


@given(
    st.lists(st.sampled_from(EXTREMES), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(3, 20),
    st.sampled_from([0.1, 0.6, 0.9, 0.99]),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_values_at_the_ends_of_numbers_have_finite_figures(
    values: list[float], per_step: int, most: int, weight: float, cuts: list[int]
) -> None:
    points = [(place // per_step, value) for place, value in enumerate(values)]
    found, curve = reduced(points, most, weight, cuts)
    low, high = min(values), max(values)
    for column in (found.means, found.lowest, found.highest, found.smoothed):
        assert ((low <= column) & (column <= high)).all()
    figures = curve.figures()
    assert low <= figures["p2"] <= figures["p98"] <= high
    # What comes after is not hidden by what was: the average comes back from any height.
    later = [(step, 1.0) for step in range(len(values), len(values) + 8000)]
    calm, _ = reduced([*points, *later], most, 0.9, [len(values), len(values) + 100])
    assert calm.smoothed[-1] == pytest.approx(1.0)


def test_rare_spikes_in_a_long_run_do_not_lift_what_is_smoothed() -> None:
    count, weight = 200_000, 0.97
    random = np.random.default_rng(27)
    values = 1.5 + random.random(count) / 2
    values[random.random(count) < 0.0003] = 1000.0
    values[-400:-350] = math.nan
    found, curve = reduced(list(enumerate(values.tolist())), 400, weight, range(7000, count, 7000))
    mean, steps, shown = 0.0, 0, {}
    for step, value in enumerate(values.tolist()):
        if math.isfinite(value):
            mean, steps = weight * mean + (1 - weight) * value, steps + 1
        shown[step] = mean / (1 - weight**steps)
    assert found.smoothed == pytest.approx([shown[step] for step in found.iterations.tolist()], rel=1e-9)
    assert 200 < found.counts.size <= 400
    finite = values[np.isfinite(values)]
    figures = curve.figures()
    assert [figures["p2"], figures["p98"]] == pytest.approx(np.percentile(finite, [2, 98]).tolist())
    assert figures["p98"] < 2.0 < figures["max"]


@given(
    st.integers(20_001, 60_000),
    st.floats(0, 1),
    st.sampled_from(["random", "rising", "falling", "constant", "steps", "periodic", "huge", "largest"]),
)
def test_percentiles_of_many_values_are_those_of_all_of_them(count: int, share: float, shape: str) -> None:
    places = np.arange(count)
    values = {
        "random": np.random.default_rng(count).normal(size=count),
        "rising": places.astype(float),
        "falling": -places.astype(float),
        "constant": np.full(count, 0.1),
        "steps": (places // 1000 % 3).astype(float),
        "periodic": (places % (count // 4_000) == 0).astype(float),  # as the sample of it is taken
        "huge": np.where(places % 2, 1e300, -1e300),
        "largest": np.where(places % 2, LARGEST, -LARGEST),
    }[shape]
    scale = 1e-300 if shape == "largest" else 1.0  # what numpy subtracts is infinite
    expected = np.percentile(values * scale, 100 * share)
    assert percentile(values, share) * scale == pytest.approx(expected, rel=1e-9, abs=1e-9 * abs(values * scale).max())
