"""Two stores get the same batches, one with its points in PostgreSQL, one in ClickHouse: every answer is the same.

Batches come late, overwrite, come again (whole, cut otherwise, or out of another spool), out of order; inserts into
ClickHouse fail before and after they took effect; retention and deletion remove; everything is exported and replayed.
"""

from __future__ import annotations

import math
import random
import re
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from lens_plugins.sinks.postgresql import rank_summaries
from lens_plugins.sinks.postgresql.plugin import PostgreSQL
from lens_plugins.sinks.postgresql.retention import Policy, retain

from lens_core import (
    Batch,
    Delivered,
    Event,
    Measurement,
    Origin,
    PointQuery,
    Position,
    Record,
    Rejected,
    Retry,
    StepMetrics,
)
from lens_core.http.run_table import RunTable
from tests.generated import part
from tests.plugins.sinks.postgresql.clickhouse.conftest import Engine
from tests.plugins.sinks.postgresql.support import Spool, ask, running_store

FIRST_US = 1_700_000_000_000_000
NAN_WITH_PAYLOAD = struct.unpack("<d", struct.pack("<Q", 0xFFF0_0000_DEAD_BEEF))[0]
SPECIAL = (
    *(math.nan, NAN_WITH_PAYLOAD, math.inf, -math.inf, -0.0, 0.0, 1e308, -sys.float_info.max),
    *(5e-324, -5e-324, 2.2250738585072009e-308, sys.float_info.min),  # the first three have no exponent
    *(2**53 + 1, -(2**53) - 1, 2**63, 2**64 - 1, 10**22, 0.1 + 0.2, 1e23),
)
NAMES = ("loss", "lr", "eval/acc", "b", "target_iteration")
ODD_NAMES = ("", " ", "損失/ü\u0301", "😀", 'it\'s \\ "so"\n\t', "nul\0nul", "\ud800", "{}", "Loss", "l" * 300)
LOWEST, HIGHEST = -(2**63), 2**63 - 1
FIGURES = "mean,min,max,sum,count,first,last,p50,p99.5"
VOLATILE = re.compile(r"updated|received|changed|eta|remaining")


@pytest.fixture
async def twins(tmp_path: Path, postgres_dsn: str, other_dsn: str, points_address: str) -> AsyncIterator[list[Any]]:
    """A store with its points in PostgreSQL, and one with them in ClickHouse."""
    async with AsyncExitStack() as stack:
        one = running_store(tmp_path / "one", postgres_dsn, blocks=False, history_limit=4)
        other = running_store(tmp_path / "other", other_dsn, points_address, blocks=False, history_limit=4)
        yield [await stack.enter_async_context(one), await stack.enter_async_context(other)]


class Traffic:
    """Makes batches, and remembers them to send them again."""

    def __init__(self, seed: int, *, extreme: bool = False) -> None:
        self.chance = random.Random(seed)
        self.extreme = extreme
        self.batches: list[Batch] = []
        self.positions: dict[str, int] = {}
        self.reach: dict[Any, int] = {}

    def rows(self) -> list[Record]:
        """Rows of one stream, now and then with an event among them."""
        chance = self.chance
        uid, run = chance.choice(["workload-1", "workload-2"]), chance.choice(["a", "a", "b"])
        if self.extreme and chance.random() < 0.1:
            run = chance.choice(["", "ü's \\ run\n", "損失"])
        source, rank = chance.choice(["wandb", "wandb", "log", "tensorflow"]), chance.choice([None, 0, 1, 2])
        key = (uid, run, source, rank)
        reach = self.reach.get(key, 0)
        if chance.random() < 0.35:
            steps = [chance.randrange(-3, reach + 2) for _ in range(chance.randrange(1, 12))]
        else:
            steps = list(range(reach, reach + chance.randrange(1, 40), chance.choice([1, 1, 3])))
        self.reach[key] = max(reach, *steps) + 1
        if self.extreme and chance.random() < 0.3:
            steps += [chance.choice([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST])]
        made: list[Record] = [self.row(*key, step) for step in steps]
        if chance.random() < 0.2:
            made.append(Event(origin=Origin(workload_uid=uid), type="training_started", event_time=FIRST_US / 1e6))
        return made

    def row(self, uid: str, run: str, source: str, rank: int | None, step: int) -> StepMetrics:
        """One row, mostly an ordinary one."""
        chance = self.chance
        names = [name for name in NAMES if chance.random() < 0.5]
        if self.extreme and chance.random() < 0.2:
            names.append(chance.choice(ODD_NAMES))
        near = step if abs(step) < 2**40 else 0
        return StepMetrics(
            origin=Origin(workload_uid=uid, rank=rank, pod_uid=f"pod-{rank}", pod_name=f"trainer-{rank}"),
            data_source=source,
            run_id=run,
            attempt=chance.choice([1, 1, 1, 2]),
            row_step=step,
            iteration=chance.choice([None, None, None, step, near + chance.randrange(-5, 5)]),
            values={name: self.value() for name in names},
            event_time=chance.choice([None, FIRST_US / 1e6 + max(0, near) + chance.choice([0, 0.25, -1, 2])]),
            sequence=chance.choice([chance.randrange(5), FIRST_US + near, LOWEST, HIGHEST]),
            tags={name: {"unit": chance.choice(["s", "ü\\'\n"])} for name in names if chance.random() < 0.1},
        )

    def value(self) -> float:
        """A number, now and then a special one."""
        return self.chance.choice(SPECIAL) if self.chance.random() < 0.1 else self.chance.gauss(0, 1)

    def batch(self) -> Batch:
        """The next batch of one of two spools, or one that was sent before, whole, in part, or out of a third spool."""
        chance = self.chance
        if self.batches and chance.random() < 0.3:
            old = chance.choice(self.batches)
            how = chance.choice(["whole", "part", "other"])
            if how == "whole":
                return old
            if how == "part":
                count = chance.randrange(1, len(old.records) + 1)
                end = Position(old.end.batch, count)
                return msgspec.structs.replace(old, records=old.records[:count], end=end)
            return self.named(old.records, "spool-3")
        found = self.named([record for _ in range(chance.randrange(1, 4)) for record in self.rows()])
        self.batches.append(found)
        return found

    def named(self, records: Any, spool: str = "") -> Batch:
        """Records as the next batch of a spool."""
        spool = spool or self.chance.choice(["spool-1", "spool-2"])
        number = self.positions[spool] = self.positions.get(spool, 0) + 1
        end = Position(number, len(records))
        return Batch(records=records, start=Position(number, 0), end=end, spool_id=spool, pipeline="p", sink="store")


async def deliver(store: Any, batch: Batch) -> None:
    """Send a batch until it is taken, as the delivery does."""
    for _ in range(10):
        answer = await store.send(batch)
        if isinstance(answer, Delivered | Rejected):
            return
        assert isinstance(answer, Retry), answer
    raise AssertionError("it was never taken")


def plain(found: Any) -> Any:
    """Anything as values that can be compared, NaN and the sign of zero included."""
    if isinstance(found, float):
        return repr(found)
    if isinstance(found, dict):
        return {str(key): plain(value) for key, value in found.items() if not VOLATILE.search(str(key))}
    if isinstance(found, bytes | str | int | None):
        return found
    if hasattr(found, "__struct_fields__"):
        return plain(msgspec.structs.asdict(found))
    return [plain(item) for item in found]


async def columns(found: Any) -> list[tuple[Any, ...]]:
    """Points of columns one by one, however they were cut into pieces."""
    points: list[tuple[Any, ...]] = []
    async for piece in found:
        extras = [piece.extras[name] for name in sorted(piece.extras)]
        head = (piece.metric_name, piece.data_source, piece.run_id, piece.attempt)
        every = zip(piece.iterations, piece.timestamps, map(repr, piece.values), *extras, strict=True)
        points += [(*head, *one[:3], repr(one[3:])) for one in every]
    return points


async def pages(store: Any, limit: int, **query: Any) -> list[Any]:
    """All pages of an answer, with the number of points that they tell of."""
    found: list[Any] = []
    cursor = ""
    while True:
        asked = PointQuery(workload_uid="workload-1", limit=limit, cursor=cursor, **query)
        pieces = [piece async for piece in store.metric_columns(asked)]
        found += [await columns(_each(pieces)), pieces[-1].total_count if pieces else 0]
        cursor = pieces[-1].next_cursor if pieces else ""
        if not cursor:
            return found


async def _each(pieces: list[Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece


def questions(chance: random.Random) -> list[dict[str, Any]]:
    """Options of questions for points."""
    low = FIRST_US // 1000 + chance.randrange(60) * 1000
    window = {"start_ms": low, "end_ms": low + chance.randrange(1, 60) * 1000}
    return [
        {},
        {"is_descending": True, "fields": ("rank", "pod_uid", "pod_name", "tags")},
        window,
        {"metrics": ("loss", "nothing", "b"), "rank": 1},
        {"run_id": "a", "attempt": 1, "data_source": "wandb,log"},
        {"last": chance.choice([1, 3, 20])},
        {"max_points": chance.choice([1, 3, 10, 60])},
        {"max_points": 10_000, **window},
        {"aggregate": FIGURES, "interval_ms": chance.choice([1_000, 20_000])},
        {"aggregate": FIGURES, "interval_iterations": 2**50 if chance.random() < 0.5 else 2**60},
        {"aggregate": "mean,p90", "interval_ms": 10_000, **window},
        {"is_across_runs": True, "others": ("workload-2",), "aggregate": "mean", "interval_ms": 5_000},
        {"is_by_workload": True, "others": ("workload-2",), "aggregate": "mean", "interval_ms": 5_000},
    ]


async def answers(store: Any, seed: int) -> dict[str, Any]:
    """The answers to all that can be asked."""
    chance = random.Random(seed)
    found: dict[str, Any] = {}
    for number, options in enumerate(questions(chance)):
        asked = PointQuery(workload_uid="workload-1", **options)
        found[f"points {number} {options}"] = await columns(store.metric_columns(asked))
        if number in (0, 2, 5, 6):
            found[f"times {number} {options}"] = await columns(store.iteration_columns(asked))
    found["pages"] = await pages(store, chance.choice([60, 150]))
    found["pages of a window"] = await pages(store, 70, start_ms=FIRST_US // 1000 + 3_000)
    query = PointQuery(workload_uid="workload-1")
    empty = await store.news(query, "")
    found["news"] = plain((await store.news(query, empty.cursor)).points)
    found["progress"] = plain(await store.newest_progress(["workload-1", "workload-2"]))
    found["runs"] = plain(await store.run_progress(query))
    rows = await RunTable().run_rows(store, ["workload-1", "workload-2"])
    found["table of runs"] = [(one.run_id, sorted(one.last), sorted(one.best.items())) for one in rows]
    for uid in ("workload-1", "workload-2"):
        found[f"workload {uid}"] = plain(await store.workload(uid))
        found[f"metrics {uid}"] = plain(await store.available_metrics(uid, ""))
        found[f"sources {uid}"] = plain(await store.metric_sources(uid))
    found["export"] = [plain(record) async for piece in store.export_records("") for record in piece]
    return found


async def compare(twins: list[Any], seed: int) -> None:
    """Every answer of both stores is the same."""
    one, other = [await answers(store, seed) for store in twins]
    for question, wanted in one.items():
        assert other[question] == wanted, question


@pytest.fixture
def other_dsn(postgres_server: str) -> Any:
    """A second fresh database."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("create database twin")
    yield psycopg.conninfo.make_conninfo(postgres_server, dbname="twin")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("drop database twin with (force)")


class Clock:
    """The time of receipt: that of the batch, however often it is tried."""

    def __init__(self) -> None:
        self.now_ns = (FIRST_US + 10**9) * 1000

    def time_ns(self) -> int:
        return self.now_ns

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


FIGURES_OF_STREAMS = (
    "select id, rows, last_step, own_iterations, first_iteration, last_iteration, target_iteration, first_seen_us,"
    " last_seen_us from lens_stream order by id"
)
FIGURES_OF_METRICS = "select stream_id, metric, points from lens_catalogue order by 1, 2"
FIGURES_OF_SUBJECTS = "select key, rows, last_iteration, first_seen_us, last_seen_us from lens_subject order by 1"


@pytest.mark.slow("asks two stores everything, three times, and one of them in a process of its own")
@pytest.mark.parametrize("seed", range(2))
async def test_answers_are_the_same(
    twins: list[Any],
    engine: Engine,
    points_address: str,
    postgres_dsn: str,
    other_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    clock = Clock()
    monkeypatch.setattr(sys.modules[PostgreSQL.__module__], "time", clock)
    traffic = Traffic(seed, extreme=seed == 1)
    chance = traffic.chance
    table = f"{points_address.rsplit('/', 1)[1]}.lens_point"
    for number, _ in enumerate(part(range(36))):
        clock.now_ns += 1_000_000_000
        batch = traffic.batch()
        engine.set_faults(*chance.choice([[], ["before"], ["after"], ["lost"], ["after", "before", "after"]]))
        for store in twins:
            await deliver(store, batch)
        if number % 7 == 6:
            engine.run(f"optimize table {table} final")
        for statement in (FIGURES_OF_STREAMS, FIGURES_OF_METRICS, FIGURES_OF_SUBJECTS):
            assert ask(other_dsn, statement) == ask(postgres_dsn, statement)
    await compare(twins, seed)
    for store in twins:
        assert await store.delete_run("workload-1", "b") is not None
    await compare(twins, seed)
    removed = []
    for store in twins:
        async with await store.database.connect() as connection:
            removed.append(await retain(connection, store._points, Policy(days=1), FIRST_US + 10**15))
    assert removed[0] == removed[1]
    assert removed[0]["rows_removed"]
    assert engine.run(f"select count() from {table}").strip() == "0"
    again = traffic.named([record for batch in traffic.batches for record in batch.records], "replay")
    for store in twins:
        await deliver(store, again)
    await compare(twins, seed)


async def test_measurements_are_the_same_in_both(twins: list[Any]) -> None:
    records = [
        Measurement(
            origin=Origin(node="n1"), name=name, value=value, event_time=1_700_000_000.0 + at, tags={"gpu": "0"}
        )
        for name, value, at in (
            ("gpu.used_pct", 50.0, 0),
            ("gpu.power_watts", 300.0, 0),
            ("gpu.used_pct", 60.0, 90_000),
        )
    ]
    query = PointQuery(
        workload_uid="lens-measured/node/n1", aggregate="mean,max", interval_ms=200_000_000, is_across_runs=True
    )
    answers = []
    for store in twins:
        await Spool(store).deliver(*records)
        pieces = [piece async for piece in store.metric_columns(query)]
        answers.append(sorted((piece.metric_name, value) for piece in pieces for value in piece.values))
        assert (await store.workloads()).workloads == []
    power, used = "gpu.power_watts{gpu=0}", "gpu.used_pct{gpu=0}"
    assert answers[0] == answers[1] == [(power, 300.0), (power, 300.0), (used, 55.0), (used, 60.0)]


@pytest.mark.parametrize("seed", range(2))
async def test_summaries_over_ranks_are_the_same(twins: list[Any], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_summaries, "MANY_RANKS", 2)
    traffic = Traffic(seed)
    clock = Clock()
    monkeypatch.setattr(sys.modules[PostgreSQL.__module__], "time", clock)
    query = PointQuery(workload_uid="workload-1", max_points=5_000, over_ranks=5_000)
    for _ in range(30):
        batch = traffic.batch()
        for store in twins:
            await deliver(store, batch)
        clock.now_ns += 10**9
    found = []
    for store in twins:
        pieces = [piece async for piece in store.metric_columns(query)]
        assert {"lowest_rank" in piece.extras for piece in pieces} == {False, True}
        summaries = [piece for piece in pieces if "lowest_rank" in piece.extras]
        # Not the lowest rank's: of several rows that it has of one iteration any may be shown.
        names = ("count", "not_finite", "min", "max")
        keys = [(one.metric_name, one.data_source, one.run_id, one.attempt) for one in summaries]
        columns = [[[*one.iterations], [*one.timestamps], *(one.extras[name] for name in names)] for one in summaries]
        means = [pytest.approx([*one.values], rel=1e-9, abs=1e-9, nan_ok=True) for one in summaries]
        found.append([*zip(keys, columns, means, strict=True)])
    assert found[0]
    for (key, columns, means), (other_key, other_columns, other_means) in zip(*found, strict=True):
        assert key == other_key
        for name, column, other in zip(("iteration", "timestamp", *names), columns, other_columns, strict=True):
            assert column == other, name
        assert means == other_means.expected


@pytest.mark.parametrize("seed", range(2))
async def test_news_are_the_same_and_read_many_ranges_at_once(
    twins: list[Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(seed, extreme=True)
    monkeypatch.setattr(sys.modules[PostgreSQL.__module__], "time", clock := Clock())
    query = PointQuery(workload_uid="workload-1")
    cursors = ["", ""]
    rows = 0
    for _ in range(4):
        found = []
        for place, store in enumerate(twins):
            news = await store.news(query, cursors[place])
            cursors[place] = news.cursor
            found.append(plain([news.points, news.changed, news.left_out]))
        assert found[0] == found[1]
        rows += len(found[0][0])
        for _ in range(6):
            batch = traffic.batch()
            for store in twins:
                await deliver(store, batch)
            clock.now_ns += 10**9
    assert rows > 10
    clickhouse = twins[1]._points.clickhouse
    statements = []
    ask_client = clickhouse._ask_client

    async def noted(method: str, *arguments: Any, **options: Any) -> Any:
        statements.append(method)
        return await ask_client(method, *arguments, **options)

    monkeypatch.setattr(clickhouse, "_ask_client", noted)
    assert (await twins[1].news(query, cursors[1])).points
    assert statements == ["raw_query", "query"]  # which rows, and their versions
