"""The cost of the three analyzers beside running jobs: `python -m benchmarks.goodput_cost [--quick] [--json]`.

Jobs of many ranks that each log a row every ten seconds are stored in PostgreSQL by a process of its own, at first an
hour of them. Then each analyzer looks at all jobs once (the start of a daemon), half an hour of rows more is stored,
and each looks at all again. The second round is what running jobs cost: the CPU seconds of this process (those of
PostgreSQL apart) over the time after which the analyzers, with their default settings, look at a job again. CPU seconds
count, so that another load on the machine matters little. The memory is what this process grew by.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import psutil
from lens_plugins.analyzers.goodput.analyzer import Goodput, GoodputSettings
from lens_plugins.analyzers.regressions.analyzer import Regressions, RegressionsSettings
from lens_plugins.analyzers.stragglers.analyzer import Stragglers, StragglersSettings
from lens_plugins.analyzers.turns import TurnSettings
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.settings import PostgreSQLSettings

from benchmarks.harness import Figure, option_parser, postgres, report, temporary_folder
from lens_core import Analyzer, Batch, Delivered, Origin, Position, Secret, StepMetrics
from lens_core.testing import make_context

ROW_SECONDS = 10.0
_FULL_SECONDS = 20.0
_BATCH = 2000


class Size(msgspec.Struct, frozen=True):
    """The jobs, the ranks of each, the rows that are there at first, and those that come between the rounds."""

    jobs: int
    ranks: int
    history: int
    news: int


class Round(msgspec.Struct, frozen=True):
    """The CPU and wall seconds of one look of one analyzer at all jobs."""

    cpu: float
    wall: float


class Cost(msgspec.Struct, frozen=True):
    """The first round of each analyzer, its share of a core afterwards, and the memory that all took."""

    first: dict[str, Round]
    shares: dict[str, float]
    rests: dict[str, float]
    grown_mib: float


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


def write_rows(channel: Connection, folder: Path, dsn: str, size: Size, begun: float) -> None:
    """Store the rows that are there at first, and those that come later when the channel asks."""
    asyncio.run(_write_rows(channel, folder, dsn, size, begun))


async def _write_rows(channel: Connection, folder: Path, dsn: str, size: Size, begun: float) -> None:
    store = PostgreSQL(PostgreSQLSettings(dsn=Secret(dsn)), make_context("store", folder / "writer"))
    await store.start()
    number = 0

    async def deliver(records: Sequence[StepMetrics]) -> None:
        nonlocal number
        for begin in range(0, len(records), _BATCH):
            place = Position(number, 0), Position(number + 1, 0)
            part = records[begin : begin + _BATCH]
            batch = Batch(records=part, start=place[0], end=place[1], spool_id="s", pipeline="p", sink="store")
            answer = await store.send(batch)
            assert isinstance(answer, Delivered), answer
            number += 1

    for job in range(size.jobs):
        await deliver(rows(job, size.ranks, 1, size.history, begun))
        print(f"stored {job + 1} of {size.jobs} jobs", file=sys.stderr, end="\r", flush=True)
    channel.send("stored")
    await asyncio.to_thread(channel.recv)
    for job in range(size.jobs):
        await deliver(rows(job, size.ranks, size.history + 1, size.news, begun))
    channel.send("stored")
    await store.stop()


async def measure(folder: Path, dsn: str, size: Size) -> Cost:
    """Return what the analyzers take; a process beside this one writes the rows."""
    begun = time.time() - ROW_SECONDS * (size.history + size.news)
    channel, other = multiprocessing.Pipe()
    writer = multiprocessing.get_context("spawn").Process(target=write_rows, args=(other, folder, dsn, size, begun))
    writer.start()
    await asyncio.to_thread(channel.recv)
    store = PostgreSQL(PostgreSQLSettings(dsn=Secret(dsn)), make_context("store", folder))
    await store.start()
    process = psutil.Process()
    before = process.memory_info().rss
    # Without a rest one round looks at every job; how long they rest is calculated from what it takes.
    usual: list[TurnSettings] = [GoodputSettings(), StragglersSettings(), RegressionsSettings()]
    analyzers: list[Analyzer] = [
        Goodput(GoodputSettings(longest_rest_seconds=0.0), make_context("goodput", folder)),
        Stragglers(StragglersSettings(longest_rest_seconds=0.0), make_context("stragglers", folder)),
        Regressions(RegressionsSettings(longest_rest_seconds=0.0), make_context("regressions", folder)),
    ]
    for analyzer in analyzers:
        analyzer.store = store
        await analyzer.start()
    first = {analyzer.name: await _examine_all(analyzer, size.jobs) for analyzer in analyzers}
    print(f"first round: {first}, {(process.memory_info().rss - before) / 2**20:.1f} MiB", file=sys.stderr, flush=True)
    channel.send("more")
    await asyncio.to_thread(channel.recv)
    again = {analyzer.name: await _examine_all(analyzer, size.jobs) for analyzer in analyzers}
    grown = (process.memory_info().rss - before) / 2**20
    print(f"second round: {again}, {grown:.1f} MiB", file=sys.stderr, flush=True)
    await asyncio.to_thread(writer.join)
    for analyzer in analyzers:
        await analyzer.stop()
    await store.stop()
    # The rest is counted from CPU seconds, not from the longer wall seconds: that makes it shorter, the share larger.
    rests = {
        name: max(60.0, min(settings.longest_rest_seconds, one.cpu / settings.core_share))
        for settings, (name, one) in zip(usual, again.items(), strict=True)
    }
    return Cost(first, {name: one.cpu / rests[name] for name, one in again.items()}, rests, grown)


async def _examine_all(analyzer: Analyzer, jobs: int) -> Round:
    """Let the analyzer look at all jobs: one call examines as many as 20 seconds allow."""
    wall, cpu = time.monotonic(), time.process_time()
    changed, _ = await analyzer.store.changed_workloads("")
    assert len(changed) == jobs, len(changed)
    while True:
        began = time.monotonic()
        await analyzer.analyze(changed)
        await analyzer.stored()
        changed = []
        if time.monotonic() - began < _FULL_SECONDS:
            return Round(time.process_time() - cpu, time.monotonic() - wall)


def main() -> None:
    """Measure and report."""
    parser = option_parser(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=200, help="how many jobs there are")
    chosen = parser.parse_args()
    size = Size(5, 8, 60, 30) if chosen.quick else Size(chosen.jobs, 64, 360, 180)
    with temporary_folder() as folder, postgres(folder) as database:
        cost = asyncio.run(measure(folder, database("goodput"), size))
    name = f"{size.jobs} jobs × {size.ranks} ranks"
    share = sum(cost.shares.values())
    figures = [
        Figure(
            figure=f"CPU of the first look, {name}",
            unit="s",
            lens=sum(one.cpu for one in cost.first.values()),
            spread=", ".join(f"{analyzer} {one.cpu:.1f}" for analyzer, one in cost.first.items()),
        ),
        Figure(
            figure=f"CPU of three analyzers, {name}",
            unit="share of a core",
            lens=share,
            goal="<= 0.02",
            holds=share <= 0.02,
            spread="; ".join(
                f"{analyzer} {part:.4f}, each job every {cost.rests[analyzer] / 60:.0f} min"
                for analyzer, part in cost.shares.items()
            ),
        ),
        Figure(
            figure=f"memory of three analyzers, {name}",
            unit="MiB",
            lens=cost.grown_mib,
            goal="<= 50",
            holds=cost.grown_mib <= 50,
        ),
    ]
    report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
