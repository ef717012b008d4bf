"""A cursor's commit and the next send go together; what is not committed is sent again, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lens_core import Answer, Batch, BatchLimits, Context, Delivered, NoSettings, Record, Sink, StepMetrics
from lens_core.base.errors import Overloaded
from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.sending.policy import DeliverySettings
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.pipeline.pipeline import Pipeline
from lens_core.testing import make_context, until

TEN = BatchLimits(max_records=10, max_wait_seconds=0.0)
QUICK = DeliverySettings(retry_base_seconds=0.0001, retry_cap_seconds=0.001)


class Keeping(Sink):
    """Remembers the steps of each batch."""

    name = "keeping"

    def __init__(self, context: Context) -> None:
        super().__init__(NoSettings(), context)
        self.batches: list[list[int]] = []

    async def send(self, batch: Batch) -> Answer:
        self.batches.append([record.row_step for record in batch.records if isinstance(record, StepMetrics)])
        return Delivered()


class SlowCommits(Spool):
    """A spool whose cursors move only when they may; `failures` are raised first, one after the other."""

    def __init__(self, path: Path, failures: Sequence[Exception] = ()) -> None:
        super().__init__(path)
        self.may_commit = asyncio.Event()
        self.failures = list(failures)

    async def advance(self, *args: Any, **named: Any) -> None:
        await self.may_commit.wait()
        if self.failures:
            raise self.failures.pop(0)
        await super().advance(*args, **named)


def rows(count: int) -> list[Record]:
    return [StepMetrics(data_source="w", row_step=step, values={"x": 1.0}) for step in range(count)]


def tens(count: int) -> list[list[int]]:
    return [list(range(first, first + 10)) for first in range(0, 10 * count, 10)]


def pipeline_of(spool: Spool, sink: Sink) -> Pipeline:
    return Pipeline("p", spool, [SinkSlot(name="s", sink=sink, limits=TEN, delivery=QUICK)], metrics=SelfMetrics())


def dropped_of(pipeline: Pipeline) -> Mapping[str, int]:
    return pipeline.pipeline_status().sinks[0].ledger.dropped


async def test_one_more_batch_is_sent_while_a_commit_is_under_way_and_no_second_one(tmp_path: Path) -> None:
    spool = SlowCommits(tmp_path / "p.spool")
    sink = Keeping(make_context("s", tmp_path))
    pipeline = pipeline_of(spool, sink)
    await pipeline.start()
    await pipeline.submit(rows(40))
    await until(lambda: len(sink.batches) == 2, "the second batch is sent")
    assert pipeline.pipeline_status().sinks[0].pending_records == 40
    spool.may_commit.set()
    await until(lambda: pipeline.pipeline_status().sinks[0].pending_records == 0, "everything is committed")
    assert sink.batches == tens(4)
    await pipeline.stop()


async def test_what_was_sent_and_not_committed_is_sent_again_after_a_restart(tmp_path: Path) -> None:
    first, sink = SlowCommits(tmp_path / "p.spool"), Keeping(make_context("s", tmp_path))
    pipeline = pipeline_of(first, sink)
    await pipeline.start()
    await pipeline.submit(rows(30))
    await until(lambda: len(sink.batches) == 2, "the second batch is sent")
    for task in [task for task in asyncio.all_tasks() if task.get_name().startswith("sender-")]:
        task.cancel()
    await pipeline.stop(0.0)
    again = pipeline_of(Spool(tmp_path / "p.spool"), sink)
    await again.start()
    await until(lambda: again.pipeline_status().sinks[0].pending_records == 0, "everything is delivered")
    assert sink.batches == [*tens(2), *tens(3)]
    await again.stop()


@pytest.mark.parametrize("failure", [Overloaded("no space"), ValueError("a mistake in the spool")])
async def test_a_commit_that_fails_loses_nothing(tmp_path: Path, failure: Exception) -> None:
    spool = SlowCommits(tmp_path / "p.spool", [failure])
    sink = Keeping(make_context("s", tmp_path))
    pipeline = pipeline_of(spool, sink)
    await pipeline.start()
    spool.may_commit.set()
    await pipeline.submit(rows(30))
    await until(lambda: pipeline.pipeline_status().sinks[0].pending_records == 0, "everything is committed")
    # A full disk is waited for; after a mistake nobody knows what the spool has, so it is sent again.
    assert len(sink.batches) == 3 if isinstance(failure, Overloaded) else len(sink.batches) in (4, 5)
    status = pipeline.pipeline_status().sinks[0]
    assert (status.ledger.delivered, dropped_of(pipeline)) == (30, {})
    assert pipeline.senders[0].ledger.sink_difference(0) == 0
    await pipeline.stop()


async def test_a_few_records_wait_for_more_although_a_commit_is_under_way(tmp_path: Path) -> None:
    spool = SlowCommits(tmp_path / "p.spool")
    sink = Keeping(make_context("s", tmp_path))
    pipeline = pipeline_of(spool, sink)
    await pipeline.start()
    await pipeline.submit(rows(10))
    await until(lambda: len(sink.batches) == 1, "the first batch is sent")
    await pipeline.submit(rows(3))
    spool.may_commit.set()
    await until(lambda: pipeline.pipeline_status().sinks[0].pending_records == 0, "everything is committed")
    assert [len(batch) for batch in sink.batches] == [10, 3]
    await pipeline.stop()
