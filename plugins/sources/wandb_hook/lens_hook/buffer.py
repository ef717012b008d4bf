"""Between the training loop and the worker: a bounded list behind one short lock."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .session import Session

_ROW_BYTES = 200  # what a row costs in memory besides its values
_VALUE_BYTES = 60


class Row(NamedTuple):
    """One call of log: what the caller's thread leaves behind."""

    session: Session
    data: dict[Any, Any]
    row_step: int
    event_time: float
    dropped_by_wandb: bool


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
        self.urgent = False  # wake the worker for every row: at the end, and in short-lived children
        self.start: Callable[[], None] | None = None  # starts the worker where it does not run
        self.help: Callable[[], bool] | None = None  # what the caller does when the worker falls behind
        self.drained_at = 0.0
        self.help_after_seconds = float("inf")

    def add(self, row: Row) -> None:
        """Queue a row; wakes the worker when there is a batch. Never waits for anything but the lock."""
        cost = _ROW_BYTES + _VALUE_BYTES * len(row.data)
        with self.lock:
            row.session.leave()
            self.counts.logged += 1
            self.rows.append(row)
            self.bytes += cost
            full = self.bytes > self.limit_bytes
            late = row.event_time - self.drained_at > self.help_after_seconds
            if full and self.help is None:
                self._drop_newest()
        if self.help is not None and (full or late) and not self.help() and full:
            with self.lock:
                self._drop_newest()
        if self.start is not None:
            self.start()
        if len(self.rows) >= self.wake_rows or self.urgent:
            self.wake_worker()

    def _drop_newest(self) -> None:
        if not self.rows:
            return
        row = self.rows.pop()
        self.bytes -= _ROW_BYTES + _VALUE_BYTES * len(row.data)
        self.counts.dropped_rows += 1
        self.counts.dropped_points += len(row.data)

    def take(self, now: float) -> list[Row]:
        """All rows that wait."""
        with self.lock:
            rows, self.rows, self.bytes = self.rows, [], 0
            self.drained_at = now
        return rows

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
        self.wake = _thread.allocate_lock()
        self.wake.acquire()
