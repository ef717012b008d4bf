"""Reading ahead hands nothing out, holds little, and never gives what has been skipped meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lens_core import BatchLimits, StepMetrics
from lens_core.delivery.sending.cursor import MAX_BYTES_AHEAD, Prefetcher, Unpacked
from lens_core.delivery.spool.batches import NewBatch
from lens_core.delivery.spool.spool import Spool
from lens_core.model.record_filter import EVERYTHING, Matcher
from lens_core.model.records import encode_envelope
from lens_core.plugin_api.sink_answers import Position

TEN = BatchLimits(max_records=10)


def batch(first: int, count: int = 10, unit: str = "") -> NewBatch:
    tags = {"x": {"unit": unit}} if unit else {}
    rows = [StepMetrics(data_source="w", row_step=first + n, values={"x": 1.0}, tags=tags) for n in range(count)]
    return NewBatch(encode_envelope(rows, 1.0), count)


def steps(unpacked: Unpacked | None) -> list[int]:
    assert unpacked is not None
    return [record.row_step for record in unpacked.records if isinstance(record, StepMetrics)]


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Spool]:
    opened = Spool(tmp_path / "p.spool")
    await opened.open({"s": False})
    yield opened
    await opened.close()


async def test_what_was_read_ahead_comes_next_and_is_not_handed_out_before(spool: Spool) -> None:
    await spool.append_all([batch(0), batch(10), batch(20, 3)])
    prefetcher = Prefetcher("s", spool, Matcher(EVERYTHING))
    assert steps(await prefetcher.next_batch(TEN)) == list(range(10))
    prefetcher.prefetch_batch(TEN)
    await asyncio.sleep(0)
    assert spool.sink_state("s").in_flight_end == Position(1, 10)
    assert steps(await prefetcher.next_batch(TEN)) == list(range(10, 20))
    prefetcher.prefetch_batch(TEN)  # only three are left: no full batch, so it is not begun
    await spool.append_all([batch(23, 7)])
    assert steps(await prefetcher.next_batch(TEN)) == list(range(20, 30))
    assert await prefetcher.next_batch(TEN) is None


async def test_what_was_skipped_after_it_was_read_ahead_is_not_given(spool: Spool) -> None:
    await spool.append_all([batch(0), batch(10), batch(20)])
    prefetcher = Prefetcher("s", spool, Matcher(EVERYTHING))
    await prefetcher.next_batch(TEN)
    prefetcher.prefetch_batch(TEN)
    await asyncio.sleep(0)
    await spool.advance("s", Position(2, 10), 10)
    assert steps(await prefetcher.next_batch(TEN)) == list(range(20, 30))


async def test_a_large_batch_is_not_read_ahead(spool: Spool) -> None:
    unit = "u" * (MAX_BYTES_AHEAD // 10)
    await spool.append_all([batch(0), batch(10, unit=unit), batch(20, unit=unit)])
    prefetcher = Prefetcher("s", spool, Matcher(EVERYTHING))
    await prefetcher.next_batch(TEN)
    prefetcher.prefetch_batch(TEN)
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert steps(await prefetcher.next_batch(TEN)) == list(range(10, 20))
    await prefetcher.discard()
