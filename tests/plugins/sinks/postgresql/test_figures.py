"""Figures of intervals out of what blocks know: the same as out of all points, and without reading them."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from lens_plugins.sinks.postgresql import blocks as blocks_module
from lens_plugins.sinks.postgresql import compacting
from lens_plugins.sinks.postgresql.series import total_of

from lens_core import MetricPoint
from tests.plugins.sinks.postgresql.support import Spool, points, row, running_store
from tests.plugins.sinks.postgresql.test_blocks import compact

INTERVAL_MS = 100_000  # of a row each second
FIGURES: dict[str, Callable[[list[float]], float]] = {
    "mean": lambda v: math.fsum(v) / len(v),
    "sum": math.fsum,
    "min": min,
    "max": max,
    "count": len,
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 rows, so that an interval holds several."""
    for module in (blocks_module, compacting):
        monkeypatch.setattr(module, "BLOCK_ROWS", 16)
    monkeypatch.setattr(blocks_module, "SUMMARY_POINTS", 4)


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[Any]:
    """A store that makes no blocks by itself."""
    async with running_store(tmp_path, postgres_dsn, blocks=False) as started:
        yield started


def some_rows() -> list[Any]:
    """A metric in every row, one in few, one that is NaN now and then, iterations that go back once."""
    chance = random.Random(5)
    found = []
    for step in range(2000):
        values = {"loss": chance.gauss(0, 1e6), "odd": math.nan if step % 300 == 7 else chance.random()}
        if step % 37 == 0:
            values["eval/rare"] = chance.random()
        found.append(row(step, values=values, iteration=step if step < 1500 else step - 700))
    return found


def by_interval(whole: list[MetricPoint], figure: str) -> list[tuple[str, int, int, float]]:
    """The expected answer: metric, beginning of the interval, highest iteration, figure."""
    found: dict[tuple[str, int], list[MetricPoint]] = defaultdict(list)
    for point in whole:
        found[point.metric_name, point.timestamp // INTERVAL_MS * INTERVAL_MS].append(point)
    return sorted(
        (
            name,
            at,
            max(point.iteration for point in group),
            FIGURES[figure]([p.value for p in group if p.value == p.value]),
        )
        for (name, at), group in found.items()
    )


@pytest.mark.parametrize("figure", FIGURES)
async def test_figures_are_those_of_the_points(store: Any, postgres_dsn: str, figure: str) -> None:
    await Spool(store).deliver(*some_rows())
    for window in ({}, {"start_ms": 1_700_000_050_500, "end_ms": 1_700_001_234_567}):
        whole = by_interval(await points(store, **window), figure)
        for _ in range(2):  # without blocks, and with them
            asked = await points(store, aggregate=figure, interval_ms=INTERVAL_MS, **window)
            found = sorted((p.metric_name, p.timestamp, p.iteration, p.value) for p in asked)
            assert [one[:3] for one in found] == [one[:3] for one in whole]
            assert [one[3] for one in found] == pytest.approx([one[3] for one in whole], rel=1e-12, abs=1e-6)
            await compact(store)


async def test_values_of_whole_blocks_are_not_read(store: Any, postgres_dsn: str) -> None:
    await Spool(store).deliver(*some_rows())
    await compact(store)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        whole = await points(store, metrics=("loss",), aggregate="mean", interval_ms=INTERVAL_MS)
        spoilt = connection.execute(
            "update lens_column c set \"values\" = decode(repeat('00', octet_length(\"values\")), 'hex')"
            " from lens_block b where c.stream_id = b.stream_id and c.last_step = b.last_step and b.ordered"
            " and b.first_us / 100000000 = b.last_us / 100000000"
        ).rowcount
        assert spoilt > 200
        assert await points(store, metrics=("loss",), aggregate="mean", interval_ms=INTERVAL_MS) == whole
        connection.execute("update lens_column set total = null")  # as those that were made before there were sums
        assert await points(store, metrics=("loss",), aggregate="mean", interval_ms=INTERVAL_MS) != whole


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([], 0.0),
        ([1e16, 1.0, -1e16], 1.0),
        ([math.nan, 2.0], 2.0),
        ([math.inf, 1.0], math.inf),
        ([1e308, 1e308, -1e308], 1e308),
        ([math.nan], 0.0),
    ],
)
def test_sums_are_exact(values: list[float], total: float) -> None:
    assert total_of(np.array(values)) == total


def test_infinities_of_both_signs_have_no_sum() -> None:
    assert math.isnan(total_of(np.array([math.inf, -math.inf])))
