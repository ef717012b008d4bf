"""The cost of the three analyzers beside running jobs: `python -m benchmarks.goodput_cost [--quick] [--json]`.

Jobs of many ranks that each log a row every ten seconds are stored in PostgreSQL; the analyzers look at them with their
default settings for some minutes, while rows come. Measured are the CPU time of this process within the looks (that of
PostgreSQL apart) and the memory that it grew by.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from lens_plugins.analyzers.goodput.analyzer import Goodput, GoodputSettings
from lens_plugins.analyzers.regressions.analyzer import Regressions, RegressionsSettings
from lens_plugins.analyzers.stragglers.analyzer import Stragglers, StragglersSettings
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.settings import PostgreSQLSettings

from benchmarks.harness import Figure, options, postgres, report, temporary_folder
from lens_core import Analyzer, Batch, Delivered, Origin, Position, Secret, StepMetrics
from lens_core.testing import make_context

ROW_SECONDS = 10.0
_BATCH = 2000


def rows(job: int, ranks: int, first: int, count: int, begun: float) -> list[StepMetrics]:
    """Rows of all ranks of one job, with times of their own parts of a step."""
    return [
        StepMetrics(
            origin=Origin(workload_uid=f"job-{job}", rank=rank, node=f"node-{rank // 8}", world_size=ranks),
            data_source="wandb",
            run_id="run",
            session=f"s{rank}",
            row_step=step,
            values={"loss": 2.0 + 3.0 / step, "forward_time": 100.0 + (rank * 7 + step) % 5, "step_time": 9.9},
            event_time=begun + ROW_SECONDS * step,
            sequence=step,
        )
        for step in range(first, first + count)
        for rank in range(ranks)
    ]


async def measure(folder: Path, dsn: str, jobs: int, ranks: int, history: int, minutes: float) -> tuple[float, float]:
    """Return the share of a core, and the MiB that the analyzers take."""
    store = PostgreSQL(PostgreSQLSettings(dsn=Secret(dsn)), make_context("store", folder))
    await store.start()
    begun = time.time() - ROW_SECONDS * history
    number = 0

    async def deliver(records: Sequence[StepMetrics]) -> None:
        nonlocal number
        for begin in range(0, len(records), _BATCH):
            part = records[begin : begin + _BATCH]
            place = Position(number, 0), Position(number + 1, 0)
            answer = await store.send(
                Batch(records=part, start=place[0], end=place[1], spool_id="s", pipeline="p", sink="store")
            )
            assert isinstance(answer, Delivered), answer
            number += 1

    for job in range(jobs):
        await deliver(rows(job, ranks, 1, history, begun))
    process = psutil.Process()
    before = process.memory_info().rss
    analyzers: list[Analyzer] = [
        Goodput(GoodputSettings(), make_context("goodput", folder)),
        Stragglers(StragglersSettings(), make_context("stragglers", folder)),
        Regressions(RegressionsSettings(), make_context("regressions", folder)),
    ]
    cursors = dict.fromkeys(range(len(analyzers)), "")
    for analyzer in analyzers:
        analyzer.store = store
        await analyzer.start()
    step, cpu, started = history + 1, 0.0, time.monotonic()
    looks = max(2, round(minutes))
    for _ in range(looks):
        round_began = time.monotonic()
        for job in range(jobs):
            await deliver(rows(job, ranks, step, 1, begun))
        step += 1
        for index, analyzer in enumerate(analyzers):
            cpu_began = time.process_time()
            changed, cursors[index] = await store.changed_workloads(cursors[index])
            await analyzer.analyze(changed)
            await analyzer.stored()
            cpu += time.process_time() - cpu_began
        await asyncio.sleep(max(0.0, 60.0 * minutes / looks - (time.monotonic() - round_began)))
    elapsed = time.monotonic() - started
    grown = (process.memory_info().rss - before) / 2**20
    for analyzer in analyzers:
        await analyzer.stop()
    await store.stop()
    return cpu / elapsed, grown


def main() -> None:
    """Measure and report."""
    chosen = options(__doc__ or "")
    jobs, ranks, history, minutes = (5, 8, 60, 0.2) if chosen.quick else (200, 64, 360, 20.0)
    with temporary_folder() as folder, postgres(folder) as database:
        share, grown = asyncio.run(measure(folder, database("goodput"), jobs, ranks, history, minutes))
    name = f"{jobs} jobs × {ranks} ranks"
    figures = [
        Figure(
            figure=f"CPU of three analyzers, {name}",
            unit="share of a core",
            lens=share,
            goal="<= 0.02",
            holds=share <= 0.02,
        ),
        Figure(figure=f"memory of three analyzers, {name}", unit="MiB", lens=grown, goal="<= 50", holds=grown <= 50),
    ]
    report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
