"""What waits for delivery, in memory: bounded, oldest rows first out when there is no room."""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence
from typing import Protocol

from .buffer import Counts
from .wire import Line

MAX_BODY_BYTES = 4 * 1024 * 1024
_MAX_OTHERS = 200  # evidence and events that wait


class Batch:
    """Lines of one origin that are being sent."""

    def __init__(self, origin: bytes, lines: Sequence[Line], end: int = 0) -> None:
        self.origin = origin
        self.lines = list(lines)
        self.end = end  # where a file's cursor goes when the batch is done
        self.row_bytes = sum(len(line.text) for line in self.lines if line.is_row)

    def rows(self) -> int:
        """How many of the lines are rows."""
        return sum(line.is_row for line in self.lines)


class Store(Protocol):
    """Where encoded records wait; used by one thread at a time."""

    def append(self, lines: Sequence[Line]) -> None:
        """Keep `lines` until they are done."""

    def peek(self, max_lines: int) -> Batch | None:
        """The oldest lines, or None. They stay until `done`."""

    def done(self, batch: Batch) -> None:
        """`batch` was delivered or given up."""

    def waiting(self) -> bool:
        """Whether anything is left."""

    def rows_left(self) -> tuple[int, int]:
        """Rows and points that would be lost with the process."""

    def close(self) -> None:
        """Let go of files; what was not delivered stays where it is."""


class MemoryStore:
    """Lines in memory, at most `limit_bytes` of rows; what does not fit is counted as dropped."""

    def __init__(self, origin: bytes, limit_bytes: int, counts: Counts) -> None:
        self._origin = origin
        self._limit_bytes = limit_bytes
        self._counts = counts
        self._rows: collections.deque[Line] = collections.deque()
        self._others: collections.deque[Line] = collections.deque(maxlen=_MAX_OTHERS)
        self._bytes = 0
        self._out: Batch | None = None

    def append(self, lines: Sequence[Line]) -> None:
        rows = [line for line in lines if line.is_row]
        self._rows.extend(rows)
        self._bytes += sum([len(line.text) for line in rows])
        if len(rows) < len(lines):
            self._others.extend(line for line in lines if not line.is_row)
        while self._bytes > self._limit_bytes and self._rows:
            self._count_dropped(self._rows.popleft())

    def _count_dropped(self, line: Line) -> None:
        self._bytes -= len(line.text)
        self._counts.dropped_rows += 1
        self._counts.dropped_points += line.points

    def peek(self, max_lines: int) -> Batch | None:
        if self._out is None:
            lines = self._pop(max_lines)
            self._out = Batch(self._origin, lines) if lines else None
        return self._out

    def _pop(self, max_lines: int) -> list[Line]:
        others = [self._others.popleft() for _ in range(min(len(self._others), max_lines))]
        rows = [self._rows.popleft() for _ in range(min(len(self._rows), max_lines - len(others)))]
        while len(rows) > 1 and sum([len(line.text) for line in rows]) > MAX_BODY_BYTES:
            half = len(rows) // 2
            self._rows.extendleft(reversed(rows[half:]))
            rows = rows[:half]
        return others + rows

    def done(self, batch: Batch) -> None:
        if batch is self._out:
            self._bytes -= batch.row_bytes
            self._out = None

    def waiting(self) -> bool:
        return bool(self._out or self._rows or self._others)

    def rows_left(self) -> tuple[int, int]:
        """Rows and points that have not been delivered."""
        lines = [*(self._out.lines if self._out else []), *self._rows]
        rows = [line for line in lines if line.is_row]
        return len(rows), sum(line.points for line in rows)

    def close(self) -> None:
        return


def count_points(line: bytes) -> int:
    """How many metrics an encoded row holds; 0 for anything else."""
    try:
        values = json.loads(line).get("values", {})
    except (ValueError, AttributeError):
        return 0
    return len(values) if isinstance(values, dict) else 0
