"""The stores of benchmarks/points.py, with their databases, and the rows that they get."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.clickhouse.client import ClickHouse
from lens_plugins.sinks.postgresql.clickhouse.store import ClickHouseStore

from benchmarks.harness import peer_environment
from benchmarks.query_data import SPIKE
from lens_core import Batch, Origin, Position, Secret, StepMetrics
from lens_core.testing.hosts import make_context

ENGINE = Path(__file__).parents[1] / "tests" / "plugins" / "sinks" / "postgresql" / "clickhouse" / "engine.py"
FIRST_SECOND = 1_700_000_000.0
METRICS = 8
PASSWORD = "benchmark"


class Place(NamedTuple):
    """A store, the addresses of its databases, the CPU seconds of these, and the bytes of its points."""

    name: str
    store: PostgreSQL
    dsn: str
    points: str | None
    database_seconds: Callable[[], float]
    stored_bytes: Callable[[], Any]

    @property
    def clickhouse(self) -> ClickHouse | None:
        """The ClickHouse that has the points, if one has."""
        found = self.store._points
        return found.clickhouse if isinstance(found, ClickHouseStore) else None


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
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a worker of autovacuum that has ended
            if child.name().startswith("postgres"):
                found.append(child)
    return found


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


def rows_of(
    uid: str, steps: range, *, run: str = "run", rank: int | None = None, spikes: Collection[int] = ()
) -> list[StepMetrics]:
    """Rows of one run, a second apart, as the hook sends them; of a rank its only metric."""
    origin = Origin(workload_uid=uid, rank=rank)
    numbers = range(METRICS) if rank is None else [7]
    return [
        StepMetrics(
            origin=origin,
            data_source="wandb",
            run_id=run,
            row_step=step,
            values={
                f"m{number}": SPIKE
                if number == 7 and step in spikes
                else math.sin(step / (100 + number)) + (step * 7919 % 1000) / 1e4
                for number in numbers
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
