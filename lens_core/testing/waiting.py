"""Waiting for a condition, with a deadline instead of a sleep that is hoped to be long enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.1
# A condition that takes long is asked less often, so that what it waits for has the processor most of the time.
_PAUSES_PER_QUESTION = 4


async def until(condition: Callable[[], bool], what: str, *, seconds: float = 120.0) -> None:
    """Return as soon as the condition holds; raises AssertionError that names `what` when the time is up."""
    asked = time.monotonic()
    ends = asked + seconds
    while not condition():
        now = time.monotonic()
        if now > ends:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        pause = max(_PAUSE_SECONDS, _PAUSES_PER_QUESTION * (now - asked))
        await asyncio.sleep(min(pause, _LONGEST_PAUSE_SECONDS))
        asked = time.monotonic()
