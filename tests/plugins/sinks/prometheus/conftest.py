from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.sinks.prometheus.plugin import Prometheus
from lens_plugins.sinks.prometheus.settings import PrometheusSettings

from lens_core import Answer, Batch, Context, Position, Record, SeriesBatch
from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from tests.plugins.sinks.prometheus.store import Store, running_store
from tests.plugins.sources.remote_write.wire import packed, request, series

NOW = 1_795_000_000_000


class Bench:
    """A sink, its surroundings, and batches as the delivery makes them."""

    def __init__(self, url: str | None, **settings: Any) -> None:
        self.metrics = SelfMetrics()
        self.directory = Directory()
        context = Context(
            name="tsdb",
            logger=logging.getLogger("test"),
            data_dir=Path("kept"),
            metrics=self.metrics,
            directory=self.directory,
        )
        self.sink = Prometheus(PrometheusSettings(url=url, **settings), context)
        self._place = 0

    def batch(self, records: Sequence[Record], attempt: int = 1) -> Batch:
        """The next batch."""
        self._place += 1
        return Batch(
            records=records,
            start=Position(self._place, 0),
            end=Position(self._place + 1, 0),
            spool_id="spool",
            pipeline="default",
            sink="tsdb",
            attempt=attempt,
        )

    async def send(self, *records: Record) -> Answer:
        """Send a batch once."""
        answer: Answer = await self.sink.send(self.batch(records))
        return answer


def series_batch(*names: str, stamp: int = NOW, value: float = 1.0) -> SeriesBatch:
    """A record with one sample for each of these series."""
    body = packed(request(*(series({"__name__": name}, (value, stamp)) for name in names)))
    return SeriesBatch(body=body, compression="snappy", series=len(names))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens soon."""

    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(wait(), 240)


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinks keep their state in the test's folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with running_store() as running:
        yield running
