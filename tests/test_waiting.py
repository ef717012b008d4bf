"""Waiting for an answer: the right one is returned, and the last wrong one is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.waiting import until_answer


async def test_the_first_right_answer_is_returned() -> None:
    numbers: Iterator[int] = iter(range(10))

    async def ask() -> int:
        return next(numbers)

    assert await until_answer(ask, lambda number: number == 3) == 3
    assert next(numbers) == 4


async def test_the_last_answer_is_named_when_the_time_is_up() -> None:
    async def ask() -> str:
        return "not yet"

    with pytest.raises(AssertionError, match="still: 'not yet'"):
        await until_answer(ask, lambda answer: answer == "done", seconds=0.1)
