"""Values of runs out of the catalogue: the same as out of all points, and left to these where they are not known."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql import layouts
from lens_plugins.sinks.postgresql.value_summaries import ValueSummary, summarize_rows

from lens_core import Origin, RunValues
from lens_core.http.run_table import MOST_METRICS, RunTable, _values_of_points
from tests.plugins.sinks.postgresql.support import Spool, ask, row

UID = "workload-1"
VALUES = (math.nan, math.inf, -math.inf, 0.0, -1.5, 2.5, 1e300)


def plain(found: dict[str, RunValues]) -> dict[str, Any]:
    """The values as what can be compared, NaN included."""
    return {
        run: [{name: repr(value) for name, value in part.items()} for part in (of.last, of.lowest, of.highest)]
        for run, of in found.items()
    }


async def of_points(store: Any) -> dict[str, RunValues]:
    """The values computed from all points."""
    return await _values_of_points(store, await store.workload(UID))


def some_batch(rng: random.Random, first: int) -> list[Any]:
    """Rows of several runs, sessions, ranks and sources, some at steps of before; every time is another."""
    found = []
    for number in range(40):
        rank = rng.randrange(3)
        source = rng.choice(("wandb", "mlflow"))
        values = {f"m{rng.randrange(5)}": rng.choice((*VALUES, rng.gauss(0, 1))) for _ in range(3)}
        found.append(
            row(
                rng.randrange(10**6) if rng.random() < 0.2 else first + number,
                origin=Origin(workload_uid=UID, rank=rank),
                data_source=source,
                run_id=f"run-{rng.randrange(3)}",
                session=f"{source}{rank}{rng.randrange(2)}",
                values=values,
                event_time=1_700_000_000.0 + first + number + rng.choice((0, -30, 1000)),
                sequence=first + number,
            )
        )
    # A run of one stream, of which some values are lower or higher than any number.
    values = {f"m{number}": rng.choice(VALUES) for number in range(5)}
    return [*found, row(first, run_id="run-alone", values=values, event_time=1_700_000_000.0 + first, sequence=first)]


@pytest.mark.parametrize("seed", range(4))
async def test_kept_values_are_those_of_all_points(store: Any, spool: Spool, seed: int) -> None:
    rng = random.Random(seed)
    for first in range(0, 10_000, 2_000):
        await spool.deliver(*some_batch(rng, first))
        kept = await store.run_values([UID, "nobody"], most=MOST_METRICS)
        assert kept["nobody"] == {}
        assert plain(kept[UID]) == plain(await of_points(store))
    batch = [row(5, run_id="run-2", values={"m1": value}, sequence=round(value)) for value in (9.0, 10.0)]
    await spool.deliver(batch[0])
    assert UID in await store.run_values([UID], most=MOST_METRICS)
    await spool.deliver(batch[1])  # the highest is not what it was
    assert UID not in await store.run_values([UID], most=MOST_METRICS)
    (found,) = [one for one in await RunTable().run_rows(store, [UID]) if one.run_id == "run-2"]
    assert found.best.get("m1") == (await of_points(store))["run-2"].lowest.get("m1")


async def test_values_written_in_two_parts_are_kept_and_repeated_ones_change_nothing(
    store: Any, spool: Spool, postgres_dsn: str
) -> None:
    await spool.deliver(row(1, values={"loss": 2.0}))
    await spool.deliver(row(1, values={"accuracy": 0.5}, sequence=2), row(1, values={"loss": 2.0}))
    await spool.deliver(row(1, values={"loss": 2.0}, sequence=3))
    found = (await store.run_values([UID], most=MOST_METRICS))[UID]["run-1"]
    assert found.last == {"loss": 2.0, "accuracy": 0.5}
    ask(postgres_dsn, "update lens_catalogue set has_summary = false where metric = 'loss' returning 1")
    assert await store.run_values([UID], most=MOST_METRICS) == {}  # as of rows from before
    assert (await RunTable().run_rows(store, [UID]))[0].last == {"loss": 2.0, "accuracy": 0.5}


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_last_value_is_the_newest_of_the_lowest_rank_that_logs_the_metric(
    store: Any, spool: Spool, postgres_dsn: str, is_kept: bool
) -> None:
    for step in range(3):
        for rank in (2, 0, 1):  # rank 1 is the last to write
            values = {"loss": step + rank / 10, "nan": math.nan if step == 2 else 1.0} | (
                {"tokens": 7.0} if rank else {}
            )
            origin = Origin(workload_uid=UID, rank=rank)
            at = 1_700_000_000.0 + step + rank / 10
            await spool.deliver(row(step, origin=origin, session=f"s{rank}", values=values, event_time=at))
    await spool.deliver(
        row(9, origin=Origin(workload_uid=UID, rank=2), session="s2", values={"alone": 3.0, "tokens": 9.0})
    )
    if not is_kept:
        ask(postgres_dsn, "update lens_catalogue set has_summary = false returning 1")
    assert bool(await store.run_values([UID], most=MOST_METRICS)) == is_kept
    (found,) = await RunTable().run_rows(store, [UID])
    assert found.last == {"loss": 2.0, "nan": "NaN", "tokens": 7.0, "alone": 3.0}
    assert found.best == {"loss": 0.0, "nan": 1.0, "tokens": 7.0, "alone": 3.0}


async def test_of_very_many_metrics_those_with_the_most_points_are_kept(store: Any, spool: Spool) -> None:
    await spool.deliver(
        *(row(step, values={f"m{k:02}": 1.0 for k in range(60) if k % (step + 1) == 0}) for step in range(5))
    )
    found = (await store.run_values([UID], most=10))[UID]["run-1"].last
    assert sorted(found) == sorted((await _values_of_points_of(store, 10))["run-1"].last)


async def _values_of_points_of(store: Any, most: int) -> dict[str, RunValues]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lens_core.http.run_table.MOST_METRICS", most)
        return await of_points(store)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
ROWS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abc"), NUMBERS, max_size=3), st.integers(0, 5), st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("many", [2, 32])
@given(batches=st.lists(ROWS, min_size=1, max_size=4))
def test_a_summary_of_batches_is_that_of_all_values(
    many: int, batches: list[list[tuple[dict[str, float], int, int]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "MANY_ROWS", many)
        compare_summaries(batches)


def compare_summaries(batches: list[list[tuple[dict[str, float], int, int]]]) -> None:
    found: dict[str, ValueSummary] = {}
    points: dict[str, int] = {}
    for batch in batches:
        rows, times, steps = [list(column) for column in zip(*batch, strict=True)]
        for name, count in summarize_rows(found, rows, times, steps).items():
            points[name] = points.get(name, 0) + count
    for name in "abc":
        every = [(time, step, values[name]) for batch in batches for values, time, step in batch if name in values]
        assert points.get(name, 0) == len(every)
        if not every:
            continue
        numbers = [value for *_, value in every if value == value]
        summary = found[name]
        assert summary.lowest == min(numbers, default=None)
        assert summary.highest == max(numbers, default=None)
        newest = max((iteration, time) for time, iteration, _ in every)
        candidates = [repr(value) for time, iteration, value in every if (iteration, time) == newest]
        assert repr(summary.last) in candidates
        assert (summary.last_iteration, summary.last_us) == newest


def test_nans_that_signal_hide_no_number_of_many_rows() -> None:
    (signalling,) = struct.unpack("<d", struct.pack("<Q", 0x7FF0_0000_0000_0002))
    rows = [{"a": signalling if step % 3 else float(step), "b": signalling} for step in range(100)]
    found: dict[str, ValueSummary] = {}
    assert summarize_rows(found, rows, [*range(100)], [*range(100)]) == {"a": 100, "b": 100}
    assert (found["a"].lowest, found["a"].highest, found["a"].last) == (0.0, 99.0, 99.0)
    assert (found["b"].lowest, found["b"].highest) == (None, None)
