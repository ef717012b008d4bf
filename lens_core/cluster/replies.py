"""Questions that are answered in several messages; one subscription receives the answers to all of them.

A subscription of its own for each question would be told to every server of the cluster, and taken back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import nats.errors
from nats.aio.client import Client


class Replies:
    """Receives the answers to the questions of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Queue[Any]] = {}

    async def start(self) -> None:
        """Receive answers from now on; the client is connected."""
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_reply)

    def give_up(self) -> None:
        """End all questions: the server that was asked is gone, and its answers with it."""
        for waiting in self._waiting.values():
            waiting.put_nowait(None)

    async def receive_replies(self, subject: str, question: bytes, seconds: float) -> AsyncGenerator[Any, None]:
        """Publish a question and yield its replies, of which each comes within so many seconds of the one before.

        Raises nats.errors.TimeoutError, and ConnectionClosedError where the connection is lost.
        """
        number = str(next(self._numbers))
        received = self._waiting[number] = asyncio.Queue()
        try:
            await self._client.publish(subject, question, reply=f"{self._inbox}.{number}")
            while True:
                message = await self._next_of(received, seconds)
                if message is None:
                    raise nats.errors.ConnectionClosedError
                yield message
        finally:
            del self._waiting[number]

    @staticmethod
    async def _next_of(received: asyncio.Queue[Any], seconds: float) -> Any:
        if not received.empty():
            return received.get_nowait()
        try:
            return await asyncio.wait_for(received.get(), seconds)
        except (asyncio.TimeoutError, TimeoutError):
            raise nats.errors.TimeoutError from None

    async def _on_reply(self, message: Any) -> None:
        waiting = self._waiting.get(message.subject.rpartition(".")[2])
        if waiting is not None:
            waiting.put_nowait(message)
