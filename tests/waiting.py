"""Waiting for an answer that has to be asked for, as `lens_core.testing.until` waits for a condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until_answer(
    ask: Callable[[], Awaitable[T]], is_right: Callable[[T], object], *, seconds: float = 240.0
) -> T:
    """Ask until the answer is right, and return it; raises AssertionError with the last one when the time is up."""
    ends = time.monotonic() + seconds
    while not is_right(answer := await ask()):
        assert time.monotonic() < ends, f"after {seconds:g} s still: {answer!r}"
        await asyncio.sleep(0.05)
    return answer
