"""Runs a plugin's code in a contract check with a time limit, and finds what holds the event loop."""

from __future__ import annotations

import asyncio
import inspect
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ..daemon.loop_watch import LoopHold, LoopWatch
from ..plugin_api.components import Component

T = TypeVar("T")

CHECK_SECONDS = 120.0
CALL_SECONDS = 30.0
# Shorter holds may be those of a busy machine.
BLOCKED_SECONDS = 0.5
LEAKED_BYTES = 64 * 1024 * 1024


async def within(asked: Awaitable[T], what: str, seconds: float | None = None) -> T:
    """What a plugin's call answers; raises AssertionError that says where it hangs when the time is up.

    The time is CALL_SECONDS unless it is given.
    """
    seconds = CALL_SECONDS if seconds is None else seconds
    task = asyncio.ensure_future(asked)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
        where = _where(task)
        raise AssertionError(f"{what} hangs: no answer within {seconds:g} s; it waits in {where}")
    finally:
        await give_up(task)


async def give_up(task: asyncio.Future[Any], seconds: float = 2.0) -> bool:
    """Cancel a task; one that swallows its cancellation is ended all the same. False for such a one."""
    if task.done():
        return True
    task.cancel()
    await asyncio.wait({task}, timeout=seconds)
    if task.done():
        return True
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        if inspect.iscoroutine(coroutine):
            try:
                coroutine.close()
            except RuntimeError:  # it does not even let itself be closed
                return False
        task.cancel()
        await asyncio.wait({task}, timeout=seconds)
        if task.done() and not task.cancelled():
            task.exception()
    return False


async def started(component: Component) -> None:
    """Start a component; raises AssertionError with what its start raised."""
    try:
        await within(component.start(), "start()")
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"start() raised {type(error).__name__}: {error}") from error


async def unblocked(check: Callable[[], Coroutine[Any, Any, None]], what: str, module: str) -> None:
    """Run a check within CHECK_SECONDS; raises AssertionError when code of this module holds the event loop."""
    holds: list[LoopHold] = []
    watch = LoopWatch(threshold_seconds=BLOCKED_SECONDS, on_hold=holds.append)
    watch.start()
    try:
        await within(check(), what, CHECK_SECONDS)
        await asyncio.sleep(0.11)  # the beat that notices a hold at the very end
    except AssertionError as error:
        _assert_not_held(holds, what, module, error)  # the reason of what was found, where it is one
        raise
    finally:
        watch.stop()
    _assert_not_held(holds, what, module)


def _assert_not_held(holds: list[LoopHold], what: str, module: str, cause: AssertionError | None = None) -> None:
    for hold in holds:
        frames = [frame for frame in hold.stack if frame.module == module]
        if frames:
            raise AssertionError(
                f"{what}: {frames[-1].function} blocked the event loop for {hold.seconds:.1f} s at {frames[0]}; "
                "await instead, or call it by asyncio.to_thread"
            ) from cause


async def grows(call: Callable[[], Awaitable[object]], times: int = 8) -> int:
    """The bytes by which the memory of Python objects grows while something is called again and again."""
    for _ in range(2):
        await call()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            await call()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def _where(task: asyncio.Future[Any]) -> str:
    frames = task.get_stack(limit=1) if isinstance(task, asyncio.Task) else []
    if not frames:
        return "nothing that can be seen"
    return f"{frames[0].f_code.co_name} ({frames[0].f_code.co_filename}:{frames[0].f_lineno})"
