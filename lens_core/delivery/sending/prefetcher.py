"""Reads and unpacks the next batch of a sink; with a backlog, while the sink still has the previous one."""

from __future__ import annotations

import asyncio

from ...model.record_filter import Matcher
from ...plugin_api.sink_answers import BatchLimits
from ..spool.chunk import Chunk
from ..spool.spool import Spool
from ..spool.unpack import Unpacked
from .policy import is_full

# A millisecond or two; a thread costs about as much until it has its turn.
DECODE_IN_THREAD_BYTES = 512 * 1024
# Records take some times as much memory as their bytes: a larger batch is not held beside the one that is sent.
MAX_BYTES_AHEAD = 1024 * 1024


class Prefetcher:
    """One sink's view of its spool."""

    def __init__(self, sink: str, spool: Spool, matcher: Matcher) -> None:
        self._sink = sink
        self._spool = spool
        self._matcher = matcher
        self._ahead: asyncio.Task[Unpacked | None] | None = None

    def has_full_batch(self, limits: BatchLimits) -> bool:
        """Whether a full batch waits behind all that was taken."""
        return is_full(*self._spool.sink_state(self._sink).untouched(), limits)

    async def take(self, limits: BatchLimits) -> Unpacked | None:
        """Return the next batch, now the caller's; None when there is none. Raises SpoolError, Overloaded."""
        while True:
            ahead, self._ahead = self._ahead, None
            unpacked = await (ahead or self._read(limits))
            if unpacked is None or self._spool.hand_out(self._sink, unpacked.chunk):
                return unpacked

    def look_ahead(self, limits: BatchLimits) -> None:
        """Begin with what comes behind all that was taken, if it is a full batch and not too large."""
        if self._ahead is None and self.has_full_batch(limits) and self._bytes_of_next(limits) <= MAX_BYTES_AHEAD:
            self._ahead = asyncio.create_task(self._read_ahead(limits))

    async def stop(self) -> None:
        """Forget what was read ahead: nobody has taken it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def _bytes_of_next(self, limits: BatchLimits) -> float:
        records, size = self._spool.sink_state(self._sink).untouched()
        return min(size, size * limits.max_records / max(1, records))

    async def _read_ahead(self, limits: BatchLimits) -> Unpacked | None:
        await asyncio.sleep(0)  # the send that begins now goes first: then this happens while the sink waits
        return await self._read(limits)

    async def _read(self, limits: BatchLimits) -> Unpacked | None:
        chunk = await self._spool.peek(self._sink, limits)
        if chunk is None:
            return None
        if _undecoded_bytes(chunk) < DECODE_IN_THREAD_BYTES:
            return Unpacked(chunk, self._matcher)
        return await asyncio.to_thread(Unpacked, chunk, self._matcher)


def _undecoded_bytes(chunk: Chunk) -> int:
    return sum(len(segment.body) for segment in chunk.segments)
