"""Between the training loop and the worker: a bounded list behind one short lock."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Dict, Tuple

if TYPE_CHECKING:
    from .session import Session

_ROW_BYTES = 200  # what a row costs in memory besides its values
_VALUE_BYTES = 60


# One call of log, as the caller's thread leaves it: the session, what was logged (a snapshot), wandb's step, the time,
# and whether wandb drops it. A plain tuple, because it is made in the training loop.
Row = Tuple["Session", Dict[Any, Any], int, float, bool]


class Counts:
    """Rows and points that were logged, and what became of them."""

    def __init__(self) -> None:
        self.logged = 0
        self.dropped_rows = 0
        self.dropped_points = 0
        self.rejected_rows = 0
        self.delivered_rows = 0
        self.merged_rows = 0
        self.missed = 0  # calls during which the hook itself failed


class Buffer:
    """Rows that wait for the worker, at most `limit_bytes` (estimated) of them."""

    def __init__(self, limit_bytes: int, wake_rows: int) -> None:
        # Reentrant, so that a signal handler that logs cannot lock itself out.
        self.lock = threading.RLock()
        self.wake = _thread.allocate_lock()
        self.wake.acquire()
        self.counts = Counts()
        self.limit_bytes = limit_bytes
        self.wake_rows = wake_rows
        self.rows: list[Row] = []
        self.bytes = 0
        self.on = True
        self.enhance = False
        self.urgent = False  # wake the worker for every row: at the end, and in short-lived children
        self.attend_at = 0.0  # rows later than this look whether the worker needs something; 0: each one
        self.start: Callable[[], None] | None = None  # starts the worker where it does not run
        self.help: Callable[[], bool] | None = None  # what the caller does when the worker falls behind
        self.drained_at = 0.0
        self.help_after_seconds = float("inf")

    def add(self, session: Session, data: dict[Any, Any], row_step: int, event_time: float, dropped: bool) -> None:
        """Queue a row; wakes the worker when there is a batch. Never waits for anything but the lock."""
        with self.lock:
            session.inflight -= 1
            rows = self.rows
            rows.append((session, data, row_step, event_time, dropped))
            self.bytes += _ROW_BYTES + _VALUE_BYTES * len(data)
            self.counts.logged += 1
            if self.bytes > self.limit_bytes and self.help is None:
                self._drop_newest()
        if len(rows) >= self.wake_rows or self.bytes > self.limit_bytes or event_time > self.attend_at:
            self._attend(event_time)

    def _attend(self, now: float) -> None:
        """What has to be done now and then: start the worker, wake it, or help it."""
        if self.start is not None:
            self.start()
        if self.help is not None:
            full = self.bytes > self.limit_bytes
            late = now - self.drained_at > self.help_after_seconds
            if (full or late) and not self.help() and full:
                with self.lock:
                    self._drop_newest()
        if len(self.rows) >= self.wake_rows or self.urgent:
            self.wake_worker()

    def _drop_newest(self) -> None:
        if not self.rows:
            return
        data = self.rows.pop()[1]
        self.bytes -= _ROW_BYTES + _VALUE_BYTES * len(data)
        self.counts.dropped_rows += 1
        self.counts.dropped_points += len(data)

    def take(self, now: float) -> list[Row]:
        """All rows that wait."""
        with self.lock:
            rows, self.rows, self.bytes = self.rows, [], 0
            self.drained_at = now
            self.attend_at = 0.0 if self.urgent or self.start is not None else now + self.help_after_seconds
        return rows

    def be_urgent(self) -> None:
        """From now on every row wakes the worker."""
        self.urgent = True
        self.attend_at = 0.0

    def wake_worker(self) -> None:
        """End the worker's sleep; harmless when it is awake."""
        if self.wake.locked():
            try:
                self.wake.release()
            except RuntimeError:  # another thread woke it in between
                return

    def empty_in_child(self) -> None:
        """After a fork: the rows belong to the parent, and so does the sleeping worker."""
        self.rows, self.bytes = [], 0
        self.counts = Counts()
        self.urgent = False
        self.attend_at = 0.0
        self.wake = _thread.allocate_lock()
        self.wake.acquire()
