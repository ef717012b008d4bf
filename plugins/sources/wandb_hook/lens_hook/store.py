"""The backlog in memory: bounded, oldest rows first out when there is no room."""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence
from typing import Protocol

from .buffer import Counts
from .wire import Line

MAX_BODY_BYTES = 4 * 1024 * 1024
CROWDED_BYTES = 256 * 1024  # about a thousand rows
_MAX_OTHERS = 1000  # evidence and events that wait


class Batch:
    """Lines of one origin that are being sent."""

    def __init__(self, origin: bytes, lines: Sequence[Line], end: int = 0) -> None:
        self.origin = origin
        self.lines = list(lines)
        self.end = end  # the new cursor of a file when the batch is done
        self.row_bytes = sum(len(line.text) for line in self.lines if line.is_row)

    def rows(self) -> int:
        """Return how many of the lines are rows."""
        return sum(line.is_row for line in self.lines)


class Store(Protocol):
    """A queue of encoded records; used by one thread at a time."""

    def append(self, lines: Sequence[Line]) -> None:
        """Keep `lines` until they are done."""

    def peek(self, max_lines: int) -> Batch | None:
        """The oldest lines, or None. They stay until `done`."""

    def done(self, batch: Batch) -> None:
        """`batch` was delivered or given up."""

    def waiting(self) -> bool:
        """Whether anything is left."""

    def is_crowded(self) -> bool:
        """Whether so much waits that it has to go, however busy the receiver is."""

    def rows_left(self) -> tuple[int, int]:
        """Rows and points that would be lost with the process."""

    def others_left(self) -> int:
        """Events and evidence that would be lost with the process."""

    def close(self) -> None:
        """Let go of files; what was not delivered stays where it is."""


class MemoryStore:
    """Lines in memory, at most `limit_bytes` of rows; what does not fit is counted as dropped.

    Rows wait as bare bytes and numbers, side by side: a backlog of tuples would have Python's collector of garbage go
    through everything that the user's process holds, for tens of milliseconds.
    """

    def __init__(self, origin: bytes, limit_bytes: int, counts: Counts) -> None:
        self._origin = origin
        self._limit_bytes = limit_bytes
        self._counts = counts
        self._texts: collections.deque[bytes] = collections.deque()
        self._points: collections.deque[int] = collections.deque()
        self._others: collections.deque[Line] = collections.deque()
        self._bytes = 0
        self._out: Batch | None = None

    def append(self, lines: Sequence[Line]) -> None:
        rows = [line for line in lines if line.is_row]
        self._texts.extend([line.text for line in rows])
        self._points.extend([line.points for line in rows])
        self._bytes += sum([len(line.text) for line in rows])
        if len(rows) < len(lines):
            self._others.extend(line for line in lines if not line.is_row)
            while len(self._others) > _MAX_OTHERS:
                self._others.popleft()
                self._counts.lost_others += 1
        while self._bytes > self._limit_bytes and self._texts:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._bytes -= len(self._texts.popleft())
        self._counts.dropped_rows += 1
        self._counts.dropped_points += self._points.popleft()

    def peek(self, max_lines: int) -> Batch | None:
        if self._out is None:
            lines = self._pop(max_lines)
            self._out = Batch(self._origin, lines) if lines else None
        return self._out

    def _pop(self, max_lines: int) -> list[Line]:
        """The oldest lines: so many of them as make a body, and one in any case."""
        lines = [self._others.popleft() for _ in range(min(len(self._others), max_lines))]
        size = 0
        while self._texts and len(lines) < max_lines:
            size += len(self._texts[0])
            if size > MAX_BODY_BYTES and lines:
                break
            lines.append(Line(self._texts.popleft(), self._points.popleft()))
        return lines

    def done(self, batch: Batch) -> None:
        if batch is self._out:
            self._bytes -= batch.row_bytes
            self._out = None

    def waiting(self) -> bool:
        return bool(self._out or self._texts or self._others)

    def is_crowded(self) -> bool:
        return self._bytes > min(CROWDED_BYTES, self._limit_bytes // 2)

    def rows_left(self) -> tuple[int, int]:
        """Rows and points that have not been delivered."""
        tried = [line.points for line in self._out.lines if line.is_row] if self._out else []
        return len(tried) + len(self._points), sum(tried) + sum(self._points)

    def others_left(self) -> int:
        """Events and evidence that have not been delivered."""
        return len(self._others) + (len(self._out.lines) - self._out.rows() if self._out else 0)

    def close(self) -> None:
        return


def count_points(line: bytes) -> int:
    """Count the metrics of an encoded row; 0 for anything else."""
    try:
        values = json.loads(line).get("values", {})
    except (ValueError, AttributeError):
        return 0
    return len(values) if isinstance(values, dict) else 0
