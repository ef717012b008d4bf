"""Waiting with a limit, without two traps of asyncio.wait_for.

It may swallow a cancellation that comes together with the result (before Python 3.12), and it cannot tell its own
timeout from one that the awaited code raises (since 3.11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger("lens.delivery")

# How long code that was cancelled has to clean up.
CANCEL_GRACE_SECONDS = 5.0


class NoAnswer(Exception):
    """The other side did not answer within its time, or gave up by itself."""


class TimedOut(NoAnswer):
    """The other side did not answer within its time."""


async def answer_within(seconds: float, asked: Coroutine[Any, Any, T], halt: asyncio.Event) -> T:
    """Return or raise the result of `asked`. After `seconds`, or when `halt` is set, it is cancelled.

    Raises NoAnswer when it ends without an answer because of that, or gives up by itself.
    """
    task = asyncio.ensure_future(asked)
    halted = asyncio.ensure_future(halt.wait())
    try:
        await asyncio.wait({task, halted}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _end(task)
        raise
    finally:
        halted.cancel()
    by_itself = task.done()
    if not by_itself:
        await _end(task)
    if task.done() and not task.cancelled():
        return task.result()
    if by_itself:
        raise NoAnswer("it gave up by itself")
    if halt.is_set():
        raise NoAnswer("stopped before it answered")
    raise TimedOut(f"no answer within {seconds:g} s")


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS)
    if not done:
        logger.error("a sink ignores that its send was cancelled; it is left to itself")
    elif not task.cancelled():
        task.exception()  # it is looked at, so that asyncio does not complain that nobody has


async def is_set_within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event, at most so long; whether it is set."""
    if not event.is_set():
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiting}, timeout=seconds)
        finally:
            waiting.cancel()
    return event.is_set()
