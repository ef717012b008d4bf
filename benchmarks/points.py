"""Points in ClickHouse beside points in PostgreSQL: room, CPU, charts, many ranks, a question over many runs.

Both stores get the same batches through the same sink. ClickHouse is its own engine (chdb) behind the HTTP server of
the tests, so that its figures are those of the engine, not of a tuned server. CPU is that of this process, which
encodes, and of the database together, with all merges that it does until it is idle; making the rows is not in it.
`--part` measures one figure alone. The full size takes an hour.
"""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
from lens_plugins.sinks.postgresql import PostgreSQL

from benchmarks.harness import (
    Figure,
    option_parser,
    peer_environment,
    percentile,
    postgres,
    report,
    temporary_folder,
)
from lens_core import Batch, Origin, PointQuery, Position, Secret, StepMetrics
from lens_core.testing.hosts import make_context

ENGINE = Path(__file__).parents[1] / "tests" / "plugins" / "sinks" / "postgresql" / "clickhouse" / "engine.py"
FIRST_SECOND = 1_700_000_000.0
METRICS = 8
BATCH_ROWS = 20_000  # as the delivery cuts what waits
SMALL_BATCH_ROWS = 2_000
SMALL_BATCHES = 60
RUNS_A_BATCH = 20
PARTS = ("bytes", "cpu", "charts", "ranks", "runs")
PASSWORD = "benchmark"


class Sizes(NamedTuple):
    """The amount that is written."""

    charts: Sequence[int]
    ranks: int
    rank_steps: int
    runs: int
    repeats: int


class Goal(NamedTuple):
    """A bound of a figure: at most so much, or at most this part of PostgreSQL's."""

    most: float
    is_share: bool = False


FULL = Sizes([1_000_000, 10_000_000], 2_000, 10_000, 1_000, 20)
QUICK = Sizes([20_000], 20, 200, 50, 5)
# Of the full size.
GOALS = {
    "bytes a point": Goal(12),
    "CPU per million points": Goal(0.5, is_share=True),
    "chart of 1,000,000 steps": Goal(15),
    "chart of 10,000,000 steps": Goal(20),
    "chart of all ranks": Goal(300),
    "best loss of each run": Goal(200),
}


class Place(NamedTuple):
    """A store, the CPU seconds of its database, and the bytes of its points."""

    name: str
    store: PostgreSQL
    cpu_seconds: Callable[[], float]
    stored_bytes: Callable[[], Any]


@contextmanager
def engine(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """ClickHouse's engine behind HTTP; its port and process."""
    python = str(peer_environment("chdb", ["chdb-core==26.9.0"]) / "python")
    environ = {**os.environ, "LENS_TEST_PASSWORD": PASSWORD}
    with subprocess.Popen(
        [python, str(ENGINE), str(folder)], stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), psutil.Process(process.pid)
        finally:
            process.kill()


def cpu_of(processes: Sequence[psutil.Process]) -> float:
    """CPU seconds of these processes, ended children included."""
    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def servers() -> list[psutil.Process]:
    """All processes of the benchmark's PostgreSQL."""
    return [child for child in psutil.Process().children(recursive=True) if child.name().startswith("postgres")]


@asynccontextmanager
async def opened(folder: Path, dsn: str, points: str | None) -> AsyncIterator[PostgreSQL]:
    """A running store."""
    folder.mkdir()
    address = None if points is None else Secret(points)
    store = PostgreSQL(PostgreSQL.Settings(dsn=Secret(dsn), points=address), make_context("store", folder))
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


def rows_of(uid: str, steps: range, *, run: str = "run", rank: int | None = None) -> list[StepMetrics]:
    """Rows of one run, a second apart, as the hook sends them."""
    origin = Origin(workload_uid=uid, rank=rank)
    return [
        StepMetrics(
            origin=origin,
            data_source="wandb",
            run_id=run,
            row_step=step,
            values={
                f"m{number}": math.sin(step / (100 + number)) + (step * 7919 % 1000) / 1e4 for number in range(METRICS)
            },
            event_time=FIRST_SECOND + step + (step * 104_729 % 1000) / 1e6,
            sequence=int((FIRST_SECOND + step) * 1e6) + step * 104_729 % 1000 + 40,
        )
        for step in steps
    ]


class Writer:
    """Hands rows to a store in batches."""

    def __init__(self, store: PostgreSQL) -> None:
        self._store = store
        self._number = 0

    async def send_rows(self, rows: Sequence[StepMetrics]) -> None:
        """Send rows as one batch."""
        start, self._number = Position(self._number, 0), self._number + 1
        end = Position(self._number, len(rows))
        batch = Batch(records=rows, start=start, end=end, spool_id="spool", pipeline="p", sink="store")
        answer = await self._store.send(batch)
        assert type(answer).__name__ == "Delivered", answer


async def count_answer(store: PostgreSQL, **query: Any) -> int:
    """Ask for points; how many there are."""
    return sum([len(piece.values) async for piece in store.metric_columns(PointQuery(**query))])


async def median_ms(store: PostgreSQL, query: dict[str, Any], repeats: int) -> float:
    """The median time of a question."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        await count_answer(store, **query)
        times.append((time.perf_counter() - begun) * 1e3)
    return percentile(times, 0.5)


async def spent_seconds(place: Place, writer: Writer, uid: str, steps: int, batch_rows: int) -> float:
    """CPU seconds of writing rows, until the database has nothing left to do."""
    spent = 0.0
    for first in range(0, steps, batch_rows):
        rows = rows_of(uid, range(first, min(first + batch_rows, steps)))
        cpu, own = place.cpu_seconds(), time.process_time()
        await writer.send_rows(rows)
        spent += place.cpu_seconds() - cpu + time.process_time() - own
    cpu = place.cpu_seconds()
    while True:
        before = place.cpu_seconds()
        await asyncio.sleep(1)
        if place.cpu_seconds() - before < 0.05:
            return spent + place.cpu_seconds() - cpu


async def measure_long_runs(place: Place, writer: Writer, sizes: Sizes, parts: Sequence[str]) -> dict[str, float]:
    """Room, CPU and charts of long runs."""
    found: dict[str, float] = {}
    if "cpu" in parts:
        steps = min(SMALL_BATCHES * SMALL_BATCH_ROWS, sizes.charts[0])
        spent = await spent_seconds(place, writer, "small-batches", steps, SMALL_BATCH_ROWS)
        found[f"CPU per million points, batches of {SMALL_BATCH_ROWS:,} rows"] = spent / (steps * METRICS / 1e6)
        await place.store.delete_workload("small-batches")
        await place.store.vacuum()
    for steps in sizes.charts:
        spent = await spent_seconds(place, writer, f"chart-{steps}", steps, BATCH_ROWS)
        if "cpu" in parts:
            found[f"CPU per million points, {steps:,} rows"] = spent / (steps * METRICS / 1e6)
        await place.store.vacuum()
        if "bytes" in parts:
            found[f"bytes a point, {steps:,} rows"] = place.stored_bytes() / (steps * METRICS)
        if "charts" in parts:
            asked: dict[str, Any] = {"workload_uid": f"chart-{steps}", "metrics": ("m3",), "max_points": 1000}
            found[f"chart of {steps:,} steps, p50"] = await median_ms(place.store, asked, sizes.repeats)
        await place.store.delete_workload(f"chart-{steps}")
        await place.store.vacuum()
    return found


async def measure_ranks(place: Place, writer: Writer, sizes: Sizes) -> dict[str, float]:
    """A chart of a job of many ranks."""
    for first in range(0, sizes.rank_steps, 100):
        steps = range(first, min(first + 100, sizes.rank_steps))
        for low in range(0, sizes.ranks, BATCH_ROWS // 100):
            ranks = range(low, min(low + BATCH_ROWS // 100, sizes.ranks))
            await writer.send_rows([row for rank in ranks for row in rows_of("ranks", steps, rank=rank)])
    asked: dict[str, Any] = {"workload_uid": "ranks", "metrics": ("m3",), "max_points": 1000}
    return {"chart of all ranks, p50": await median_ms(place.store, asked, sizes.repeats)}


async def measure_runs(place: Place, writer: Writer, sizes: Sizes) -> dict[str, float]:
    """A question over many runs."""
    for low in range(0, sizes.runs, RUNS_A_BATCH):
        runs = range(low, min(low + RUNS_A_BATCH, sizes.runs))
        await writer.send_rows([row for run in runs for row in rows_of("runs", range(100), run=f"run-{run}")])
    best: dict[str, Any] = {
        "workload_uid": "runs",
        "metrics": ("m3",),
        "aggregate": "min",
        "interval_iterations": 2**62,
    }
    assert await count_answer(place.store, **best) == sizes.runs
    return {"best loss of each run, p50": await median_ms(place.store, best, sizes.repeats)}


async def measure(place: Place, sizes: Sizes, parts: Sequence[str]) -> dict[str, float]:
    """The wanted figures of one place."""
    found: dict[str, float] = {}
    writer = Writer(place.store)
    if {"bytes", "cpu", "charts"} & {*parts}:
        found.update(await measure_long_runs(place, writer, sizes, parts))
    if "ranks" in parts:
        found.update(await measure_ranks(place, writer, sizes))
    if "runs" in parts:
        found.update(await measure_runs(place, writer, sizes))
    return found


def figures(apart: dict[str, float], rows: dict[str, float], *, are_full: bool) -> list[Figure]:
    """The figures of both places beside each other; goals are those of the full size."""
    units = {"CPU": "s", "bytes": "B"}
    found = []
    for name, value in apart.items():
        goal = GOALS.get(name.split(",")[0] if "steps" not in name else name.rpartition(",")[0])
        most = None if goal is None or not are_full else goal.most * (rows[name] if goal.is_share else 1.0)
        found.append(
            Figure(
                figure=name,
                unit=units.get(name.split()[0], "ms"),
                lens=value,
                peer=rows[name],
                peer_name="PostgreSQL",
                ratio=rows[name] / value,
                goal="" if most is None else f"at most {most:.3g}",
                holds=None if most is None else value <= most,
            )
        )
    return found


def main() -> None:
    """Measure both places."""
    parser = option_parser(__doc__ or "")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure this figure alone; may be repeated")
    chosen = parser.parse_args()
    parts: Sequence[str] = chosen.part or PARTS
    sizes = QUICK if chosen.quick else FULL
    with temporary_folder() as folder, postgres(folder / "postgresql") as database, engine(folder) as (port, process):
        address = f"http://127.0.0.1:{port}/"

        def ask(statement: str) -> str:
            answer = httpx.post(address, content=statement, auth=("lens", PASSWORD), timeout=600)
            return answer.raise_for_status().text

        ask("create database points")

        async def measure_both() -> list[Figure]:
            points = f"clickhouse://lens:{PASSWORD}@127.0.0.1:{port}/points"
            async with opened(folder / "rows", database("rows"), None) as store:
                size = "select pg_total_relation_size('lens_row') + pg_total_relation_size('lens_block')"
                size += " + pg_total_relation_size('lens_column')"
                rows = await measure(
                    Place(
                        "PostgreSQL", store, lambda: cpu_of(servers()), lambda: _ask_number(store.database.dsn, size)
                    ),
                    sizes,
                    parts,
                )

            def apart_bytes() -> float:
                ask("optimize table points.lens_point final")
                return float(
                    ask("select sum(bytes_on_disk) from system.parts where active and database = 'points'").strip()
                )

            async with opened(folder / "apart", database("apart"), points) as store:
                apart = await measure(
                    Place("ClickHouse", store, lambda: cpu_of([process, *servers()]), apart_bytes), sizes, parts
                )
            return figures(apart, rows, are_full=not chosen.quick)

        report(asyncio.run(measure_both()), as_json=chosen.json)


def _ask_number(dsn: str, statement: str) -> float:
    import psycopg

    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement.encode()).fetchone()
        return float(row[0]) if row is not None else math.nan


if __name__ == "__main__":
    main()
