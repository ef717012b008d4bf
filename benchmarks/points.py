"""Points in ClickHouse beside points in PostgreSQL: room, CPU, charts, many ranks, a question over many runs.

Both stores get the same rows through the same sink. ClickHouse is its own engine (chdb) behind the HTTP server of
the tests, so that its figures are those of the engine, not of a tuned server.

CPU is all that a store takes until it rests: that of this process without the making of the rows, and that of all
processes of the databases. With points in PostgreSQL that includes the blocks, out of which it answers and whose bytes
are measured, and with points in ClickHouse the merges of its parts. It is taken for a backlog (batches of 20,000 rows),
for batches of 2,000, and for 2,000 rows a second, of which each store has the batches that its limits make.

The 10,000,000 steps and those of the ranks are put into the databases directly (`points_data.py`). Charts and the best
loss are asked of the store, the chart of the ranks of a daemon, over HTTP. `--part` measures one figure alone. The full
size takes minutes of an idle machine.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.blocks import BLOCK_ROWS

from benchmarks.harness import (
    Daemon,
    Figure,
    option_parser,
    percentile,
    postgres,
    report,
    temporary_folder,
)
from benchmarks.points_data import load_long_run, load_ranks
from benchmarks.points_stores import METRICS, PASSWORD, Place, Writer, cpu_of, engine, opened, rows_of, servers
from benchmarks.query_data import has_spikes, planted
from lens_core import PointQuery

BATCH_ROWS = 20_000  # as the delivery cuts what waits
SMALL_BATCH_ROWS = 2_000
SMALL_ROWS = 60_000
ROWS_A_SECOND = 2_000
RUNS_A_BATCH = 20
PARTS = ("bytes", "cpu", "charts", "ranks", "runs")


class Sizes(NamedTuple):
    """The amount that is written."""

    chart: int  # sent
    long_chart: int  # loaded
    ranks: int
    rank_steps: int
    runs: int
    repeats: int


class Goal(NamedTuple):
    """A bound of a figure: at most so much, or at most this part of PostgreSQL's."""

    most: float
    is_share: bool = False


FULL = Sizes(1_000_000, 10_000_000, 2_000, 10_000, 1_000, 20)
QUICK = Sizes(20_000, 200_000, 300, 200, 50, 5)
# Of the full size.
GOALS = {
    "bytes a point": Goal(12),
    "CPU per million points": Goal(0.5, is_share=True),
    "chart of 1,000,000 steps": Goal(15),
    "chart of 10,000,000 steps": Goal(20),
    "chart of all ranks": Goal(300),
    "best loss of each run": Goal(200),
}


class Spent(NamedTuple):
    """CPU seconds of this process and of the databases."""

    own: float
    database: float


async def count_answer(store: PostgreSQL, **query: Any) -> int:
    """Ask for points; how many there are."""
    return len(await iterations_of(store, **query))


async def iterations_of(store: PostgreSQL, **query: Any) -> list[int]:
    """Ask for points; their iterations."""
    pieces = [piece async for piece in store.metric_columns(PointQuery(**query))]
    return [iteration for piece in pieces for iteration in piece.iterations]


async def median_ms(store: PostgreSQL, query: dict[str, Any], repeats: int) -> float:
    """The median time of a question."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        await count_answer(store, **query)
        times.append((time.perf_counter() - begun) * 1e3)
    return percentile(times, 0.5)


async def spent_seconds(place: Place, writer: Writer, uid: str, steps: int, batch_rows: int) -> Spent:
    """CPU seconds of writing rows, until the store rests."""
    making = 0.0
    spikes = frozenset(planted(steps))
    own, database = time.process_time(), place.database_seconds()
    for first in range(0, steps, batch_rows):
        begun = time.thread_time()
        rows = rows_of(uid, range(first, min(first + batch_rows, steps)), spikes=spikes)
        making += time.thread_time() - begun
        await writer.send_rows(rows)
    await until_at_rest(place)
    return Spent(time.process_time() - own - making, place.database_seconds() - database)


async def until_at_rest(place: Place) -> None:
    """Wait until all blocks are made, and the store and its databases do hardly anything for two seconds."""
    quiet = 0
    while quiet < 2:
        before = place.database_seconds() + time.process_time()
        await asyncio.sleep(1)
        is_quiet = place.database_seconds() + time.process_time() - before < 0.05
        quiet = quiet + 1 if is_quiet and not (place.points is None and has_rows_to_block(place.dsn)) else 0


def has_rows_to_block(dsn: str) -> bool:
    """Whether a stream has rows enough for one more block."""
    with psycopg.connect(dsn) as connection:
        return bool(
            connection.execute("select from lens_stream where rows - blocked_rows >= %s", [BLOCK_ROWS]).rowcount
        )


def cpu_figures(label: str, spent: Spent, steps: int) -> dict[str, float]:
    """CPU per million points, and which part of it is whose."""
    millions = steps * METRICS / 1e6
    name = f"CPU per million points, {label}"
    return {
        name: (spent.own + spent.database) / millions,
        f"– of it Lens, {label}": spent.own / millions,
        f"– of it the databases, {label}": spent.database / millions,
    }


async def measure_small_batches(place: Place, writer: Writer, sizes: Sizes) -> dict[str, float]:
    """CPU of batches that are not full."""
    found: dict[str, float] = {}
    steps = min(SMALL_ROWS, sizes.chart)
    as_limited = round(ROWS_A_SECOND * place.store.limits().max_wait_seconds)
    for label, rows in (
        (f"batches of {SMALL_BATCH_ROWS:,} rows", SMALL_BATCH_ROWS),
        (f"{ROWS_A_SECOND:,} rows a second", as_limited),
    ):
        found.update(cpu_figures(label, await spent_seconds(place, writer, label, steps, rows), steps))
        await place.store.delete_workload(label)
        await place.store.vacuum()
    return found


async def measure_long_run(place: Place, writer: Writer, sizes: Sizes, parts: Sequence[str]) -> dict[str, float]:
    """Room, CPU and chart of a long run that is sent."""
    found: dict[str, float] = {}
    steps = sizes.chart
    spent = await spent_seconds(place, writer, "chart", steps, BATCH_ROWS)
    if "cpu" in parts:
        found.update(cpu_figures(f"batches of {BATCH_ROWS:,} rows", spent, steps))
    await place.store.vacuum()
    if "bytes" in parts:
        found[f"bytes a point, {steps:,} rows"] = place.stored_bytes() / (steps * METRICS)
    if "charts" in parts:
        found[f"chart of {steps:,} steps, p50"] = await measure_chart(place, "chart", steps, sizes.repeats)
    await place.store.delete_workload("chart")
    await place.store.vacuum()
    return found


async def measure_chart(place: Place, uid: str, steps: int, repeats: int) -> float:
    """The median time of a chart, which has all spikes."""
    asked: dict[str, Any] = {"workload_uid": uid, "metrics": ("m7",), "max_points": 1000}
    assert has_spikes(steps, await iterations_of(place.store, **asked)), "a spike is missing"
    return await median_ms(place.store, asked, repeats)


async def measure_loaded_run(place: Place, sizes: Sizes) -> dict[str, float]:
    """The chart of a run that is too long to be sent."""
    steps = sizes.long_chart
    await load_long_run(place.dsn, "long", steps, place.clickhouse)
    await until_at_rest(place)
    return {f"chart of {steps:,} steps, p50": await measure_chart(place, "long", steps, sizes.repeats)}


async def measure_ranks(place: Place, writer: Writer, sizes: Sizes, folder: Path) -> dict[str, float]:
    """A chart of a job of many ranks, asked over HTTP."""
    first = [row for rank in range(sizes.ranks) for row in rows_of("ranks", range(1), rank=rank)]
    await writer.send_rows(first)
    await load_ranks(place.store, "ranks", sizes.rank_steps, place.clickhouse)
    await until_at_rest(place)
    points = "" if place.points is None else f', points: "{place.points}"'
    config = f'sinks: {{store: {{type: postgresql, dsn: "{place.dsn}"{points}}}}}\nserver: {{listen: "127.0.0.1:0"}}\n'
    daemon = await asyncio.to_thread(Daemon(folder / f"daemon-{place.name}", config).start)
    try:
        async with httpx.AsyncClient(base_url=daemon.url, timeout=600) as client:
            times = []
            for _ in range(sizes.repeats):
                begun = time.perf_counter()
                answer = await client.get("/api/v1/workloads/ranks/metrics/data?metrics=m7&max_points=1000")
                times.append((time.perf_counter() - begun) * 1e3)
            found = answer.raise_for_status().json()
    finally:
        await asyncio.to_thread(daemon.stop)
    assert found["over_ranks"], "it is not the chart over all ranks"
    assert max(point["iteration"] for point in found["data"]) == sizes.rank_steps - 1, "its end is missing"
    return {"chart of all ranks, p50": percentile(times, 0.5)}


async def measure_runs(place: Place, writer: Writer, sizes: Sizes) -> dict[str, float]:
    """A question over many runs."""
    for low in range(0, sizes.runs, RUNS_A_BATCH):
        runs = range(low, min(low + RUNS_A_BATCH, sizes.runs))
        await writer.send_rows([row for run in runs for row in rows_of("runs", range(100), run=f"run-{run}")])
    await place.store.vacuum()  # PostgreSQL itself looks within a minute at tables that have grown so
    best: dict[str, Any] = {
        "workload_uid": "runs",
        "metrics": ("m3",),
        "aggregate": "min",
        "interval_iterations": 2**62,
    }
    assert await count_answer(place.store, **best) == sizes.runs
    return {"best loss of each run, p50": await median_ms(place.store, best, sizes.repeats)}


async def measure(place: Place, sizes: Sizes, parts: Sequence[str], folder: Path) -> dict[str, float]:
    """The wanted figures of one place."""
    found: dict[str, float] = {}
    writer = Writer(place.store)
    if "cpu" in parts:
        found.update(await measure_small_batches(place, writer, sizes))
    if {"bytes", "cpu", "charts"} & {*parts}:
        found.update(await measure_long_run(place, writer, sizes, parts))
    if "charts" in parts:
        found.update(await measure_loaded_run(place, sizes))
    if "ranks" in parts:
        found.update(await measure_ranks(place, writer, sizes, folder))
    if "runs" in parts:
        found.update(await measure_runs(place, writer, sizes))
    return found


def figures(apart: dict[str, float], rows: dict[str, float], *, are_full: bool) -> list[Figure]:
    """The figures of both places beside each other; goals are those of the full size."""
    units = {"CPU": "s", "–": "s", "bytes": "B"}
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
                        *("PostgreSQL", store, database("rows"), None),
                        *(lambda: cpu_of(servers()), lambda: _ask_number(store.database.dsn, size)),
                    ),
                    *(sizes, parts, folder),
                )

            def apart_bytes() -> float:
                ask("optimize table points.lens_point final")
                return float(
                    ask("select sum(bytes_on_disk) from system.parts where active and database = 'points'").strip()
                )

            async with opened(folder / "apart", database("apart"), points) as store:
                apart = await measure(
                    Place(
                        *("ClickHouse", store, database("apart"), points),
                        *(lambda: cpu_of([process, *servers()]), apart_bytes),
                    ),
                    *(sizes, parts, folder),
                )
            return figures(apart, rows, are_full=not chosen.quick)

        report(asyncio.run(measure_both()), as_json=chosen.json)


def _ask_number(dsn: str, statement: str) -> float:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement.encode()).fetchone()
        return float(row[0]) if row is not None else math.nan


if __name__ == "__main__":
    main()
