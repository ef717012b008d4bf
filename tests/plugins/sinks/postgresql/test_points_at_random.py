"""Generated histories beside a reference in plain Python: attempts, ranks, late and overwritten rows, special values.

The reference knows nothing but which write of a key was the last. Blocks are made at any moment; answers are data,
windows, pages, downsampled charts and figures of intervals.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lens_plugins.sinks.postgresql import blocks, compacting, reading, reducing
from lens_plugins.sinks.postgresql import points as answering

from lens_core import MetricPoint, Origin, PointQuery, StepMetrics
from tests.generated import part
from tests.plugins.sinks.postgresql.support import Spool, points, row, running_store, times
from tests.plugins.sinks.postgresql.test_blocks import compact

FIRST_MS = 1_700_000_000_000
SPECIAL = (math.nan, math.inf, -math.inf)
SPIKE = 1e12


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 rows with parts of 4, and little read at one time: hundreds of rows are a long run."""
    for module in (blocks, compacting, reading):
        monkeypatch.setattr(module, "BLOCK_ROWS", 16)
    for module in (blocks, reading, reducing):
        monkeypatch.setattr(module, "SUMMARY_POINTS", 4)
    monkeypatch.setattr(compacting, "_GROWN_ROWS", 32)
    monkeypatch.setattr(compacting, "PARTIAL_ROWS", 5)
    monkeypatch.setattr(reading, "_ROWS_AT_ONCE", 40)
    monkeypatch.setattr(reading, "_BLOCKS_AT_ONCE", 3)
    monkeypatch.setattr(reading, "_SUMMARIES_AT_ONCE", 5)
    monkeypatch.setattr(answering, "_BATCH_POINTS", 100)
    monkeypatch.setattr(answering, "_MARK_POINTS", 10)


@pytest.fixture
async def store(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[Any]:
    """A store that makes no blocks by itself."""
    async with running_store(tmp_path, postgres_dsn, blocks=False) as started:
        yield started


class Key(NamedTuple):
    """The key of a row."""

    run_id: str
    attempt: int
    source: str
    rank: int
    step: int


class Reference:
    """All points by metric and key, as the last write of each left them."""

    def __init__(self) -> None:
        self.iteration: dict[Key, int] = {}
        self.time_ms: dict[Key, int] = {}
        self.values: dict[str, dict[Key, float]] = defaultdict(dict)

    def write(self, key: Key, written: StepMetrics) -> None:
        """A row, new or again; its first time stays."""
        assert written.event_time is not None
        self.iteration[key] = key.step if written.iteration is None else written.iteration
        self.time_ms.setdefault(key, int(written.event_time) * 1000)
        for metric, value in written.values.items():
            self.values[metric][key] = value

    def answer(self, low_ms: int = 0, high_ms: int = 2**60) -> list[tuple[Any, ...]]:
        """Return the expected answer: metric by metric, in the order of the answer."""
        found = []
        for metric in sorted(self.values):
            known = [
                (k.run_id, k.attempt, self.iteration[k], self.time_ms[k], k.source, k.rank, k.step, value)
                for k, value in self.values[metric].items()
                if low_ms <= self.time_ms[k] <= high_ms
            ]
            known.sort(key=lambda point: point[:-1])
            found += [(metric, run, attempt, i, at, source, str(v)) for run, attempt, i, at, source, _, _, v in known]
        return found


def shown(found: list[MetricPoint]) -> list[tuple[Any, ...]]:
    """Points as the reference has them."""
    return [(p.metric_name, p.run_id, p.attempt, p.iteration, p.timestamp, p.data_source, str(p.value)) for p in found]


class History:
    """Makes rows and keeps the reference in step with them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.reference = Reference()
        self.sequence = 0
        self.ranks = self.chance.choice([1, 1, 3, 7])
        self.reach: dict[tuple[str, int], int] = {}

    def batch(self) -> list[StepMetrics]:
        """Some rows of one attempt: a stretch of new ones, or old ones again and rows between."""
        chance = self.chance
        attempt = (chance.choice(["a", "b"]), chance.choice([1, 1, 1, 2, 3]))
        reach = self.reach.get(attempt, attempt[1] * 50)
        if chance.random() < 0.3:
            steps = [chance.randrange(-5, reach + 1) for _ in range(chance.randrange(1, 8))]
        else:
            steps = list(range(reach, reach + chance.randrange(1, 60), chance.choice([1, 1, 2])))
        self.reach[attempt] = max(reach, *steps) + 1
        source = chance.choice(["wandb", "wandb", "tensorflow"])
        rank = chance.randrange(self.ranks)
        goes_back = chance.random() < 0.1
        return [self.row(Key(*attempt, source, rank, step), goes_back=goes_back) for step in dict.fromkeys(steps)]

    def row(self, key: Key, *, goes_back: bool) -> StepMetrics:
        chance = self.chance
        self.sequence += 1
        values = {"loss": chance.gauss(0, 1)}
        if chance.random() < 0.05:
            values["loss"] = chance.choice([*SPECIAL, SPIKE * chance.choice([-1, 1])])
        if key.step % 9 == 0:
            values["eval/rare"] = float(key.step)
        made = row(
            key.step,
            origin=Origin(workload_uid="workload-1", rank=key.rank),
            run_id=key.run_id,
            attempt=key.attempt,
            data_source=key.source,
            iteration=chance.randrange(100) if goes_back else None,
            values=values,
            event_time=FIRST_MS / 1000 + max(0, key.step + chance.randrange(3)),
            sequence=self.sequence,
        )
        if key in self.reference.time_ms:
            made = row_again(made, self.reference.time_ms[key], self.reference.iteration[key])
        self.reference.write(key, made)
        return made


def row_again(made: StepMetrics, time_ms: int, iteration: int) -> StepMetrics:
    """A row that is there already keeps its time and its iteration."""
    changes = {"event_time": time_ms / 1000, "iteration": None if iteration == made.row_step else iteration}
    return StepMetrics(**{**{name: getattr(made, name) for name in made.__struct_fields__}, **changes})


async def pages(store: Any, limit: int, **query: Any) -> list[MetricPoint]:
    """All points, asked page by page."""
    found: list[MetricPoint] = []
    cursor = ""
    while True:
        asked = PointQuery(workload_uid="workload-1", limit=limit, cursor=cursor, **query)
        pieces = [piece async for piece in store.metric_columns(asked)]
        found += [point for piece in pieces for point in piece.points()]
        cursor = pieces[-1].next_cursor if pieces else ""
        if not cursor:
            return found


def is_chart(few: list[tuple[Any, ...]], whole: list[tuple[Any, ...]], most: int) -> None:
    """Few points are some of all, in order; of each curve both ends, the spikes and the extremes are among them."""
    for metric in {point[0] for point in whole}:
        mine = [point for point in whole if point[0] == metric]
        drawn = [point for point in few if point[0] == metric]
        assert len(drawn) <= most
        assert set(drawn) <= set(mine)
        assert [point[1:5] for point in drawn] == sorted(point[1:5] for point in drawn)
        curves = defaultdict(list)
        for point in mine:
            curves[point[1], point[2], point[5]].append(point)
        if most < 5 * len(curves):
            continue
        for curve, members in curves.items():
            seen = [point for point in drawn if (point[1], point[2], point[5]) == curve]
            assert [(p[3], p[4]) for p in (seen[0], seen[-1])] == [(p[3], p[4]) for p in (members[0], members[-1])]
            numbers = [float(p[6]) for p in members if p[6] != "nan"]
            if numbers and not any(p[6] == "nan" for p in members):
                assert {min(numbers), max(numbers)} <= {float(p[6]) for p in seen}


def is_figures(found: list[MetricPoint], whole: list[tuple[Any, ...]], figure: str, interval_ms: int) -> None:
    """A figure of each interval of each curve."""
    inside: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for metric, run_id, attempt, iteration, at, source, value in whole:
        key = (metric, run_id, attempt, at // interval_ms * interval_ms, source)
        inside[key].append((metric, run_id, attempt, iteration, at, source, value))
    assert len(found) == len(inside)
    for point in found:
        members = inside[point.metric_name, point.run_id, point.attempt, point.timestamp, point.data_source]
        numbers = [float(p[6]) for p in members if p[6] != "nan"]
        assert point.iteration == max(p[3] for p in members)
        if figure == "count":
            assert point.value == len(numbers)
        elif not numbers:
            assert math.isnan(point.value)
        elif figure == "mean":
            wanted = sum(numbers) / len(numbers)
            assert str(wanted) == str(point.value) or point.value == pytest.approx(wanted, rel=1e-9, abs=1e-3)
        elif figure in ("min", "max"):
            assert point.value == (min if figure == "min" else max)(numbers)
        else:
            moment = (min if figure == "first" else max)(p[4] for p in members if p[6] != "nan")
            assert point.value in [float(p[6]) for p in members if p[4] == moment]


@pytest.mark.parametrize("seed", part(range(9)))
async def test_answers_are_those_of_the_reference(spool: Spool, store: Any, seed: int) -> None:
    history = History(seed)
    chance = history.chance
    for number in range(24):
        await spool.deliver(*history.batch())
        if chance.random() < 0.5:
            await compact(store, partial=chance.random() < 0.5)
        if number % 8 != 7:
            continue
        whole = history.reference.answer()
        assert shown(await points(store)) == whole
        low = FIRST_MS + chance.randrange(150) * 1000
        window = {"start_ms": low, "end_ms": low + chance.randrange(1, 200) * 1000}
        inside = history.reference.answer(window["start_ms"], window["end_ms"])
        assert shown(await points(store, **window)) == inside
        assert shown(await pages(store, chance.choice([7, 31, 150]))) == whole
        assert shown(await pages(store, 23, **window)) == inside
        for most in (1, 2, 3, 10, 60, 200):
            is_chart(shown(await points(store, max_points=most)), whole, most)
            is_chart(shown(await points(store, max_points=most, **window)), inside, most)
        for figure in ("mean", "min", "max", "count", "first", "last"):
            interval_ms = chance.choice([1_000, 20_000, 10**9])
            is_figures(await points(store, aggregate=figure, interval_ms=interval_ms), whole, figure, interval_ms)
            is_figures(
                await points(store, aggregate=figure, interval_ms=interval_ms, **window), inside, figure, interval_ms
            )
        of_rows = await times(store)
        assert len(of_rows) == len(history.reference.iteration)
        few = await times(store, max_points=40)
        assert set(shown(few)) <= set(shown(of_rows))
