"""A sink that does not manage its batches in its time is given smaller ones, and larger ones again later."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Batch, BatchLimits, Delivered, Position, Retry
from lens_core.delivery.sending.policy import PartLimit
from tests.generated import examples
from tests.lens_core.delivery.test_sender import Scripted, pipeline_of, rows, settle, steps


def is_nested(tried: list[tuple[Position, Position]]) -> bool:
    """Whether any two of these lie apart, or one within the other."""
    return all(
        last_a <= first_b or last_b <= first_a or (first_a <= first_b and last_b <= last_a)
        or (first_b <= first_a and last_a <= last_b)
        for number, (first_a, last_a) in enumerate(tried)
        for first_b, last_b in tried[number + 1 :]
    )  # fmt: skip


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 300), st.integers(1, 300))
def test_every_capacity_is_found(size: int, capacity: int) -> None:
    async def judge(batch: Batch) -> object:
        if len(batch.records) > capacity:
            return Retry("too slow", timed_out=True)
        return Delivered()

    async def deliver() -> None:
        with tempfile.TemporaryDirectory() as folder:
            sink = Scripted(judge)
            pipeline = pipeline_of(Path(folder), sink, limits=BatchLimits(max_records=1000, max_wait_seconds=0.0))
            await pipeline.start()
            await pipeline.submit(rows(size))
            await settle(pipeline)
            await pipeline.stop()
            taken = [batch for batch in sink.asked if len(batch.records) <= capacity]
            assert [step for batch in taken for step in steps(batch.records)] == list(range(size))
            assert is_nested([(batch.start, batch.end) for batch in sink.asked])

    asyncio.run(deliver())


async def test_a_timeout_of_the_delivery_halves_as_well(tmp_path: Path) -> None:
    async def judge(batch: Batch) -> object:
        await asyncio.sleep(3600 if len(batch.records) > 30 else 0)
        return Delivered()

    sink = Scripted(judge)
    pipeline = pipeline_of(tmp_path, sink)
    await pipeline.start()
    await pipeline.submit(rows(100))
    await settle(pipeline)
    await pipeline.stop()
    assert [len(batch.records) for batch in sink.asked] == [100, 100, 50, 50, 25, 25, 25, 25]
    assert [batch.attempt for batch in sink.asked] == [1, 2, 1, 2, 1, 1, 1, 1]


async def test_a_sink_that_raises_its_own_timeout_is_given_halves(tmp_path: Path) -> None:
    async def judge(batch: Batch) -> object:
        if len(batch.records) > 2:
            raise TimeoutError("its own")
        return Delivered()

    sink = Scripted(judge)
    pipeline = pipeline_of(tmp_path, sink)
    await pipeline.start()
    await pipeline.submit(rows(4))
    await settle(pipeline)
    await pipeline.stop()
    assert [len(batch.records) for batch in sink.asked] == [4, 4, 2, 2]
    assert "TimeoutError: its own" in pipeline.pipeline_status().sinks[0].last_error


async def test_batches_grow_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    is_slow = True

    async def judge(batch: Batch) -> object:
        return Retry("too slow", timed_out=True) if is_slow and len(batch.records) > 4 else Delivered()

    sink = Scripted(judge)
    pipeline = pipeline_of(tmp_path, sink)
    await pipeline.start()
    await pipeline.submit(rows(16))
    await settle(pipeline)
    assert "timed out with 16 records" in caplog.text
    is_slow = False
    del sink.asked[:]
    for _ in range(30):
        await pipeline.submit(rows(64))
        await settle(pipeline)
    await pipeline.stop()
    assert len(sink.asked[-1].records) == 64


def test_growing_to_what_was_too_large_is_tried_less_and_less_often() -> None:
    limit = PartLimit(10.0)
    tries = [number for number in range(2000) if is_refused(limit, capacity=100)]
    assert len(tries) < 2 * 15
    assert limit.records in (64, 128)


def is_refused(limit: PartLimit, capacity: int) -> bool:
    """Send one part that is as large as it may be; whether it was answered too late."""
    size = min(128, limit.records or 128)
    if size > capacity:
        limit.timed_out(size)
        return True
    limit.answered(size, 0.1)
    return False


async def test_one_timeout_changes_nothing(tmp_path: Path) -> None:
    left = [Retry("busy", timed_out=True), Delivered(), Retry("busy", timed_out=True)]

    async def judge(batch: Batch) -> object:
        return left.pop(0) if left else Delivered()

    sink = Scripted(judge)
    pipeline = pipeline_of(tmp_path, sink)
    await pipeline.start()
    for _ in range(2):
        await pipeline.submit(rows(10))
        await settle(pipeline)
    await pipeline.stop()
    assert [len(batch.records) for batch in sink.asked] == [10, 10, 10, 10]
