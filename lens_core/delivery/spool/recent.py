"""The newest batches of a spool, still in memory: a sender that keeps up asks the disk for nothing.

The spool's file stays the truth: a batch comes here only after its commit, as the bytes that were committed, and is
decoded from them by the first sink that takes it, for all of them, so that a sink gets the same records as after a
restart. What is not here any more is read from the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import dropwhile
from threading import Lock

from ...plugin_api.sink_answers import BatchLimits, Position
from .chunk import Chunk, HeldBatch, choose
from .sink_state import START, SpooledBatch

# Sinks of unequal speed drift apart by some megabytes under load; records take about four times as much as bodies.
MAX_BYTES = 8 * 1024 * 1024


class RecentBatches:
    """Batches in their order without a gap, the newest last; the oldest make room, by the bytes of their bodies.

    The writer's thread adds, the event loop takes and releases.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: deque[HeldBatch] = deque()
        self._bytes = 0
        # Everything in the spool that comes after this place is here.
        self._since = START
        self._lock = Lock()

    def restart(self, since: Position) -> None:
        """Forget everything; what the file holds ends at `since`."""
        with self._lock:
            self._held.clear()
            self._bytes = 0
            self._since = since

    def add(self, batch: SpooledBatch, body: bytes, packed: bytes | None = None) -> None:
        """A batch was committed."""
        with self._lock:
            self._held.append(HeldBatch(batch, body, packed))
            self._bytes += _memory_of(self._held[-1])
            while self._bytes > self._max_bytes:
                self._drop_oldest()

    def release(self, passed: Position) -> None:
        """Every sink has taken everything up to `passed`."""
        with self._lock:
            while self._held and _end(self._held[0]) <= passed:
                self._drop_oldest()

    def chunk(self, sink: str, start: Position, limits: BatchLimits) -> Chunk | None:
        """What comes after `start` for a sink, as `spool_queries.read_chunk`; None when the file has to be asked."""
        with self._lock:
            if start < self._since:
                return None
            held = {one.batch.id: one for one in dropwhile(lambda one: _end(one) <= start, self._held)}
        chosen = choose(_of_sink(sink, held.values()), start, limits)
        if not chosen:
            return None
        segments = [held[batch.id].cut(first, last) for batch, first, last in chosen]
        return Chunk(start, Position(segments[-1].batch, segments[-1].last), segments)

    def _drop_oldest(self) -> None:
        oldest = self._held.popleft()
        self._bytes -= _memory_of(oldest)
        self._since = _end(oldest)


def _memory_of(held: HeldBatch) -> int:
    return held.batch.bytes + len(held.packed or b"")


def _end(held: HeldBatch) -> Position:
    return Position(held.batch.id, held.batch.records)


def _of_sink(sink: str, held: Iterable[HeldBatch]) -> Iterable[SpooledBatch]:
    return (one.batch for one in held if one.batch.only_sink in ("", sink))
