"""Helpers of the tests of the PostgreSQL sink."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from lens_plugins.sinks.postgresql import PostgreSQL

from lens_core import (
    Answer,
    Batch,
    Context,
    Delivered,
    MetricPoint,
    Origin,
    PointQuery,
    Position,
    Record,
    Secret,
    StepMetrics,
)
from lens_core.base.self_metrics import SelfMetrics

ORIGIN = Origin(workload_uid="workload-1", pod_uid="pod-uid-1", pod_name="trainer-0", namespace="team")


def context(folder: Path) -> Context:
    """A component's context of its own."""
    return Context(name="store", logger=logging.getLogger("tests.store"), data_dir=folder, metrics=SelfMetrics())


def row(step: int, /, *, origin: Origin = ORIGIN, **changes: Any) -> StepMetrics:
    """One row of run `run-1`."""
    fields: dict[str, Any] = {
        "data_source": "wandb",
        "run_id": "run-1",
        "row_step": step,
        "values": {"loss": 1.0 / (step + 1) if step >= 0 else 0.0},
        "event_time": 1_700_000_000.0 + (step % 1_000_000),
        "sequence": step % 2**62,
    }
    return StepMetrics(origin=origin, **{**fields, **changes})


class Spool:
    """Hands records to a sink as the delivery does, batch after batch."""

    def __init__(self, store: Any, spool_id: str = "spool-1") -> None:
        self.store = store
        self.spool_id = spool_id
        self._numbers = itertools.count(1)
        self._last = Position(0, 0)

    def batch(self, *records: Record) -> Batch:
        """The next batch of the spool."""
        start, self._last = self._last, Position(next(self._numbers), len(records))
        return Batch(records=records, start=start, end=self._last, spool_id=self.spool_id, pipeline="p", sink="store")

    async def send(self, *records: Record) -> Answer:
        """Send the next batch."""
        answer: Answer = await self.store.send(self.batch(*records))
        return answer

    async def deliver(self, *records: Record) -> None:
        """Send the next batch, which the sink must take whole."""
        answer = await self.send(*records)
        assert isinstance(answer, Delivered), answer


@asynccontextmanager
async def running_store(folder: Path, dsn: str | None, points: str | None = None, **options: Any) -> AsyncIterator[Any]:
    """A started store; `dsn` None for one with a PostgreSQL of its own."""
    secret = None if dsn is None else Secret(dsn)
    if points is not None:
        options["points"] = Secret(points)
    store = PostgreSQL(PostgreSQL.Settings(dsn=secret, **options), context(folder))
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def points(store: Any, **query: Any) -> list[MetricPoint]:
    """All points of a query."""
    asked = PointQuery(**{"workload_uid": "workload-1", **query})
    return [point async for piece in store.metric_points(asked) for point in piece]


async def times(store: Any, **query: Any) -> list[MetricPoint]:
    """The iteration times of a query."""
    asked = PointQuery(**{"workload_uid": "workload-1", **query})
    return [point async for piece in store.iteration_times(asked) for point in piece]


def ask(dsn: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """The rows of a plain SQL statement."""
    with psycopg.connect(dsn) as connection:
        rows: Sequence[tuple[Any, ...]] = connection.execute(statement.encode(), parameters or None).fetchall()
        return list(rows)
