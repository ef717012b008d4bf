"""The streams of one pipeline: their subjects, their limits, and who waits for what is appended to them.

Each partition has `in` (what detectors have to read), `out.rows` (what needs no detector, by any receiver), `out.owner`
(what the owner's detectors made, with their state), `state` (the owner's snapshots) and `dead.SINK` (what a sink
refused for good). They are in a stream each, both of `out` in one: a full `in` holds no owner back that would empty it,
and a full `out` no snapshot after which it can be trimmed. Of dead letters the oldest make room.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import nats.js.errors
from nats.aio.subscription import Subscription
from nats.js import api

from ..base.errors import LensError, Overloaded
from ..delivery.sending.policy import is_set_within
from .connection import CLIENT_ERRORS, Connection, LogFull, LogMessage, describe_client_error, peers_of
from .server_checks import Server, check_peers, check_stream

logger = logging.getLogger("lens.cluster")

DUPLICATE_WINDOW_SECONDS = 120.0
# From here on optional sinks lose what they have not passed, so that no receiver is refused because of them.
CROWDED_SHARE = 0.7
_PARTITIONS = "lens-partitions"


def token_of(name: str) -> str:
    """A name as part of a subject, a stream's name or a key, where a dot would separate."""
    return name.replace(".", "=")


def _created(info: api.StreamInfo) -> str:
    return info.created.isoformat() if info.created is not None else ""


class News:
    """Tells a follower of a partition that a message was appended, of this sequence, or that one may have been."""

    def __init__(self) -> None:
        self.sequence = 0
        self._may_be = False
        self._came = asyncio.Event()

    def note_message(self, sequence: int) -> None:
        """A message of this sequence was appended."""
        self.sequence = max(self.sequence, sequence)
        self._came.set()

    def note_doubt(self) -> None:
        """Something may have been appended."""
        self._may_be = True
        self._came.set()

    def begin_look(self) -> None:
        """Whoever follows looks now for all that was noted so far."""
        self._may_be = False
        self._came.clear()

    async def came_within(self, seconds: float, after: int) -> bool:
        """Wait, at most so long, until there is or may be more than up to a sequence; whether there is."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while not self._may_be and self.sequence <= after:
            left = ends - loop.time()
            if left <= 0 or not await is_set_within(left, self._came):
                return False
            self._came.clear()
        return True


class LogStream:
    """The log of a pipeline in JetStream."""

    def __init__(self, connection: Connection, pipeline: str, max_bytes: int, max_dead_letter_bytes: int) -> None:
        self.connection = connection
        self.pipeline = pipeline
        self.prefix = f"{connection.settings.name}.{token_of(pipeline)}"
        self.name = f"{connection.settings.name}_{token_of(pipeline)}"
        self.max_bytes = max_bytes
        self._max_dead_letter_bytes = max(1024 * 1024, max_dead_letter_bytes)
        self.identity = self.mark = self.input_mark = ""
        self.bytes = self.out_bytes = 0
        self.leader = ""
        self.missing: Sequence[str] = ()
        self.outage = ""
        self.refusal = ""
        self._newest: dict[str, int] = {}
        self._news: dict[tuple[int, str], list[News]] = {}
        self._subscriptions: dict[tuple[int, str], Subscription] = {}

    @property
    def is_crowded(self) -> bool:
        """Whether `out` is nearly full, as last seen."""
        return bool(self.refusal) or self.out_bytes > self.max_bytes * CROWDED_SHARE

    def subject(self, partition: int, kind: str) -> str:
        """The subject of a partition; `kind` as in the module's docstring."""
        return f"{self.prefix}.{partition}.{kind}"

    async def ensure_streams(self, servers: dict[str, Server]) -> None:
        """Make the stream if there is none, check where it lies, and listen to what others append. Raises LensError."""
        settings = self.connection.settings
        out = await self._make(self.name, "out.*", self.max_bytes)
        found = (out.config.metadata or {}).get(_PARTITIONS)
        if found != str(settings.partitions):
            raise LensError(
                f"cluster.partitions: the stream {self.name} was made with {found} and this configuration says"
                f" {settings.partitions}; all daemons of a cluster have the same, for as long as the stream exists:"
                f" set it to {found}"
            )
        letters = await self._make(
            self.name_of("dead"), "dead.*", self._max_dead_letter_bytes, discard=api.DiscardPolicy.OLD
        )
        waiting = await self._make(self.name_of("in"), "in", self.max_bytes)
        infos = [
            out,
            letters,
            waiting,
            await self._make(self.name_of("state"), "state", -1),
        ]
        for info in infos:
            check_peers(settings, str(info.config.name), peers_of(info), servers)
        self._identify(out, waiting)
        await self.refresh()
        self.connection.call_on_reconnect(self._note_doubts)

    def _identify(self, out: api.StreamInfo, waiting: api.StreamInfo) -> None:
        """Sequences of a stream that was deleted and made anew begin again: who keeps one keeps the mark beside it."""
        self.identity = f"jetstream:{self.name}:{_created(out)}"
        self.mark = hashlib.blake2b(self.identity.encode(), digest_size=4).hexdigest()
        self.input_mark = hashlib.blake2b(_created(waiting).encode(), digest_size=4).hexdigest()

    def name_of(self, kind: str) -> str:
        """The stream in which a partition's subject of this kind is."""
        stage = kind.partition(".")[0]
        return self.name if stage == "out" else f"{self.name}_{stage}"

    async def _make(
        self, name: str, kind: str, max_bytes: int, discard: api.DiscardPolicy = api.DiscardPolicy.NEW
    ) -> api.StreamInfo:
        """Find or make one of the streams; a limit that was changed in the configuration is changed here."""
        settings = self.connection.settings
        config = api.StreamConfig(
            name=name,
            subjects=[f"{self.prefix}.*.{kind}"],
            num_replicas=settings.replicas,
            storage=api.StorageType.FILE,
            discard=discard,
            max_bytes=max_bytes,
            duplicate_window=DUPLICATE_WINDOW_SECONDS,
            allow_direct=True,
            metadata={_PARTITIONS: str(settings.partitions)},
        )
        jetstream = self.connection.jetstream
        info = await self.connection.ensure_stream(name, lambda: jetstream.add_stream(config))
        check_stream(settings, info.config, is_bounded=discard == api.DiscardPolicy.NEW)
        if info.config.max_bytes != max_bytes:
            try:
                info = await jetstream.update_stream(info.config.evolve(max_bytes=max_bytes))
            except CLIENT_ERRORS as error:
                reason = describe_client_error(error)
                raise LensError(f"spool.max_bytes: the limit of {name} cannot be changed: {reason}") from None
        return info

    async def refresh(self) -> None:
        """Bring size and leader up to date. Raises Overloaded."""
        try:
            waiting = await self.connection.jetstream.stream_info(self.name_of("in"))
            out = await self.connection.jetstream.stream_info(self.name)
        except nats.js.errors.NotFoundError:
            self.outage = (
                f"a stream of {self.name} does not exist any more, and what waited in it is lost: somebody deleted it;"
                " restart one of the daemons, which makes it anew"
            )
            raise Overloaded(self.outage) from None
        except CLIENT_ERRORS as error:
            self.outage = f"NATS does not answer: {describe_client_error(error)}"
            raise Overloaded(self.outage) from None
        self._identify(out, waiting)
        self._note_last_sequence("in", waiting.state.last_seq)
        self._note_last_sequence("out", out.state.last_seq)
        self.out_bytes = out.state.bytes
        self.bytes = out.state.bytes + waiting.state.bytes
        self.outage = "" if out.cluster is None or out.cluster.leader else f"the stream {self.name} has no leader"
        self.leader = (out.cluster.leader if out.cluster is not None else "") or ""
        copies = (out.cluster.replicas if out.cluster is not None else None) or []
        self.missing = sorted(copy.name or "" for copy in copies if copy.offline or not copy.current)
        if self.refusal and max(out.state.bytes, waiting.state.bytes) < self.max_bytes * 0.9:
            self.refusal = ""

    async def read_last_sequence(self) -> int:
        """The sequence of the newest message of `out`, of all partitions, as the leader has it. Raises Overloaded."""
        try:
            return int((await self.connection.jetstream.stream_info(self.name)).state.last_seq)
        except CLIENT_ERRORS as error:
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}") from None

    async def append_to(
        self, partition: int, kind: str, body: bytes, headers: dict[str, str], *, expected: int | None = None
    ) -> int:
        """Append and say so to whoever reads; returns the sequence. `expected` is the fence: the subject's last one.

        Raises Fenced, LogFull, Overloaded.
        """
        if expected is not None:
            headers = {**headers, "Nats-Expected-Last-Subject-Sequence": str(expected)}
        try:
            sequence = await self.connection.append_message(
                self.name_of(kind), self.subject(partition, kind), body, headers
            )
        except LogFull as error:
            self.refusal = error.message
            raise
        except Overloaded as error:
            self.outage = error.message
            raise
        self.refusal = self.outage = ""
        stage = kind.partition(".")[0]
        if stage in ("in", "out"):
            await self.connection.notify(self._news_subject(partition, stage), str(sequence).encode())
        return sequence

    async def read_after(self, partition: int, kind: str, after: int, *, size: int = 1024 * 1024) -> list[LogMessage]:
        """The messages of a partition after a sequence. Raises Overloaded."""
        return await self.connection.read_messages(self.name_of(kind), self.subject(partition, kind), after, size=size)

    async def read_newest(self, partition: int, kind: str) -> LogMessage | None:
        """The newest message, none newer exists. Raises Overloaded."""
        return await self.connection.read_newest(self.name_of(kind), self.subject(partition, kind))

    async def keep_letter(self, partition: int, sink: str, body: bytes, headers: dict[str, str]) -> None:
        """Keep what a sink refused for good. Raises Overloaded."""
        subject = self.subject(partition, f"dead.{token_of(sink)}")
        await self.connection.append_message(self.name_of("dead"), subject, body, headers)

    async def read_letters(self, sink: str, after: int) -> list[LogMessage]:
        """The next dead letters of a sink, of all partitions. Raises Overloaded."""
        return await self.connection.read_messages(
            self.name_of("dead"), f"{self.prefix}.*.dead.{token_of(sink)}", after
        )

    async def delete_letter(self, sequence: int) -> None:
        """Delete a dead letter that went back into the log. Raises Overloaded."""
        try:
            await self.connection.jetstream.delete_msg(self.name_of("dead"), sequence)
        except CLIENT_ERRORS as error:
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}") from None

    async def trim(self, partition: int, kind: str, before: int) -> None:
        """Delete what lies before a sequence and nobody needs. Raises Overloaded."""
        try:
            await self.connection.jetstream.purge_stream(
                self.name_of(kind), seq=before, subject=self.subject(partition, kind)
            )
        except CLIENT_ERRORS as error:
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}") from None

    async def follow_news(self, partition: int, stage: str) -> News:
        """Hear from now on what is appended to `in` or `out` of a partition, here or by others. Raises Overloaded."""
        news, key = News(), (partition, stage)
        if key in self._news:
            self._news[key].append(news)
            return news
        followed = self._news[key] = [news]

        async def note_news(message: Any) -> None:
            for one in followed:
                one.note_message(int(message.data))

        # Of this partition alone: a daemon hears nothing of those that others own.
        self._subscriptions[key] = await self.connection.subscribe(self._news_subject(partition, stage), note_news)
        return news

    async def unfollow_news(self, partition: int, stage: str, news: News) -> None:
        """Hear no more of it."""
        followed = self._news.get(key := (partition, stage), [])
        if news in followed:
            followed.remove(news)
        if not followed and key in self._subscriptions:
            del self._news[key]
            await self.connection.unsubscribe(self._subscriptions.pop(key))

    def _news_subject(self, partition: int, stage: str) -> str:
        return f"{self.connection.settings.name}-news.{token_of(self.pipeline)}.{partition}.{stage}"

    def _note_last_sequence(self, stage: str, sequence: int) -> None:
        """Let those look who may not have been told: who appended may have died before, and notices may be lost."""
        if sequence != self._newest.get(stage):
            self._newest[stage] = sequence
            for (_, followed), news in self._news.items():
                if followed == stage:
                    for one in news:
                        one.note_doubt()

    def _note_doubts(self) -> None:
        for news in self._news.values():
            for one in news:
                one.note_doubt()
