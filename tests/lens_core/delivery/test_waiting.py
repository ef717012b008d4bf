"""Waiting with a limit: answers that come in time, too late, together with the end, or never."""

from __future__ import annotations

import asyncio

import pytest

from lens_core.delivery.sending.policy import NoAnswer, answer_within, is_set_within


async def after(seconds: float, result: int = 7) -> int:
    await asyncio.sleep(seconds)
    return result


async def test_an_answer_in_time() -> None:
    assert await answer_within(5.0, after(0.0), asyncio.Event()) == 7


async def test_no_answer_in_time_is_cancelled() -> None:
    ended = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    with pytest.raises(NoAnswer, match=r"no answer within 0\.01 s"):
        await answer_within(0.01, slow(), asyncio.Event())
    assert ended.is_set()


async def test_its_own_errors_are_its_own() -> None:
    async def raises(error: BaseException) -> None:
        raise error

    with pytest.raises(TimeoutError, match="mine"):
        await answer_within(5.0, raises(TimeoutError("mine")), asyncio.Event())
    with pytest.raises(NoAnswer, match="gave up by itself"):
        await answer_within(5.0, raises(asyncio.CancelledError()), asyncio.Event())


async def test_halting_ends_the_wait_and_keeps_an_answer_that_is_there() -> None:
    halt = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, halt.set)
    with pytest.raises(NoAnswer, match="stopped before it answered"):
        await answer_within(60.0, after(60.0), halt)

    async def finishes_when_cancelled() -> int:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return 9
        return 0

    assert await answer_within(60.0, finishes_when_cancelled(), halt) == 9


async def test_a_cancelled_waiter_cancels_what_it_waits_for() -> None:
    ended = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    waiter = asyncio.create_task(answer_within(60.0, slow(), asyncio.Event()))
    await asyncio.sleep(0.01)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert ended.is_set()


async def test_events_with_a_limit() -> None:
    event = asyncio.Event()
    assert await is_set_within(0.01, event) is False
    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await is_set_within(10.0, event) is True
    assert await is_set_within(0.0, event) is True
