"""Promised room: kept for who asked, whatever others do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lens_core import Overloaded
from lens_core.delivery.spool.spool import NewBatch, Spool
from lens_core.delivery.spool.tables import size_of
from tests.lens_core.delivery.noise import noise

BATCH = NewBatch(noise(1000), 1)
FIVE = size_of([BATCH.body] * 5)


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Spool]:
    made = Spool(tmp_path / "x.spool", max_bytes=FIVE)
    await made.open({"a": True})
    yield made
    await made.close()


async def test_nobody_else_gets_promised_room(spool: Spool) -> None:
    reservation = await spool.reserve([BATCH] * 4)
    await spool.append_all([BATCH])
    with pytest.raises(Overloaded):
        await spool.append_all([BATCH])
    with pytest.raises(Overloaded):
        await spool.reserve([BATCH])
    await spool.append_all([BATCH] * 4, reservation=reservation)
    assert (spool.pending("a").records, spool.engine.reservations.bytes, spool.free_bytes) == (5, 0, 0)


async def test_the_last_room_is_given_to_the_byte(spool: Spool) -> None:
    await spool.append_all([BATCH])
    reservation = await spool.reserve([BATCH])
    await spool.append_all([BATCH] * 3)
    assert spool.free_bytes == 0
    with pytest.raises(Overloaded):
        await spool.append_all([NewBatch(b"x", 1)])
    await spool.append_all([BATCH], reservation=reservation)
    assert spool.pending("a").records == 5


async def test_room_that_is_given_up_is_free_again(spool: Spool) -> None:
    reservation = await spool.reserve([BATCH] * 5)
    reservation.release()
    reservation.release()
    assert spool.engine.reservations.bytes == 0
    await spool.append_all([BATCH] * 5)


async def test_an_empty_spool_promises_a_batch_of_any_size_to_one(spool: Spool) -> None:
    large = NewBatch(noise(10_000), 1)
    asked = await asyncio.gather(spool.reserve([large]), spool.reserve([large]), return_exceptions=True)
    [reservation] = [answer for answer in asked if not isinstance(answer, BaseException)]
    with pytest.raises(Overloaded):
        await spool.append_all([large])
    await spool.append_all([large], reservation=reservation)
    assert spool.pending("a").records == 1


async def test_a_promise_that_is_refused_or_cancelled_keeps_nothing(spool: Spool) -> None:
    await spool.append_all([BATCH])
    with pytest.raises(Overloaded):
        await spool.reserve([BATCH] * 5)
    asking = asyncio.create_task(spool.reserve([BATCH] * 5))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert spool.engine.reservations.bytes == 0


async def test_what_was_promised_is_not_refused_for_what_is_on_its_way(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "x.spool", max_queued_bytes=3000)
    await spool.open({"a": True})
    reservation = await spool.reserve([BATCH] * 3)
    first = asyncio.create_task(spool.append_all([BATCH] * 3))
    second = asyncio.create_task(spool.append_all([BATCH] * 3, reservation=reservation))
    await asyncio.gather(first, second)
    assert spool.pending("a").records == 6
    await spool.close()
