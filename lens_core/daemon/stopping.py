"""Ends what runs within a deadline, whatever plugins do: deaf tasks are named and left behind, the process is ended."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from ..base.exits import without_exit
from ..plugin_api.components import Component

logger = logging.getLogger("lens.stopping")

CANCEL_AGAIN_SECONDS = 1.0
# Of the deadline, the share that tasks have to end after their cancellation, and components to stop.
TASKS_SHARE = 0.3
# Behind the deadline of an orderly end: what else is on the way out.
GRACE_SECONDS = 3.0
EXIT_FORCED = 1
LOOK_SECONDS = 0.5


async def end_tasks(tasks: Sequence[asyncio.Task[None]], deadline_seconds: float) -> None:
    """Cancel tasks until they end: before Python 3.12 asyncio.wait_for swallows a cancellation that meets a result.

    One that ignores its cancellation up to the deadline is named in the log and left behind.
    """
    ends = time.monotonic() + deadline_seconds
    pending = set(tasks)
    while pending and time.monotonic() < ends:
        for task in pending:
            task.cancel()
        wait = min(CANCEL_AGAIN_SECONDS, max(0.05, ends - time.monotonic()))
        _, pending = await asyncio.wait(pending, timeout=wait)
    for task in pending:
        logger.error("%s ignores its cancellation; continuing without it.", task.get_name())
    await asyncio.gather(*(task for task in tasks if task.done()), return_exceptions=True)


async def stop_component(component: Component, deadline_seconds: float, *, is_started: bool = True) -> None:
    """Call a component's `stop`; one that raises is logged, one that takes longer than the deadline is left behind."""
    task = asyncio.create_task(without_exit(component.stop()), name=f"stop of {component.context.name}")
    await asyncio.wait({task}, timeout=deadline_seconds)
    if not task.done():
        task.cancel()
        component.context.logger.error("stop took longer than %.1f s; continuing without it.", deadline_seconds)
    elif not task.cancelled() and task.exception() is not None:
        level = logging.ERROR if is_started else logging.DEBUG
        component.context.logger.log(level, "Stopping failed.", exc_info=task.exception())


class ExitTimer:
    """Ends the process when its orderly end has not come within a deadline; what is in a spool on disk is safe.

    A thread does it, and says why; where a plugin does not let any thread run, Python's fault handler does.
    """

    def __init__(self, explain: Callable[[], str]) -> None:
        self._explain = explain
        self._thread: threading.Thread | None = None

    def start(self, deadline_seconds: float) -> None:
        """Begin to count; more calls change nothing. Safe in a signal handler."""
        if self._thread is not None:
            return
        seconds = deadline_seconds + GRACE_SECONDS
        self._thread = threading.Thread(target=self._wait_and_exit, args=(seconds,), name="lens-exit", daemon=True)
        self._thread.start()
        if sys.stderr is not None:
            faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=sys.__stderr__ or sys.stderr)

    def _wait_and_exit(self, seconds: float) -> None:
        time.sleep(seconds)
        logger.error("The daemon did not stop within its deadline; terminating it: %s", self._explain() or "no reason")
        logging.shutdown()
        os._exit(EXIT_FORCED)


@contextlib.contextmanager
def handling_signals(stop: asyncio.Event, reload: asyncio.Event, count_down: Callable[[], None]) -> Any:
    """Handle signals while the context lasts: SIGTERM and SIGINT stop, SIGHUP reloads.

    `count_down` is called at once at SIGTERM and SIGINT, even while the loop is blocked.
    """
    loop = asyncio.get_running_loop()
    wanted = {signal.SIGTERM: stop.set, signal.SIGINT: stop.set, signal.SIGHUP: reload.set}
    set_up: list[signal.Signals] = []
    try:
        for number, action in wanted.items():
            # Only the main thread may have handlers; a daemon inside a test has none and is stopped by `stop`.
            with contextlib.suppress(ValueError, RuntimeError):
                loop.add_signal_handler(number, action)
                set_up.append(number)
                if number != signal.SIGHUP:  # the loop receives it as before
                    signal.signal(number, lambda *_: count_down())
        yield
    finally:
        for number in set_up:
            loop.remove_signal_handler(number)


async def wait_for_exit(pid: int) -> None:
    """Return when a process is gone, or only its entry is left."""
    try:
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(LOOK_SECONDS)
    except psutil.NoSuchProcess:
        return
