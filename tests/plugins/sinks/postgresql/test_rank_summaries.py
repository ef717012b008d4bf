"""Charts of very many ranks: the mean and the band of all points, kept as they are stored."""

from __future__ import annotations

import asyncio
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.sinks.postgresql import rank_summaries, retention
from lens_plugins.sinks.postgresql.retention import forget_curve, hide_curve

from lens_core import Origin, PointColumns, PointQuery
from tests.plugins.sinks.postgresql.support import Spool, ask, row, running_store

UID = "workload-1"
Stored = dict[tuple[str, int], dict[int, float]]  # by metric and iteration the value of each rank


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight ranks are very many."""
    monkeypatch.setattr(rank_summaries, "MANY_RANKS", 7)


def of_rank(rank: int, step: int, values: dict[str, float], **changes: Any) -> Any:
    """A row of a rank."""
    origin = Origin(workload_uid=UID, rank=rank)
    return row(step, origin=origin, session=f"s{rank}", values=values, event_time=1_700_000_000.0 + step, **changes)


async def chart(store: Any, most: int, **options: Any) -> list[PointColumns]:
    """The pieces of a chart."""
    query = PointQuery(workload_uid=UID, max_points=most, over_ranks=most, **options)
    return [piece async for piece in store.metric_columns(query)]


def expected(stored: Stored, metric: str) -> dict[int, tuple[Any, ...]]:
    """By iteration what a chart shows of a metric."""
    found = {}
    for (name, iteration), values in stored.items():
        if name == metric:
            finite = [value for value in values.values() if math.isfinite(value)]
            lead = values[min(values)]
            found[iteration] = (
                len(values),
                len(values) - len(finite),
                min(finite, default=None),
                max(finite, default=None),
                lead if math.isfinite(lead) else None,
                math.fsum(finite) / len(finite) if finite else None,
            )
    return found


def shown(piece: PointColumns) -> dict[int, tuple[Any, ...]]:
    """The same out of an answer."""
    columns = [piece.extras[name] for name in ("count", "not_finite", "min", "max", "lowest_rank")]
    means = [value if math.isfinite(value) else None for value in piece.values]
    return {one[0]: one[1:] for one in zip(piece.iterations, *columns, means, strict=True)}


def assert_same(found: dict[int, tuple[Any, ...]], wanted: dict[int, tuple[Any, ...]]) -> None:
    """All figures are equal, the mean but for rounding."""
    assert found.keys() == wanted.keys()
    for iteration, figures in wanted.items():
        assert found[iteration][:-1] == figures[:-1]
        if figures[-1] is not None:
            assert found[iteration][-1] == pytest.approx(figures[-1])


@pytest.mark.parametrize("seed", range(4))
async def test_a_chart_shows_mean_band_and_lowest_rank_of_all_points(store: Any, spool: Spool, seed: int) -> None:
    rng = random.Random(seed)
    stored: Stored = defaultdict(dict)
    for batch in range(8):
        records = []
        for _ in range(60):
            rank, step = rng.randrange(12 if batch else 5), rng.randrange(-20, 40 * (batch + 1))
            names = [name for name in ("loss", "lr") if rng.random() < 0.7 and rank not in stored[name, step]]
            values = {name: rng.choice((math.nan, math.inf, rng.gauss(0, 1), 2.0)) for name in names}
            for name, value in values.items():
                stored[name, step][rank] = value
            if values:
                records.append(of_rank(rank, step, values, sequence=batch))
        await spool.deliver(*records)
    await spool.deliver(*records)  # once more
    stored = {key: values for key, values in stored.items() if values}
    pieces = await chart(store, 10_000)
    assert [piece.metric_name for piece in pieces] == ["loss", "lr"]
    for piece in pieces:
        assert_same(shown(piece), expected(stored, piece.metric_name))
    every = expected(stored, "loss")
    (few,) = await chart(store, 25, metrics=("loss",))
    figures = shown(few)
    assert len(figures) <= 25
    assert sum(one[0] for one in figures.values()) == sum(one[0] for one in every.values())
    assert min(one[2] for one in figures.values() if one[2] is not None) == min(
        one[2] for one in every.values() if one[2] is not None
    )
    assert min(figures) == min(every)
    assert max(figures) == max(every)
    known = {info.name: info.count for info in await store.available_metrics(UID, "")}
    assert known == {name: sum(len(v) for (of, _), v in stored.items() if of == name) for name in ("loss", "lr")}
    plain = [point async for point in store.metric_points(PointQuery(workload_uid=UID, metrics=("loss",)))]
    assert sum(map(len, plain)) == known["loss"]


async def test_coarser_levels_hold_what_the_finest_does(store: Any, spool: Spool, postgres_dsn: str) -> None:
    for first in range(0, 600, 200):
        steps = range(first, first + 200)
        await spool.deliver(*(of_rank(rank, step, {"loss": float(rank * step)}) for rank in range(8) for step in steps))
    (piece,) = await chart(store, 3)
    assert [*piece.iterations] == [15, 591, 599]  # 600 iterations in 38 summaries of level 1
    assert sum(piece.extras["count"]) == 8 * 600
    columns = "points, numbers, total, lowest, highest, first_us, last_us, last_iteration, lead_rank, lead_value"
    stored = ask(postgres_dsn, f"select level, place, {columns} from lens_ranks order by level, place")
    finest = [figures for level, _, *figures in stored if level == 0]
    assert len(finest) == 600
    for level, place, *figures in stored:
        within = [one for number, one in enumerate(finest) if number >> (4 * level) == place]
        sums = [sum(one[column] for one in within) for column in range(3)]
        lows = [min(one[column] for one in within) for column in (3, 5)]
        highs = [max(one[column] for one in within) for column in (4, 6, 7)]
        assert figures == [*sums, lows[0], highs[0], lows[1], *highs[1:], *within[-1][-2:]]


async def test_an_overwritten_value_is_out_of_the_mean(store: Any, spool: Spool) -> None:
    await spool.deliver(*(of_rank(rank, 1, {"loss": 1.0}) for rank in range(8)))
    await spool.deliver(of_rank(3, 1, {"loss": 9.0}, sequence=2), of_rank(3, 1, {"acc": 0.5}, sequence=2))
    await spool.deliver(of_rank(3, 1, {"loss": math.nan}, sequence=3))
    pieces = {piece.metric_name: shown(piece)[1] for piece in await chart(store, 100)}
    assert pieces["loss"] == (8, 1, 1.0, 9.0, 1.0, 1.0)  # the band still has the 9
    assert pieces["acc"] == (1, 0, 0.5, 0.5, 0.5, 0.5)
    await spool.deliver(of_rank(3, 1, {}, iteration=5, sequence=4))  # the row is of another iteration
    moved = {piece.metric_name: shown(piece) for piece in await chart(store, 100)}
    assert {iteration: figures[0] for iteration, figures in moved["loss"].items()} == {1: 7, 5: 1}
    assert moved["acc"] == {5: (1, 0, 0.5, 0.5, 0.5, 0.5)}


async def test_two_daemons_that_write_at_one_time_miss_no_point(
    store: Any, spool: Spool, tmp_path: Path, postgres_dsn: str
) -> None:
    async with running_store(tmp_path / "other", postgres_dsn) as other:
        low, high = spool, Spool(other, "spool-2")
        for run in ("a", "b", "c"):  # the first high rank comes while a low one is written
            for step in range(10):
                await asyncio.gather(
                    *(low.deliver(of_rank(rank, step, {"loss": 1.0}, run_id=run)) for rank in range(2)),
                    *(high.deliver(of_rank(rank, step, {"loss": 1.0}, run_id=run)) for rank in (9, 1_000)),
                )
    assert [piece.extras["count"] for piece in await chart(store, 100)] == [[4] * 10] * 3


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324])
async def test_values_whose_sum_is_no_double_are_stored(store: Any, spool: Spool, value: float) -> None:
    for rank in (9, 3, 4, 8):
        await spool.deliver(of_rank(rank, 1, {"loss": value}))
    await spool.deliver(of_rank(3, 1, {"loss": 0.0}, sequence=2))
    (piece,) = await chart(store, 100)
    count, not_finite, lowest, highest, lead, mean = shown(piece)[1]
    assert (count, not_finite, lead) == (4, 0, 0.0)
    assert {lowest, highest} == {value, 0.0}
    assert mean is None or lowest <= mean <= highest


async def test_other_curves_are_drawn_from_their_points(store: Any, spool: Spool) -> None:
    await spool.deliver(*(of_rank(rank, 1, {"loss": 1.0}) for rank in range(8)))
    await spool.deliver(row(3, run_id="single", values={"loss": 2.0, "alone": 1.0, "z": 3.0}))
    found = [(piece.metric_name, piece.run_id, "lowest_rank" in piece.extras) for piece in await chart(store, 100)]
    assert found == [
        ("alone", "single", False),
        ("loss", "run-1", True),
        ("loss", "single", False),
        ("z", "single", False),
    ]
    assert [piece.run_id for piece in await chart(store, 100, run_id="single", metrics=("loss",))] == ["single"]
    (of_one,) = await chart(store, 100, rank=2)
    assert (of_one.extras, [*of_one.values]) == ({}, [1.0])


async def test_a_window_shows_what_was_logged_last_in_it(store: Any, spool: Spool) -> None:
    await spool.deliver(*(of_rank(rank, step, {"loss": float(step)}) for rank in range(8) for step in range(10)))
    (piece,) = await chart(store, 100, start_ms=1_700_000_003_000, end_ms=1_700_000_005_000)
    assert [*piece.iterations] == [3, 4, 5]
    assert await chart(store, 100, start_ms=1_800_000_000_000) == []


async def test_a_curve_with_too_many_earlier_rows_is_drawn_from_its_points(
    store: Any, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_summaries, "_MOST_EARLIER_ROWS", 10)
    await spool.deliver(*(of_rank(0, step, {"loss": 1.0}) for step in range(20)))
    await spool.deliver(of_rank(9, 0, {"loss": 2.0}))
    await spool.deliver(of_rank(9, 1, {"loss": 3.0}))
    (piece,) = await chart(store, 100)
    assert (piece.extras, max(piece.values), len(piece)) == ({}, 3.0, 22)


async def test_summaries_go_with_the_rows(store: Any, spool: Spool, postgres_dsn: str) -> None:
    for run in ("run-1", "run-2"):
        await spool.deliver(*(of_rank(rank, 1, {"loss": 1.0}, run_id=run) for rank in range(8)))
    await store.delete_run(UID, "run-1")
    assert ask(postgres_dsn, "select run_id from lens_curve") == [("run-2",)]
    await store.delete_workload(UID)
    assert ask(postgres_dsn, "select count(*) from lens_ranks") == [(0,)]


async def test_summaries_of_an_attempt_that_goes_are_removed_in_portions(
    store: Any, spool: Spool, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spool.deliver(*(of_rank(rank, step, {"loss": 1.0}) for rank in range(8) for step in range(30)))
    ((stream_id,),) = ask(postgres_dsn, "select id from lens_stream where rank = 3")
    connection = await store.database.connect()
    async with connection:
        await hide_curve(connection, stream_id)
        (piece,) = await chart(store, 1000)
        assert (piece.extras, len(piece)) == ({}, 240), "drawn from the points while the summaries are being removed"
        await spool.deliver(*(of_rank(rank, 30, {"loss": 1.0}) for rank in range(8)))
        monkeypatch.setattr(retention, "_ROWS_AT_ONCE", 7)
        await forget_curve(connection, stream_id)
        assert ask(postgres_dsn, "select (select count(*) from lens_curve), count(*) from lens_ranks") == [(0, 0)]
        await spool.deliver(*(of_rank(rank, 31, {"loss": 1.0}) for rank in range(8)))
        (piece,) = await chart(store, 1000)
        assert (len(piece), set(piece.extras["count"])) == (32, {8}), "made anew out of all rows"
        await forget_curve(connection, stream_id)
        assert ask(postgres_dsn, "select count(*) from lens_curve") == [(1,)], "one that is in use stays"
