"""Ending tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

# Before Python 3.12 `wait_for` swallows a cancellation that comes in the moment of its result.
AGAIN_SECONDS = 0.25


async def cancel_tasks(tasks: Iterable[asyncio.Task[None] | None]) -> None:
    """Cancel tasks and return when all have ended, however often that takes."""
    waiting = {task for task in tasks if task is not None and not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN_SECONDS)
