"""A daemon that was superseded, and does not know it yet, writes nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from lens_core import Batch, Delivered, Position, Retry, StepMetrics
from tests.plugins.sinks.postgresql.support import points, row


def batch_of(start: int, end: int, epoch: int, *rows: StepMetrics) -> Batch:
    return Batch(
        records=rows,
        start=Position(start, 1),
        end=Position(end, len(rows)),
        spool_id="log/0",
        pipeline="p",
        sink="store",
        epoch=epoch,
    )


async def test_a_batch_of_an_older_lease_is_refused_and_not_stored(store: Any) -> None:
    assert isinstance(await store.send(batch_of(0, 1, 5, row(1))), Delivered)
    assert isinstance(await store.send(batch_of(1, 2, 7, row(2))), Delivered)
    answer = await store.send(batch_of(2, 3, 5, row(3)))
    assert isinstance(answer, Retry)
    assert "another daemon" in answer.reason
    assert [point.iteration for point in await points(store)] == [1, 2]
    assert await store.position("log/0") == Position(2, 1)
    assert isinstance(await store.send(batch_of(2, 3, 7, row(3))), Delivered)
    assert [point.iteration for point in await points(store)] == [1, 2, 3]


async def test_a_new_owner_may_send_again_what_the_one_before_has_stored(store: Any) -> None:
    first = batch_of(0, 1, 5, row(1))
    assert isinstance(await store.send(first), Delivered)
    assert isinstance(await store.send(msgspec.structs.replace(first, epoch=6)), Delivered)
    assert [point.iteration for point in await points(store)] == [1]
