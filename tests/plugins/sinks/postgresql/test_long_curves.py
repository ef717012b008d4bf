"""Curves that are drawn out of the parts that blocks keep: every bucket is that of all of its points."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from lens_plugins.sinks.postgresql import compacting, long_curves, parts
from msgspec.structs import replace

from lens_core import PointColumns, PointQuery
from lens_core.http import curves as curves_module
from lens_core.http.curve_options import CurveOptions
from lens_core.http.curves import Curves
from tests.plugins.sinks.postgresql.support import ORIGIN, Spool, points, row, running_store
from tests.plugins.sinks.postgresql.test_blocks import compact

WINDOWS: tuple[dict[str, Any], ...] = (
    {},
    {"start_ms": 1_700_000_100_500, "end_ms": 1_700_000_500_000},
    {"start_ms": 1_700_000_090_000},
)
VALUES = (math.nan, math.inf, -math.inf, 0.0, 1.5, -2.25, 1e308, -1e308)
SPOIL = "update lens_column set \"values\" = decode(repeat('00', octet_length(\"values\")), 'hex')"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows with parts of fewer, so that little makes many."""
    monkeypatch.setattr(compacting, "BLOCK_ROWS", 32)
    monkeypatch.setattr(compacting, "_GROWN_ROWS", 64)
    monkeypatch.setattr(compacting, "PARTIAL_ROWS", 5)
    for module in (parts, long_curves):
        monkeypatch.setattr(module, "PART_POINTS", 4)
    monkeypatch.setattr(long_curves, "_BLOCKS_AT_ONCE", 5)


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[Any]:
    """A store that makes no blocks by itself."""
    async with running_store(tmp_path, postgres_dsn, blocks=False) as started:
        yield started


async def buckets_of(store: Any, most: int, *, percentiles: bool = False, **more: Any) -> list[PointColumns]:
    """The buckets of each curve."""
    query = PointQuery(workload_uid="workload-1", **more)
    curves = Curves(store, query, store.metric_columns, CurveOptions(most, None, False, percentiles))
    return [piece async for piece in curves.pieces()]


async def assert_exact(store: Any, most: int, window: dict[str, Any]) -> None:
    """Compare every bucket with the points that it stands for."""
    expected: dict[tuple[str, str, str, int], list[Any]] = defaultdict(list)
    for point in await points(store, **window):
        expected[point.metric_name, point.data_source, point.run_id, point.attempt].append(point)
    found = await buckets_of(store, most, **window)
    assert len(found) == len(expected)
    for curve in found:
        every = expected[curve.metric_name, curve.data_source, curve.run_id, curve.attempt]
        assert len(curve) <= most
        before = -math.inf
        for place, iteration in enumerate(curve.iterations):
            own = [point for point in every if before < point.iteration <= iteration]
            finite = [point.value for point in own if math.isfinite(point.value)]
            extras = {name: column[place] for name, column in curve.extras.items()}
            assert (extras["count"], extras["not_finite"]) == (len(own), len(own) - len(finite))
            assert extras["steps"] == len({point.iteration for point in own})
            assert (extras["min"], extras["max"]) == (min(finite, default=None), max(finite, default=None))
            assert (own[-1].iteration, own[-1].timestamp) == (iteration, curve.timestamps[place])
            last = own[-1].value
            assert float(extras["last"]) == pytest.approx(last, nan_ok=True)
            if finite:
                mean = sum(value / len(finite) for value in finite)
                size = max(map(abs, finite))
                assert curve.values[place] == pytest.approx(mean, rel=1e-9, abs=1e-9 * size)
            before = iteration
        assert sum(curve.extras["count"]) == len(every)
        assert curve.extras["steps"][0] == curve.extras["steps"][-1] == 1


def some_rows(chance: random.Random, beyond: int, sequence: int) -> list[Any]:
    """New rows, and a few late ones, of a run of one rank, one of two, and one that has iterations of its own."""
    found: list[Any] = []
    for step in range(beyond, beyond + 60):
        late = chance.randrange(beyond + 1) if chance.random() < 0.01 else step
        run = chance.choice(["one", "one", "one", "ranks", "own"])
        metrics = ["loss", *(["rare"] if chance.random() < 0.1 else [])]
        found.append(
            row(
                late,
                origin=replace(ORIGIN, rank=chance.randrange(2)) if run == "ranks" else ORIGIN,
                run_id=run,
                data_source=chance.choice(["wandb", "wandb", "wandb", "log"]),
                values={name: chance.choice(VALUES) if chance.random() < 0.2 else chance.random() for name in metrics},
                iteration=late // 2 if run == "own" else None,
                sequence=sequence * 1000 + len(found),
                event_time=1_700_000_000.0 + late + chance.random(),
            )
        )
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_buckets_are_exact_whatever_is_in_blocks(store: Any, postgres_dsn: str, seed: int) -> None:
    spool, chance = Spool(store), random.Random(seed)
    for number in range(12):
        await spool.deliver(*some_rows(chance, number * 60, number))
        if chance.random() < 0.8:
            await compact(store, partial=chance.random() < 0.3)
        if number == 6:
            with psycopg.connect(postgres_dsn) as connection:  # as those that were made before there were parts
                connection.execute("update lens_column set parts = null where last_step %% 3 = %s", [seed % 3])
        if number % 4 == 3:
            for window in WINDOWS:
                for most in (3, 8, 20):
                    await assert_exact(store, most, window)


async def test_values_of_blocks_are_read_where_they_are_needed_only(store: Any, postgres_dsn: str) -> None:
    chance = random.Random(27)
    rows = [row(step, values={"loss": chance.random()}, event_time=1_700_000_000.0 + step) for step in range(1000)]
    await Spool(store).deliver(*rows)
    await compact(store, partial=True)
    whole = await buckets_of(store, 20)
    assert len(whole[0]) > 10
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        ends = "(select min(last_step) from lens_block union all select max(last_step) from lens_block)"
        spoilt = connection.execute(f"{SPOIL} where last_step not in {ends}".encode()).rowcount
        assert spoilt > 20
        assert await buckets_of(store, 20) == whole
        percentiles = await buckets_of(store, 20, percentiles=True)
        assert max(percentiles[0].values[2:-2]) == 0  # they need all values
        connection.execute("update lens_column set parts = null")
        assert max((await buckets_of(store, 20))[0].values[2:-2]) == 0


@pytest.mark.parametrize("size", [4, 5, 127, 128, 129, 1000])
def test_parts_hold_every_point_once(size: int) -> None:
    values = np.random.default_rng(size).normal(size=size)
    values[::7] = np.nan
    places = np.arange(size)
    packed = parts.pack_parts(places, places * 1_000_000, values)
    assert packed is not None
    found = np.frombuffer(packed, parts._PART)
    counts = parts._counts([size])
    assert (counts.sum(), counts.size) == (size, found.size)
    assert found["finite"].sum() == np.isfinite(values).sum()
    assert (found["mean"] * found["finite"]).sum() == pytest.approx(np.nansum(values))
    assert found["iteration"][-1] == size - 1
    assert parts.pack_parts(places[:3], places[:3], values[:3]) is None


@pytest.mark.parametrize("seed", range(3))
async def test_ranks_that_are_read_at_once_are_those_that_are_read_one_by_one(
    store: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    spool = Spool(store)
    lengths = {None: 40, 0: 700, 1: 900, 2: 50, 7: 1}
    for run, attempt, source in (("a", 1, "wandb"), ("a", 2, "wandb"), ("b", 1, "wandb"), ("b", 1, "mlflow")):
        for rank, length in lengths.items():
            values = [{"loss": rng.choice((*VALUES, rng.random())), "time": rng.random()} for _ in range(length)]
            steps = sorted(rng.sample(range(2 * length), length))
            await spool.deliver(
                *[
                    row(
                        step,
                        origin=replace(ORIGIN, rank=rank),
                        run_id=run,
                        attempt=attempt,
                        data_source=source,
                        session=f"{rank}",
                        values=one,
                        event_time=1_700_000_000.0 + step,
                    )
                    for step, one in zip(steps, values, strict=True)
                ]
            )
    await compact(store)
    for smooth in (None, 0.5):
        for window in WINDOWS:
            query = PointQuery(workload_uid="workload-1", **window)
            found = []
            for most in (1024, 0):
                monkeypatch.setattr(curves_module, "_MOST_RANKS", most)
                curves = Curves(store, query, store.metric_columns, CurveOptions(9, smooth, True, False))
                pieces = [piece async for piece in curves.pieces()]
                ranks = [piece.extras["rank"][0] for piece in pieces if len(piece)]
                assert ranks == sorted(ranks, key=lambda rank: -1 if rank is None else rank)
                found.append((sorted(map(repr, pieces)), sorted(map(repr, curves.series))))
            at_once, one_by_one = found
            assert at_once == one_by_one
