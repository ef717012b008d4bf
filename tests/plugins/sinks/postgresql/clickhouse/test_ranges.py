"""The roll-up for charts: exact, however versions come, and used only where it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.clickhouse import reading
from lens_plugins.sinks.postgresql.clickhouse.ranges import POINTS, RANGE_TYPE, ranges_of, thin_ranges
from lens_plugins.sinks.postgresql.clickhouse.versions import Source, VersionColumns, versions_of
from lens_plugins.sinks.postgresql.reducing import reduce_series
from lens_plugins.sinks.postgresql.rows import Order, written
from lens_plugins.sinks.postgresql.series import Series, extremes

from lens_core import Batch, Origin, PointQuery, Position, StepMetrics
from tests.plugins.sinks.postgresql.clickhouse.conftest import Engine
from tests.plugins.sinks.postgresql.clickhouse.test_twins import columns, deliver
from tests.plugins.sinks.postgresql.support import ask

STEP = st.integers(-3, 1500) | st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1])
VALUE = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e308]) | st.integers(-3, 3).map(float) | st.floats()
TIME = st.integers(0, 10**6)


def thinned(points: dict[int, tuple[int, float]]) -> Series:
    """Points by step, with their times, as a chart has them: both ends and the extremes of each range of 512 steps."""
    steps = np.array(sorted(points), np.int64)
    times = np.array([points[step][0] for step in steps.tolist()], np.int64)
    values = np.array([points[step][1] for step in steps.tolist()]) + 0.0
    part = steps // 512
    kept = extremes(values, np.flatnonzero(np.append(True, part[1:] != part[:-1])))
    kept = np.unique(np.concatenate([kept, [0, values.size - 1]]))
    series = Series.from_rows((steps[kept], steps[kept], times[kept]), values[kept], 0)
    return series._replace(weights=np.full(kept.size, len(points) / kept.size))


@given(st.dictionaries(STEP, st.tuples(TIME, VALUE), min_size=1), st.data())
def test_ranges_are_what_their_points_say_however_they_were_written(
    points: dict[int, tuple[int, float]], data: st.DataObject
) -> None:
    batches: list[list[tuple[int, int]]] = []
    for step in data.draw(st.permutations(sorted(points))):
        # Written again, a row may have got another time; the earliest is its time.
        again = data.draw(st.lists(TIME, max_size=2))
        for time_us in [points[step][0], *(points[step][0] + later for later in again)]:
            if not batches or data.draw(st.booleans()):
                batches.append([])
            data.draw(st.sampled_from(batches)).append((step, time_us))
    found: list[np.ndarray[Any, Any]] = []
    for batch in batches:
        versions = VersionColumns(Source(1, 1, 0))
        for step, time_us in batch:
            state = written({"loss": points[step][1], "other": 7.0}, Order(0, 0), time_us=time_us)
            versions.append_versions(5, step, versions_of(state), state)
        if not versions.count:
            continue
        made = ranges_of(versions.columns())
        rows = np.empty(len(made["stream"]), RANGE_TYPE)
        for name in RANGE_TYPE.names or ():
            rows[name] = made[name]
        metrics: Any = made["metric"]
        found.append(rows[metrics.codes == metrics.distinct.index("loss")])
    ranges = np.concatenate(found)
    if data.draw(st.booleans()):
        ranges = merged(ranges)
    shown, wanted = thin_ranges(ranges, 0, len(points)), thinned(points)
    for column, expected in zip(shown, wanted, strict=True):
        assert repr(column.tolist()) == repr(expected.tolist())


def merged(ranges: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Ranges of one stream as ClickHouse merges them: of each the least of every tuple."""
    by_part: dict[int, list[np.ndarray[Any, Any]]] = {}
    for row in ranges:
        by_part.setdefault(int(row["first"]["step"]) >> 9, []).append(row)
    found = np.empty(len(by_part), RANGE_TYPE)
    for place, rows in enumerate(by_part[part] for part in sorted(by_part)):
        found[place]["stream"] = rows[0]["stream"]
        for name in POINTS:
            found[place][name] = min((row[name] for row in rows), key=lambda tuples: tuples.tolist())
    return found


def rows_of(steps: range, *, value: Any = None, sequence: int = 0) -> list[StepMetrics]:
    """Rows of one run with a spike, a NaN and a dip among them."""
    special = {777: 1e9, 1234: math.nan, 2600: -1e9, 2999: 5.0}
    return [
        StepMetrics(
            origin=Origin(workload_uid="workload-1"),
            data_source="wandb",
            run_id="a",
            row_step=step,
            values={"loss": special.get(step, math.sin(step)) if value is None else value, "lr": 1.0},
            event_time=1.7e9 + step,
            sequence=sequence or step,
        )
        for step in steps
    ]


class Sender:
    """Sends rows as batches of one spool."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.number = 0

    async def send(self, rows: list[StepMetrics]) -> Batch:
        """Send rows until they are taken; the batch."""
        start, self.number = Position(self.number, 0), self.number + 1
        end = Position(self.number, len(rows))
        batch = Batch(records=rows, start=start, end=end, spool_id="s", pipeline="p", sink="store")
        await deliver(self.store, batch)
        return batch


async def chart(store: Any, max_points: int) -> list[tuple[Any, ...]]:
    """A chart: iteration, time and value of each point."""
    query = PointQuery(workload_uid="workload-1", metrics=("loss",), max_points=max_points)
    return [point[4:7] for point in await columns(store.metric_columns(query))]


async def wanted_chart(store: Any, max_points: int) -> list[tuple[Any, ...]]:
    """The same, made of all points."""
    query = PointQuery(workload_uid="workload-1", metrics=("loss",))
    points = [point[4:7] for point in await columns(store.metric_columns(query))]
    series = reduce_series(thinned({step: (time, float(value)) for step, time, value in points}), max_points)
    return [
        (step, time, repr(value))
        for step, time, value in zip(
            series.iterations.tolist(), series.times.tolist(), series.values.tolist(), strict=True
        )
    ]


async def test_a_chart_of_ranges_has_every_spike_and_both_ends(
    apart: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch, points_address: str, postgres_dsn: str
) -> None:
    monkeypatch.setattr(reading, "LEAST_POINTS", 1_000)
    table = f"{points_address.rsplit('/', 1)[1]}.lens_range"
    sender = Sender(apart)
    engine.set_faults("", "before", "", "after", "lost")
    for first in range(0, 3_000, 250):
        if first == 1_500:
            late = rows_of(range(first, first + 250))
            continue
        await sender.send(rows_of(range(first, first + 250)))
    again = await sender.send(late)
    await deliver(apart, again)
    for _ in range(2):
        found = await chart(apart, 9)
        assert found == await wanted_chart(apart, 9)
        assert {(0, "0.0"), (777, "1000000000.0"), (2600, "-1000000000.0"), (2999, "5.0")} <= {
            (step, value) for step, _, value in found
        }
        engine.run(f"optimize table {table} final")
    assert engine.run(f"select count() from {table}").split() == ["12"]  # 6 ranges of 2 metrics
    asked: list[str] = []
    fetch = apart._points.clickhouse.fetch

    async def watch(statement: str, dtype: Any) -> Any:
        asked.append(statement)
        return await fetch(statement, dtype)

    monkeypatch.setattr(apart._points.clickhouse, "fetch", watch)
    await chart(apart, 9)
    assert [("lens_range" in statement) for statement in asked] == [True]
    # A point is overwritten: the spike is gone, and the ranges may not be used any more.
    assert ask(postgres_dsn, "select overwritten from lens_stream") == [(False,)]
    await sender.send(rows_of(range(777, 778), value=0.5, sequence=10**6))
    assert ask(postgres_dsn, "select overwritten from lens_stream") == [(True,)]
    found = await chart(apart, 9)
    assert (777, "1000000000.0") not in {(step, value) for step, _, value in found}
    await apart.delete_workload("workload-1")
    await apart.vacuum()
    assert engine.run(f"select count() from {table}").split() == ["0"]


async def test_a_point_that_a_batch_writes_twice_is_overwritten(apart: Any, postgres_dsn: str) -> None:
    rows = [*rows_of(range(3)), *rows_of(range(2, 3), value=9.0, sequence=50)]
    await Sender(apart).send(rows)
    assert ask(postgres_dsn, "select overwritten from lens_stream") == [(True,)]
