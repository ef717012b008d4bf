"""Runs a plugin's code in a contract check with a time limit, and finds what holds the event loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, TypeVar

from ..daemon.blame import coroutine_frames
from ..daemon.loop_watch import HeldFrame, LoopHold, LoopWatch
from ..daemon.thread_watch import thread_cpu_seconds
from ..plugin_api.components import Component
from .interrupting import Held, Interrupter, belongs

T = TypeVar("T")

CHECK_SECONDS = 120.0
CALL_SECONDS = 30.0
# Shorter holds may be those of a busy machine.
BLOCKED_SECONDS = 0.5
# Code that holds the loop for so long is interrupted.
HELD_SECONDS = 10.0
# Nothing is asked of a component for so long; it may compute for so much of that.
IDLE_SECONDS = 1.0
IDLE_SHARE = 0.1
_IDLE_SAMPLES = 20
_SEEN_SHARE = 0.3
_WAITING_MODULES = frozenset({"threading", "selectors", "queue", "socket", "subprocess", "concurrent.futures.thread"})
LEAKED_BYTES = 64 * 1024 * 1024


async def within(asked: Awaitable[T], what: str, seconds: float | None = None) -> T:
    """Return the answer of a plugin's call; raises AssertionError that says where it hangs when the time is up.

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
    """Run a check within CHECK_SECONDS; raises AssertionError when code of this module holds the event loop.

    Code that holds it for HELD_SECONDS is interrupted, so that a plugin which sleeps for ever fails its check.
    """
    holds: list[LoopHold] = []
    checking = asyncio.ensure_future(check())

    def record(hold: LoopHold) -> None:
        holds.append(hold)
        if hold.own_seconds >= HELD_SECONDS and _frames_of(hold, module):
            checking.cancel()  # it would be held repeatedly

    watch = LoopWatch(threshold_seconds=BLOCKED_SECONDS, on_hold=record)
    # To look through all objects of a long test session takes so long, too, and is no hold by the plugin.
    is_freezing = not gc.get_freeze_count()
    if is_freezing:
        gc.freeze()
    watch.start()
    try:
        with Interrupter(watch, what, module, HELD_SECONDS):
            await within(checking, what, CHECK_SECONDS)
            await asyncio.sleep(0.11)  # the beat that notices a hold at the very end
    except (AssertionError, Held, asyncio.CancelledError) as error:
        await _assert_not_held(watch, holds, what, module, error)  # the reason of what was found, where it is one
        raise
    finally:
        watch.stop()
        if is_freezing:
            gc.unfreeze()
    await _assert_not_held(watch, holds, what, module)


def _frames_of(hold: LoopHold, module: str) -> list[HeldFrame]:
    return [frame for frame in hold.stack if belongs(frame.module, module)]


async def _assert_not_held(
    watch: LoopWatch, holds: list[LoopHold], what: str, module: str, cause: BaseException | None = None
) -> None:
    if isinstance(cause, Held | asyncio.CancelledError) and not holds:
        await asyncio.sleep(0.11)
    for hold in holds:
        frames = _frames_of(hold, module)
        # A thread that waited for a processor on a busy machine was held by nobody's code.
        if frames and hold.own_seconds >= BLOCKED_SECONDS:
            raise AssertionError(
                f"{what}: {frames[-1].function} blocked the event loop for {hold.seconds:.1f} s at {frames[0]}; "
                "await instead, or call it by asyncio.to_thread"
            ) from cause


async def check_idle(component: Component, what: str) -> None:
    """Ask nothing of a started component for a while; raises AssertionError when it computes all the same."""
    module = type(component).__module__
    await asyncio.sleep(0.05)  # work that its start left
    before, own = thread_cpu_seconds(), threading.get_native_id()
    with ThreadPoolExecutor(1) as pool:
        taken, places = await asyncio.get_running_loop().run_in_executor(pool, _sample, module)
    computed = {thread: used - before.get(thread, 0.0) for thread, used in thread_cpu_seconds().items()}
    place, seen = places.most_common(1)[0] if places else ("", 0)
    if max(computed.values(), default=0.0) < IDLE_SHARE * IDLE_SECONDS:
        return
    if seen < taken * _SEEN_SHARE:  # a task that is woken repeatedly is hardly ever met at work
        tasks = _tasks_of(module) if computed.get(own, 0.0) >= IDLE_SHARE * IDLE_SECONDS else []
        place = tasks[0] if tasks else ""
    assert not place, (
        f"{what} computes while nothing is asked of it: {place} took up to {max(computed.values()):.2f} s of processor "
        f"time in {IDLE_SECONDS:g} s; wait for an event, or sleep between two looks"
    )


def _sample(module: str) -> tuple[int, Counter[str]]:
    """Look repeatedly where code of a module computes, in whatever thread; how often, and what was seen."""
    own, ends = threading.get_ident(), time.monotonic() + IDLE_SECONDS
    taken, places = 0, Counter[str]()
    while time.monotonic() < ends:
        time.sleep(IDLE_SECONDS / _IDLE_SAMPLES)
        taken += 1
        for thread, frame in sys._current_frames().items():
            if thread != own:
                places.update(set(_running_in(frame, module)))
    return taken, places


def _tasks_of(module: str) -> list[str]:
    """The tasks that run code of a module, without the test that waits for its check."""
    found = []
    for task in asyncio.all_tasks():
        frames = coroutine_frames(task.get_coro())
        if frames and belongs(frames[-1].module, module) and not any(belongs_to_checks(one.module) for one in frames):
            found.append(f"{frames[-1].function} ({frames[-1].file})")
    return found


def belongs_to_checks(module: str) -> bool:
    """Whether a module is one of the contract checks."""
    return module.startswith(__package__)


def _running_in(frame: FrameType | None, module: str) -> Iterator[str]:
    """The place of a module's code on a stack, unless the thread waits in the standard library."""
    if frame is not None and str(frame.f_globals.get("__name__")) in _WAITING_MODULES:
        return
    while frame is not None:
        if belongs(str(frame.f_globals.get("__name__", "")), module):
            yield f"{frame.f_code.co_name} ({frame.f_code.co_filename})"
            return
        frame = frame.f_back


async def grows(call: Callable[[], Awaitable[object]], times: int = 8) -> int:
    """The bytes by which the memory of Python objects grows while something is called repeatedly."""
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
