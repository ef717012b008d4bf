"""The directory of a cluster: every daemon learns each pod that any of them was told of.

A stream holds one message for each pod of each feed, the newest. Collectors run on one daemon; without this the others
would complete no origin by their pods, and a job would be stored under two names.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Iterable, Mapping

import msgspec
from nats.js import api

from ..base.errors import LensError, Overloaded
from ..delivery.sending.policy import is_set_within
from ..directory.directory import API_FEED, RECORDS_FEED, Directory
from ..directory.index import key_of
from ..model.records import Pod
from .connection import Connection
from .log_stream import token_of
from .tasks import cancel_tasks

logger = logging.getLogger("lens.cluster")

AT_ONCE = 64
RETRY_SECONDS = 0.5
# The others say when there is something to read; a daemon that died before it could is why it is looked for, too.
LOOK_SECONDS = 5.0
# A pod that is gone is said for so long: a daemon that was away longer has begun anew meanwhile.
GONE_SECONDS = 24 * 3600
START_SECONDS = 30.0


class PodNews(msgspec.Struct, frozen=True, array_like=True):
    """A pod of a feed, or that there is none of this key any more: `is_deleted` if its workload was deleted."""

    feed: str
    key: str
    pod: Pod | None
    is_deleted: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PodNews)


class SharedDirectory(Directory):
    """A directory that notes what it is told, so that `DirectoryExchange` tells the others."""

    def __init__(self, cluster: str = "default", *, grace_seconds: float) -> None:
        super().__init__(cluster, grace_seconds=grace_seconds)
        self.changed = asyncio.Event()
        self.news: dict[tuple[str, str], Pod | None] = {}
        self.deleted: set[tuple[str, str]] = set()
        self._shared: dict[tuple[str, str], Pod] = {}

    def add_pods(self, pods: Iterable[Pod], feed: str = RECORDS_FEED) -> None:
        """Add or replace pods of one feed, here and at the others."""
        told = list(pods)
        super().add_pods(told, feed)
        self._note(feed, {key_of(pod): pod for pod in told})

    def record_pods(self, pods: Iterable[Pod]) -> None:
        """Remember pods that came as records, here and at the others."""
        told = list(pods)
        super().record_pods(told)
        known = {key_of(pod): pod for pod in self.pods(RECORDS_FEED)} if told else {}
        self._note(RECORDS_FEED, {key: known[key] for pod in told if (key := key_of(pod)) in known})

    def replace(self, pods: Iterable[Pod], feed: str = RECORDS_FEED) -> None:
        """Forget all pods of one feed and take these, here and at the others."""
        told = {key_of(pod): pod for pod in pods}
        gone = {key_of(pod): None for pod in self.pods(feed) if key_of(pod) not in told}
        super().replace(told.values(), feed)
        self._note(feed, {**told, **gone})

    def forget(self, keys: Iterable[str], feed: str = RECORDS_FEED) -> None:
        """Forget pods of one feed, here and at the others."""
        gone = list(keys)
        super().forget(gone, feed)
        self._note(feed, dict.fromkeys(gone))

    def forget_workload(self, uid: str) -> None:
        """Forget a workload that was deleted, here and at the others."""
        feeds = (RECORDS_FEED, API_FEED)
        before = {feed: {key_of(pod): pod for pod in self.pods(feed)} for feed in feeds}
        super().forget_workload(uid)
        for feed, known in before.items():
            left = {key_of(pod): pod for pod in self.pods(feed)}
            self.deleted.update((feed, key) for key in known if key not in left)
            self._note(feed, {key: left.get(key) for key, pod in known.items() if left.get(key) != pod})

    def _note(self, feed: str, told: Mapping[str, Pod | None]) -> None:
        for key, pod in told.items():
            if self._shared.get((feed, key)) != pod:
                self.news[feed, key] = pod
            if pod is not None:
                self.deleted.discard((feed, key))
        if self.news:
            self.changed.set()

    def note_shared(self, news: PodNews) -> None:
        """The others know this by now."""
        if news.pod is None:
            self._shared.pop((news.feed, news.key), None)
        else:
            self._shared[news.feed, news.key] = news.pod

    def apply_news(self, found: Iterable[PodNews]) -> None:
        """Take over what others were told, unless something newer waits here to be told to them."""
        added: dict[str, list[Pod]] = {}
        gone: dict[str, list[str]] = {}
        deleted: list[str] = []
        for news in found:
            known = self._shared.get((news.feed, news.key))
            self.note_shared(news)
            if known == news.pod or (news.feed, news.key) in self.news:
                continue
            if news.pod is None:
                gone.setdefault(news.feed, []).append(news.key)
                deleted += [news.key] if news.is_deleted else []
            else:
                added.setdefault(news.feed, []).append(news.pod)
        for feed, pods in added.items():
            super().add_pods(pods, feed)
        for feed, keys in gone.items():
            super().forget(keys, feed)
        self.end_grace(deleted)


class DirectoryExchange:
    """Tells the others what this daemon's directory learns, and teaches it what they tell."""

    def __init__(self, connection: Connection, directory: SharedDirectory) -> None:
        self._connection = connection
        self._directory = directory
        self._name = f"{connection.settings.name}_pods"
        self._prefix = f"{connection.settings.name}-pods"
        self._read_up_to = 0
        self._came = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Learn everything that the others know, then go on in the background. Raises LensError."""
        config = api.StreamConfig(
            name=self._name,
            subjects=[f"{self._prefix}.>"],
            num_replicas=self._connection.settings.replicas,
            max_msgs_per_subject=1,
            allow_direct=True,
            allow_msg_ttl=True,
        )
        jetstream = self._connection.jetstream
        await self._connection.ensure_stream(self._name, lambda: jetstream.add_stream(config))
        await self._connection.subscribe(f"{self._prefix}-news", self._on_news)
        self._connection.call_on_reconnect(self._came.set)
        await self._read_all()
        self._tasks = [
            asyncio.create_task(self._follow_others(), name="directory of the others"),
            asyncio.create_task(self._tell_others(), name="directory for the others"),
        ]

    async def stop(self) -> None:
        """End; what was told last is sent before."""
        if self._tasks:
            with contextlib.suppress(LensError):
                await self._send_news()
        await cancel_tasks(self._tasks)
        self._tasks = []

    async def _on_news(self, message: object) -> None:
        self._came.set()

    async def _read_all(self) -> None:
        while found := await self._connection.read_messages(self._name, f"{self._prefix}.>", self._read_up_to):
            self._directory.apply_news(_decoder.decode(message.body) for message in found)
            self._read_up_to = found[-1].sequence

    async def _follow_others(self) -> None:
        while True:
            await is_set_within(LOOK_SECONDS, self._came)
            self._came.clear()
            try:
                await self._read_all()
            except Overloaded as error:
                logger.debug("The directory of the others is read later. error=%s", error)
                await asyncio.sleep(RETRY_SECONDS)
                self._came.set()

    async def _tell_others(self) -> None:
        while True:
            await self._directory.changed.wait()
            self._directory.changed.clear()
            try:
                await self._send_news()
            except LensError as error:
                logger.debug("The directory is told to the others later. error=%s", error)
                await asyncio.sleep(RETRY_SECONDS)
                self._directory.changed.set()

    async def _send_news(self) -> None:
        directory = self._directory
        waiting = [
            PodNews(feed, key, pod, (feed, key) in directory.deleted) for (feed, key), pod in directory.news.items()
        ]
        for first in range(0, len(waiting), AT_ONCE):
            await asyncio.gather(*(self._send_one(news) for news in waiting[first : first + AT_ONCE]))
        if waiting:
            await self._connection.notify(f"{self._prefix}-news")

    async def _send_one(self, news: PodNews) -> None:
        digest = hashlib.blake2b(news.key.encode(), digest_size=12).hexdigest()
        headers = {"Nats-TTL": f"{GONE_SECONDS}s"} if news.pod is None else {}
        subject = f"{self._prefix}.{token_of(news.feed)}.{digest}"
        await self._connection.append_message(self._name, subject, _encoder.encode(news), headers)
        self._directory.note_shared(news)
        if self._directory.news.get((news.feed, news.key)) is news.pod:
            del self._directory.news[news.feed, news.key]
            self._directory.deleted.discard((news.feed, news.key))
