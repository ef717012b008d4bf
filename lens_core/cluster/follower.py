"""Reads one partition of a log on and on, from a position, whatever server dies meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from ..base.errors import Overloaded
from ..delivery.sending.policy import is_set_within
from .connection import LogMessage
from .log_stream import LogStream

logger = logging.getLogger("lens.cluster")

# News of what was appended may be lost, or reach us before the replica that is asked has it.
POLL_SECONDS = 2.0
AFTER_NEWS_SECONDS = (0.005, 0.02, 0.1, 0.5)
FAILED_SECONDS = 0.5


class Follower:
    """Follows `in` or `out.*` of a partition. `wake` lets it look again at once; `is_at_end` says it found nothing."""

    def __init__(self, stream: LogStream, partition: int, kind: str, after: int) -> None:
        self.after = after
        self.is_at_end = False
        self._stream = stream
        self._partition = partition
        self._kind = kind
        self._stage = kind.partition(".")[0]
        self._news = stream.news_event(partition, self._stage)

    def close(self) -> None:
        """Listen to no more news."""
        self._stream.drop_event(self._partition, self._stage, self._news)

    async def batches(self, poll_seconds: float = POLL_SECONDS) -> AsyncGenerator[list[LogMessage], None]:
        """Yield the messages that are there, then those that come, in order.

        An empty list says that nothing came for `poll_seconds`.
        """
        looks = 0
        while True:
            self._news.clear()
            try:
                found = await self._stream.read_after(self._partition, self._kind, self.after)
            except Overloaded as error:
                logger.debug(
                    "Partition %s cannot be read now: %s", self._stream.subject(self._partition, self._kind), error
                )
                await asyncio.sleep(FAILED_SECONDS)
                continue
            if found:
                self.is_at_end = False
                self.after = found[-1].sequence
                looks = 0
                yield found
                continue
            self.is_at_end = True
            if looks < len(AFTER_NEWS_SECONDS) and looks:
                await asyncio.sleep(AFTER_NEWS_SECONDS[looks])
                looks += 1
                continue
            looks = 0
            if await is_set_within(poll_seconds, self._news):
                looks = 1
            else:
                yield []
