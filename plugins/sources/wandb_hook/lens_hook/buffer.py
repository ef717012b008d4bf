"""Between the training loop and the worker: a bounded queue that the loop enters without a lock."""

from __future__ import annotations

import _thread
import collections
import threading
from collections.abc import Callable, Mapping
from typing import Any, Dict, Optional, Tuple

_ROW_BYTES = 200  # memory of a row besides its values
_VALUE_BYTES = 60
_WIDE_METRICS = 64  # a row of more is counted at once; of others so many, before their bytes are counted
_UNCOUNTED_ROWS = 250
_NARROW_BYTES = _ROW_BYTES + _VALUE_BYTES * _WIDE_METRICS


# One call of log, as the caller's thread leaves it: the `Session` (which has this buffer), the logged values (a
# snapshot), the given step and `commit`, wandb's counter before and after (None where it has none), and the time. A
# plain tuple, because it is made in the training loop; the worker makes steps of it (`Session.place`).
Row = Tuple[Any, Dict[Any, Any], Optional[int], Optional[bool], Optional[int], Optional[int], float]


class Summary(Dict[Any, Any]):
    """Values that were set on a run's summary; in a row, in the place of what was logged. `of` is as in `Echo`."""

    __slots__ = ("of",)

    def __init__(self, values: Mapping[Any, Any], of: str = "") -> None:
        super().__init__(values)
        self.of = of


class Counts:
    """Counts of logged rows and points, by outcome."""

    def __init__(self) -> None:
        self.logged = 0
        self.dropped_rows = 0
        self.dropped_points = 0
        self.rejected_rows = 0
        self.delivered_rows = 0
        self.delivered_others = 0
        self.merged_rows = 0
        self.lost_others = 0  # events and evidence that were dropped or refused
        self.missed = 0  # calls during which the hook itself failed


class Buffer:
    """Rows that wait for the worker, at most `limit_bytes` (estimated) of them.

    `rows` is one deque for good, whose ends are safe without a lock. After `attend_rows` rows or the time `attend_at`
    the caller looks whether something has to be done; until then it leaves its row and goes on: between two logs of a
    training loop everything leaves the processor's caches, and each thing touched costs more than what is done with it.
    """

    def __init__(self, limit_bytes: int, wake_rows: int) -> None:
        # Reentrant, so that a signal handler that logs cannot lock itself out.
        self.lock = threading.RLock()
        self.wake = _thread.allocate_lock()
        self.wake.acquire()
        self.counts = Counts()
        self.limit_bytes = limit_bytes
        self.wake_rows = wake_rows
        self.rows: collections.deque[Row] = collections.deque()
        self.attend_rows = 0
        self.attend_at = 0.0
        self.on = True
        self.enhance = False
        self.urgent = False  # wake the worker for every row: at the end, and in short-lived children
        self.start: Callable[[], None] | None = None  # starts the worker where it does not run
        self.help: Callable[[], bool] | None = None  # work of the caller when the worker falls behind
        self.drained_at = 0.0
        self.help_after_seconds = float("inf")
        self._counted_rows = 0  # the number of items from the left that are in `_counted_bytes`
        self._counted_bytes = 0

    def append_row(self, row: Row) -> None:
        """Queue a row; never waits."""
        rows = self.rows
        rows.append(row)
        if len(rows) >= self.attend_rows or row[-1] > self.attend_at or len(row[1]) > _WIDE_METRICS:
            self._attend(row[-1])

    def _attend(self, now: float) -> None:
        """Do the occasional work: start the worker, wake it, help it, drop rows for which there is no room."""
        if not self.on:
            self._forget()
            return
        if self.start is not None:
            self.start()
        full = self._is_full()
        late = now - self.drained_at > self.help_after_seconds
        if not ((full or late) and self.help is not None and self.help()) and full:
            self._drop_newest()
        if len(self.rows) >= self.wake_rows or self.urgent:
            self.wake_worker()

    def _is_full(self) -> bool:
        """Count the bytes of what came since, and say when to look again."""
        with self.lock:
            waiting = len(self.rows)
            self._counted_bytes += sum([_bytes_of(self.rows[at]) for at in range(self._counted_rows, waiting)])
            self._counted_rows = waiting
            left = self.limit_bytes - self._counted_bytes
            next_look = waiting + max(1, min(_UNCOUNTED_ROWS, left // _NARROW_BYTES))
            self.attend_rows = max(next_look, self._first_look())
            return left < 0

    def _first_look(self) -> int:
        """Return how many narrow rows surely have room, and need no worker yet."""
        return max(1, min(self.wake_rows, self.limit_bytes // _NARROW_BYTES))

    def _drop_newest(self) -> None:
        """Drop rows until the rest has room."""
        with self.lock:
            while self.rows and self._counted_bytes > self.limit_bytes:
                row = self.rows.pop()
                if len(self.rows) < self._counted_rows:  # not one that another thread has just left
                    self._counted_rows -= 1
                    self._counted_bytes -= _bytes_of(row)
                self.counts.logged += 1
                self.counts.dropped_rows += 1
                self.counts.dropped_points += len(row[1])
            self.attend_rows = len(self.rows) + 1

    def drain_rows(self, now: float) -> list[Row]:
        """All rows that wait."""
        with self.lock:
            leave = self.rows.popleft
            rows = [leave() for _ in range(len(self.rows))]
            self._counted_rows = self._counted_bytes = 0
            self.counts.logged += len(rows)
            self.drained_at = now
            if not self.urgent and self.start is None and self.on:
                self.attend_rows, self.attend_at = self._first_look(), now + self.help_after_seconds
        return rows

    def give_up(self) -> None:
        """Count what waits as dropped: nobody will take it any more."""
        rows = self.drain_rows(0.0)
        self.counts.dropped_rows += len(rows)
        self.counts.dropped_points += sum([len(row[1]) for row in rows])

    def be_urgent(self) -> None:
        """From now on every row wakes the worker."""
        self.urgent = True
        self.attend_at = 0.0

    def turn_off(self) -> None:
        """From now on rows are thrown away: somebody else does the work."""
        self.on = False
        self.attend_at = 0.0

    def wake_worker(self) -> None:
        """End the worker's sleep; harmless when it is awake."""
        if self.wake.locked():
            try:
                self.wake.release()
            except RuntimeError:  # another thread woke it in between
                return

    def _forget(self) -> None:
        with self.lock:
            self.rows.clear()
            self._counted_rows = self._counted_bytes = 0

    def empty_in_child(self) -> None:
        """After a fork: the rows belong to the parent, and so does the sleeping worker."""
        self._forget()
        self.counts = Counts()
        self.urgent = False
        self.attend_at = 0.0
        self.wake = _thread.allocate_lock()
        self.wake.acquire()


def _bytes_of(row: Row) -> int:
    return _ROW_BYTES + _VALUE_BYTES * len(row[1])
