"""Waiting for a condition, with a deadline instead of a sleep that is hoped to be long enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], bool], what: str, *, seconds: float = 120.0) -> None:
    """Return as soon as the condition holds; raises AssertionError that names `what` when the time is up."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        await asyncio.sleep(0.005)
