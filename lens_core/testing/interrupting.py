"""Interrupts a plugin that holds the event loop for ever, so that its check fails instead of hanging pytest.

A thread watches; the main thread is interrupted by a signal, whose handler raises `Held` where the plugin's code is on
the stack. Where no signal can be handled (another thread than the main one, code that lets no handler run), the process
ends with the stacks of all threads on standard error.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from ..daemon.loop_watch import LoopWatch

EXIT_CODE = 70
# Packages in which the plugins of many live: there each module is for itself.
_SHARED_PACKAGES = frozenset({"lens_core", "lens_plugins", "tests"})


class Held(BaseException):
    """Raised inside of plugin code that does not let go; no `except Exception` swallows it."""


def belongs(module: str, to: str) -> bool:
    """Whether a module is another one, or a part of the same package."""
    package = to.split(".")[0]
    return module == to or (package not in _SHARED_PACKAGES and module.split(".")[0] == package)


class Interrupter:
    """Watches a loop while a check runs (`with Interrupter(…)`).

    Code that holds it for `held_seconds` is interrupted; after as much again the process ends.
    """

    def __init__(self, watch: LoopWatch, what: str, module: str, held_seconds: float) -> None:
        self._watch = watch
        self._what = what
        self._module = module
        self._held_seconds = held_seconds
        self._done = threading.Event()
        self._loop_thread = threading.get_ident()
        self._signal = getattr(signal, "SIGUSR2", None)
        self._before: Any = None
        self._handles = False
        self._thread = threading.Thread(target=self._run, name="lens-interrupter", daemon=True)

    def __enter__(self) -> Interrupter:
        if self._signal is not None and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(self._signal, self._interrupt)
            self._handles = True
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(timeout=5.0)
        if self._handles and self._signal is not None:
            signal.signal(self._signal, self._before)

    def _run(self) -> None:
        # Of a hold, the seconds after which it was first interrupted.
        interrupted_after: float | None = None
        while not self._done.wait(0.1):
            hold = self._watch.current()
            if hold is None or hold.own_seconds < self._held_seconds:
                interrupted_after = None
                continue
            if interrupted_after is None:
                interrupted_after = hold.own_seconds
            if hold.own_seconds - interrupted_after > self._held_seconds or not self._handles:
                self._end(hold.seconds)
            assert self._signal is not None
            signal.pthread_kill(self._loop_thread, self._signal)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if belongs(str(frame.f_globals.get("__name__", "")), self._module):
                raise Held(f"{frame.f_code.co_name} holds the event loop ({frame.f_code.co_filename})")
            frame = frame.f_back

    def _end(self, seconds: float) -> None:
        text = f"\n{self._what}: the event loop is held for {seconds:.1f} s and cannot be interrupted; ended here\n"
        stream = sys.__stderr__ or sys.stderr
        stream.write(text)
        stream.flush()
        faulthandler.dump_traceback(stream)
        os._exit(EXIT_CODE)
