"""Keeps `sys.exit` of a plugin, or of a library below it, from ending the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from .errors import LensError

logger = logging.getLogger("lens.exits")

T = TypeVar("T")


async def without_exit(asked: Awaitable[T]) -> T:
    """Return what a plugin's call returns. Raises LensError in place of SystemExit, which passes `except Exception`."""
    try:
        return await asked
    except SystemExit as error:
        raise LensError(f"called sys.exit({error.code!r})") from None


def run_until_complete(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop, as asyncio.run does; a task that calls sys.exit ends alone."""
    asyncio.set_event_loop(loop)
    task = loop.create_task(main)
    try:
        while True:
            try:
                return loop.run_until_complete(task)
            except SystemExit as error:
                if task.done():
                    raise
                logger.exception("A task called sys.exit(%r) and ended; the others continue.", error.code)
    finally:
        _close_loop(loop)


def _close_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
