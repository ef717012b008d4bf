"""Reads one partition of a log on and on, from a position, whatever server dies meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from ..base.errors import Overloaded
from .connection import PENDING, LogMessage
from .log_stream import LogStream

logger = logging.getLogger("lens.cluster")

POLL_SECONDS = 2.0
# Somebody looks after so many polls, also where there were no news.
SILENT_POLLS = 10
# News may reach us before the replica that is asked has the message.
AFTER_NEWS_SECONDS = (0.005, 0.02, 0.1, 0.5)
FAILED_SECONDS = 0.5


class Follower:
    """Follows `in` or `out.*` of a partition after a sequence; `is_at_end` says that all was read."""

    def __init__(self, stream: LogStream, partition: int, kind: str, after: int) -> None:
        self.after = after
        self.is_at_end = False
        self._stream = stream
        self._partition = partition
        self._kind = kind

    async def batches(self, poll_seconds: float = POLL_SECONDS) -> AsyncGenerator[list[LogMessage], None]:
        """Yield the messages that are there, then those that come, in order.

        An empty list says that nothing came for `poll_seconds`. Raises Overloaded once the connection is closed.
        """
        stage = self._kind.partition(".")[0]
        news = await self._stream.follow_news(self._partition, stage)
        try:
            looks = 0
            while True:
                news.begin_look()
                found = await self._read_on()
                is_last = not found or found[-1].headers.get(PENDING) == "0"
                self.is_at_end = is_last and news.sequence <= self.after
                if found:
                    looks = 0
                    yield found
                if not is_last:
                    continue
                if news.sequence > self.after and looks < len(AFTER_NEWS_SECONDS):
                    await asyncio.sleep(AFTER_NEWS_SECONDS[looks])
                    looks += 1
                    continue
                looks, known = 0, max(news.sequence, self.after)
                for _ in range(1 if known > self.after else SILENT_POLLS):
                    if await news.came_within(poll_seconds, known):
                        break
                    yield []
        finally:
            await self._stream.unfollow_news(self._partition, stage, news)

    async def _read_on(self) -> list[LogMessage]:
        """The next messages; waits for as long as they cannot be read."""
        while True:
            try:
                found = await self._stream.read_after(self._partition, self._kind, self.after)
            except Overloaded as error:
                subject = self._stream.subject(self._partition, self._kind)
                logger.debug("Partition %s cannot be read now: %s", subject, error)
                await asyncio.sleep(FAILED_SECONDS)
            else:
                self.after = found[-1].sequence if found else self.after
                return found
