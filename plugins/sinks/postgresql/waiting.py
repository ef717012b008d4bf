"""Streams whose rows wait for compaction, and their deadlines. Pure, with the clock given.

A block costs about a fifth of what storing its rows does and serves only those who read. While much is written it
waits for a calmer moment, but not for ever: until a stream has waited for `PATIENCE_SECONDS`, or has `PATIENCE_ROWS`
outside of blocks, which is what a chart then reads row by row. Of a stream whose charts somebody looks at
`WATCHED_ROWS` are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .blocks import BLOCK_ROWS

IDLE_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
PATIENCE_ROWS = 64 * BLOCK_ROWS
WATCHED_ROWS = 2 * BLOCK_ROWS
WATCHED_SECONDS = 60.0
BUSY_ROWS = 5000.0  # in about a second; a thousand ranks that log every second are a fifth of that
_HALF_LIFE_SECONDS = 0.5


@dataclass(slots=True)
class _Stream:
    """Rows outside of blocks as far as is known, when the last came, since when there is something to do.

    `watched` is when somebody last read it.
    """

    rows: int = 0
    touched: float = 0.0
    due_since: float | None = None
    watched: float = -math.inf

    def has_too_many(self, now: float) -> bool:
        """Whether there are more rows outside of blocks than its readers are to wait for."""
        return self.rows >= (WATCHED_ROWS if now - self.watched < WATCHED_SECONDS else PATIENCE_ROWS)


class Waiting:
    """Tracks which streams `grew` and which are `due`; times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self._lately = 0.0
        self._lately_at = 0.0

    def grew(self, stream_id: int, rows: int, now: float, *, late: bool) -> bool:
        """A stream has so many more rows; `late`: some at or below the step that was its last.

        Answers whether its patience is at an end.
        """
        stream = self._streams.setdefault(stream_id, _Stream())
        stream.rows += rows
        stream.touched = now
        if stream.due_since is None and (late or stream.rows >= BLOCK_ROWS):
            stream.due_since = now
        self._lately = self._rows_lately(now) + rows
        self._lately_at = now
        return stream.has_too_many(now)

    def record_reader(self, stream_id: int, now: float) -> bool:
        """Somebody reads a stream; whether its patience is at an end."""
        stream = self._streams.get(stream_id)
        if stream is None:  # nothing was written lately
            return False
        stream.watched = now
        return stream.has_too_many(now)

    def due(self, now: float) -> dict[int, bool]:
        """The streams whose turn it is, and whether they are idle; they wait no longer then."""
        busy = self._rows_lately(now) >= BUSY_ROWS
        found = {}
        for stream_id, stream in list(self._streams.items()):
            idle = now - stream.touched >= IDLE_SECONDS
            if idle or (stream.due_since is not None and not (busy and _has_patience(stream, stream.due_since, now))):
                found[stream_id] = idle
                stream.rows %= BLOCK_ROWS
                stream.due_since = None
            if idle:
                del self._streams[stream_id]
        return found

    def _rows_lately(self, now: float) -> float:
        return self._lately * math.pow(0.5, (now - self._lately_at) / _HALF_LIFE_SECONDS)


def _has_patience(stream: _Stream, due_since: float, now: float) -> bool:
    return not stream.has_too_many(now) and now - due_since < PATIENCE_SECONDS
