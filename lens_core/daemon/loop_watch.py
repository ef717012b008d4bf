"""Notices when the event loop is held up, and records the stack of what held it.

A heartbeat runs in the loop. When a beat is late, a thread takes the stack of the loop's thread while it is still
busy; the late beat itself then knows how long the loop was held.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType

import msgspec

logger = logging.getLogger("lens.loop")

THRESHOLD_SECONDS = 0.25
_BEAT_SECONDS = 0.1
# The stack is taken a little before the threshold, so that a hold that is just long enough has one as well.
_SAMPLE_AFTER = 0.8
_MAX_FRAMES = 40
_KEPT_HOLDS = 20
_LOG_AT_MOST_EVERY_SECONDS = 5.0
# A hold that has not ended by then is logged by the thread: it may never end.
_STILL_HELD_SECONDS = 5.0


class HeldFrame(msgspec.Struct, frozen=True):
    """One frame of the stack that held the loop; `module` is the name under which its code was imported."""

    file: str
    line: int
    function: str
    module: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function} ({self.file}:{self.line})"


class LoopHold(msgspec.Struct, frozen=True, kw_only=True):
    """One time that the loop was held; `stack` has the innermost frame first, and is empty if none could be taken.

    `cpu_seconds` is what the loop's thread computed meanwhile (None where the system does not tell); much less than
    `seconds` means that it waited, or that the machine gave it no processor; of the latter, `starved_seconds` is what
    Linux knows.
    """

    began_at: float
    seconds: float
    cpu_seconds: float | None = None
    starved_seconds: float = 0.0
    stack: Sequence[HeldFrame] = ()

    @property
    def own_seconds(self) -> float:
        """The time for which code held the loop: without that in which the machine gave its thread no processor."""
        return round(max(0.0, self.seconds - self.starved_seconds), 3)

    @property
    def is_idle(self) -> bool:
        """Whether the process was stopped or starved, and no code held the loop for most of the time."""
        is_waiting = bool(self.stack) and self.stack[0].module in ("selectors", "uvloop", "select")
        return is_waiting or self.own_seconds < self.seconds / 2


class LoopWatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The number and duration of holds of the loop since the start, and the last times, newest last."""

    holds: int
    held_seconds: float
    longest_seconds: float
    last: Sequence[LoopHold]


class LoopWatch:
    """Watches the loop in which `start` is called, until `stop`.

    `on_hold` is called in the loop, once for each hold, when it is over.
    """

    def __init__(
        self,
        *,
        threshold_seconds: float = THRESHOLD_SECONDS,
        on_hold: Callable[[LoopHold], None] = lambda hold: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.threshold_seconds = threshold_seconds
        self._on_hold = on_hold
        self._clock = clock
        self._holds = 0
        self._held_seconds = 0.0
        self._longest = 0.0
        self._last: deque[LoopHold] = deque(maxlen=_KEPT_HOLDS)
        self._due = 0.0
        self._sample: tuple[float, tuple[HeldFrame, ...]] | None = None
        self._logged_at = float("-inf")
        self._cpu_at_beat: float | None = None
        self._starved_at_beat = 0.0
        self._loop_thread = 0
        self._schedule_file: int | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; called in the loop's own thread."""
        self._loop_thread = threading.get_ident()
        self._schedule_file = _open_schedule(threading.get_native_id())
        self._stopped.clear()
        self._schedule_beat(asyncio.get_running_loop())
        self._thread = threading.Thread(target=self._watch_loop, name="lens-loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; called in the loop's own thread."""
        self._stopped.set()
        if self._handle is not None:
            self._handle.cancel()
        if self._thread is not None:
            self._thread.join(timeout=1.0)
            self._thread = None
        if self._schedule_file is not None:
            os.close(self._schedule_file)
            self._schedule_file = None

    def loop_status(self) -> LoopWatchStatus:
        """Return the holds seen so far."""
        return LoopWatchStatus(
            holds=self._holds,
            held_seconds=round(self._held_seconds, 3),
            longest_seconds=round(self._longest, 3),
            last=list(self._last),
        )

    def current(self) -> LoopHold | None:
        """The hold that goes on now, for other threads; None while the loop runs as it should."""
        late = time.monotonic() - self._due
        sample = self._sample
        if self._thread is None or late < self.threshold_seconds or sample is None or sample[0] != self._due:
            return None
        starved = self._starved() - self._starved_at_beat
        return LoopHold(began_at=self._clock() - late, seconds=late, starved_seconds=starved, stack=sample[1])

    def _schedule_beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._cpu_at_beat = self._loop_cpu()
        self._starved_at_beat = self._starved()
        self._due = time.monotonic() + _BEAT_SECONDS
        self._handle = loop.call_later(_BEAT_SECONDS, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        late = time.monotonic() - self._due
        if late >= self.threshold_seconds:
            self._record(late)
        self._schedule_beat(loop)

    def _record(self, late: float) -> None:
        sample = self._sample
        cpu = self._loop_cpu()
        hold = LoopHold(
            began_at=self._clock() - late,
            seconds=round(late, 3),
            cpu_seconds=None if cpu is None or self._cpu_at_beat is None else round(cpu - self._cpu_at_beat, 3),
            starved_seconds=round(self._starved() - self._starved_at_beat, 3),
            stack=sample[1] if sample is not None and sample[0] == self._due else (),
        )
        self._holds += 1
        self._held_seconds += late
        self._longest = max(self._longest, late)
        self._last.append(hold)
        now = time.monotonic()
        if now - self._logged_at >= _LOG_AT_MOST_EVERY_SECONDS:
            self._logged_at = now
            logger.warning("%s", describe_hold(hold))
        self._on_hold(hold)

    def _loop_cpu(self) -> float | None:
        try:
            return time.clock_gettime(time.pthread_getcpuclockid(self._loop_thread))
        except (AttributeError, OSError):  # not on this system
            return None

    def _starved(self) -> float:
        """Return the seconds for which the loop's thread has waited for a processor; 0 where nobody counts them."""
        file = self._schedule_file
        return 0.0 if file is None else int(os.pread(file, 128, 0).split()[1]) / 1e9

    def _watch_loop(self) -> None:
        """Take the stack of the loop's thread whenever a beat is late; runs in a thread of its own."""
        sampled_for = said_for = 0.0
        while not self._stopped.wait(self._seconds_to_look(sampled_for)):
            due = self._due
            late = time.monotonic() - due
            if late < self.threshold_seconds * _SAMPLE_AFTER:
                continue
            if sampled_for != due:
                self._sample = (due, self._stack())
                sampled_for = due
            elif late >= _STILL_HELD_SECONDS and said_for != due:
                said_for = due
                hold = LoopHold(began_at=self._clock() - late, seconds=round(late, 3), stack=self._stack())
                logger.error("still held: %s", describe_hold(hold))

    def _seconds_to_look(self, sampled_for: float) -> float:
        due = self._due
        after = self.threshold_seconds * _SAMPLE_AFTER if sampled_for != due else _STILL_HELD_SECONDS
        # A beat that came meanwhile moves `due` on, so that nobody looks more often than there are beats.
        return min(max(due + after - time.monotonic(), 0.01), self.threshold_seconds)

    def _stack(self) -> tuple[HeldFrame, ...]:
        frame: FrameType | None = sys._current_frames().get(self._loop_thread)
        found: list[HeldFrame] = []
        while frame is not None and len(found) < _MAX_FRAMES:
            code = frame.f_code
            module = str(frame.f_globals.get("__name__", ""))
            found.append(HeldFrame(code.co_filename, frame.f_lineno or 0, code.co_name, module))
            frame = frame.f_back
        return tuple(found)


def _open_schedule(native_thread: int) -> int | None:
    """Open Linux' figures of how long a thread has run and has waited for a processor; it stays open, for each beat."""
    try:
        return os.open(f"/proc/self/task/{native_thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not on this system
        return None


def describe_hold(hold: LoopHold, frames: int = 12) -> str:
    """The hold in words, with the innermost frames of the stack."""
    cpu = "" if hold.cpu_seconds is None else f", {hold.cpu_seconds:.2f} s of it computing"
    if hold.starved_seconds >= 0.01:
        cpu += f", {min(hold.starved_seconds, hold.seconds):.2f} s without a processor"
    if hold.is_idle:
        return f"the process did not run for {hold.seconds:.2f} s (stopped, or no processor for it)"
    if not hold.stack:
        return f"the event loop was held for {hold.seconds:.2f} s{cpu}; no stack could be taken"
    stack = " <- ".join(str(frame) for frame in hold.stack[:frames])
    return f"the event loop was held for {hold.seconds:.2f} s{cpu} by {stack}"
