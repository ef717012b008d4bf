"""Answers that go on for ever: a reader that does not read is dropped, and costs no more than one piece meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

logger = logging.getLogger("lens.http")

EVENT_STREAM = "text/event-stream"
SLOW_READER_SECONDS = 30.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(StreamingResponse):
    """Server-sent events; `on_end` is called once, however the answer ends.

    The next piece is made only when the one before has left for the network, so that a slow reader holds one.
    """

    def __init__(
        self,
        content: AsyncIterator[bytes],
        *,
        on_end: Callable[[], None] = lambda: None,
        slow_reader_seconds: float = SLOW_READER_SECONDS,
        headers: Mapping[str, str] = _HEADERS,
    ) -> None:
        super().__init__(content, media_type=EVENT_STREAM, headers=dict(headers))
        self._on_end = on_end
        self._slow_reader_seconds = slow_reader_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer until the stream ends, the reader goes away, or it does not read for too long."""

        async def send_soon(message: Message) -> None:
            await asyncio.wait_for(send(message), self._slow_reader_seconds)

        try:
            await super().__call__(scope, receive, send_soon)
        except (asyncio.TimeoutError, TimeoutError):
            logger.info("Closed a stream: the client read nothing for %g s.", self._slow_reader_seconds)
        finally:
            self._on_end()
