"""Live views of a cluster: a listener of this daemon's tap also hears what passes through the others.

The daemon that is listened to asks the others every few seconds, as for everything (`peers.py`); each then sends what
passes through it to a subject of the listener, until it has not been asked for a while. Nobody passes on what it gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from ..model.records import Record, decode_envelope, encode_envelope
from ..pipeline.tap import (
    MAX_CHANGED_NAMES,
    MAX_KEPT_RECORDS,
    ChangeListener,
    Listener,
    RecordListener,
    RecordSelection,
    Relay,
    Tap,
)
from ..plugin_api.siblings import Siblings
from .connection import Connection
from .messages import pack_body, unpack_body
from .tasks import cancel_tasks

logger = logging.getLogger("lens.cluster")

ASK_EVERY_SECONDS = 4.0
FORWARD_SECONDS = 12.0
PAUSE_SECONDS = 0.1
WAIT_SECONDS = 1.0


class LiveQuestion(msgspec.Struct, frozen=True, array_like=True):
    """Send to the listener of this number what passes: the selected records, or only whose they are (None)."""

    listener: str
    selection: RecordSelection | None


class LiveNews(msgspec.Struct, frozen=True, array_like=True):
    """Part of what passed through a daemon: subjects, or records of one pipeline; `dropped` were too many."""

    subjects: Sequence[str] = ()
    pipeline: str = ""
    envelope: bytes = b""
    dropped: int = 0


_question_decoder = msgspec.msgpack.Decoder(LiveQuestion)
_news_decoder = msgspec.msgpack.Decoder(LiveNews)


class LiveRelay(Relay):
    """Brings what passes through the other daemons to this one's listeners, and the reverse."""

    def __init__(self, connection: Connection, siblings: Siblings, tap: Tap) -> None:
        self._connection = connection
        self._siblings = siblings
        self._tap = tap
        self._following: dict[Listener, asyncio.Task[None]] = {}
        self._forwarding: dict[str, asyncio.Task[None]] = {}
        self._asked_at: dict[str, float] = {}
        siblings.answer_siblings(self._answer_live_question)

    async def stop(self) -> None:
        """Bring and send no more; whoever listens has to begin again, to hear the others again."""
        for listener in self._following:
            listener.close()
        await cancel_tasks([*self._following.values(), *self._forwarding.values()])

    def begin_following(self, listener: Listener) -> None:
        """Bring to a listener what passes through the others, from now on."""
        self._following[listener] = asyncio.create_task(self._follow(listener), name="live view of the others")

    def end_following(self, listener: Listener) -> None:
        """The listener has gone."""
        task = self._following.pop(listener, None)
        if task is not None:
            task.cancel()

    async def _follow(self, listener: Listener) -> None:
        number = uuid.uuid4().hex

        async def receive_news(message: Any) -> None:
            _pass_on(listener, _news_decoder.decode(unpack_body(message.data)))

        subscription = await self._connection.subscribe(self._subject(number), receive_news)
        selection = listener.selection if isinstance(listener, RecordListener) else None
        question = msgspec.msgpack.encode(LiveQuestion(number, selection))
        try:
            while listener in self._following and not listener.closed:
                answers = await self._siblings.ask_siblings(question)
                listener.note_silent(answers.silent)
                await asyncio.sleep(ASK_EVERY_SECONDS)
        finally:
            with contextlib.suppress(Exception):  # the connection may be closed, and the subscription with it
                await subscription.unsubscribe()

    def _subject(self, number: str) -> str:
        return f"{self._connection.settings.name}-live.{number}"

    async def _answer_live_question(self, body: bytes) -> bytes:
        question = _question_decoder.decode(body)
        if question.listener not in self._forwarding:
            self._tap.ensure_room()
            self._forwarding[question.listener] = asyncio.create_task(
                self._forward(question), name="live view for another"
            )
        self._asked_at[question.listener] = asyncio.get_running_loop().time()
        return b""

    async def _forward(self, question: LiveQuestion) -> None:
        loop = asyncio.get_running_loop()
        listener: RecordListener | ChangeListener
        if question.selection is None:
            listener = ChangeListener(MAX_CHANGED_NAMES)
        else:
            listener = RecordListener(question.selection, MAX_KEPT_RECORDS)
        try:
            with self._tap.listening_here(listener):
                while loop.time() - self._asked_at[question.listener] < FORWARD_SECONDS and not listener.closed:
                    await listener.wait(WAIT_SECONDS)
                    for news in self._drain_news(listener):
                        body = pack_body(msgspec.msgpack.encode(news))
                        await self._connection.notify(self._subject(question.listener), body)
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._forwarding.pop(question.listener, None)
            self._asked_at.pop(question.listener, None)

    def _drain_news(self, listener: RecordListener | ChangeListener) -> Iterator[LiveNews]:
        if isinstance(listener, ChangeListener):
            if subjects := listener.drain_subjects():
                yield LiveNews(subjects=subjects)
            return
        dropped, listener.dropped = listener.dropped, 0
        if dropped:
            yield LiveNews(dropped=dropped)
        for pipeline, some in groupby(listener.drain_records(), key=lambda entry: entry[0]):
            yield from make_news(pipeline, [record for _, record in some], self._connection.max_payload // 2)


def make_news(pipeline: str, records: Sequence[Record], most_bytes: int) -> Iterator[LiveNews]:
    """The records in pieces that a message holds; one that is larger than a message is dropped, and counted."""
    envelope = encode_envelope(records, 0.0)
    if len(envelope) <= most_bytes:
        yield LiveNews(pipeline=pipeline, envelope=envelope)
    elif len(records) == 1:
        yield LiveNews(dropped=1)
    else:
        middle = len(records) // 2
        yield from make_news(pipeline, records[:middle], most_bytes)
        yield from make_news(pipeline, records[middle:], most_bytes)


def _pass_on(listener: Listener, news: LiveNews) -> None:
    listener.pass_over(news.dropped)
    if isinstance(listener, ChangeListener):
        listener.receive_subjects(news.subjects)
    elif news.envelope:
        listener.receive_records(news.pipeline, list(decode_envelope(news.envelope).records))
