"""A daemon's part of a cluster: the connection, the leases, and what runs under them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..base.errors import LensError
from ..config.settings import ClusterSettings, PipelineConfig
from ..delivery.sending.sender import SinkSlot
from ..directory.directory import Directory
from ..pipeline.tap import Tap
from .ability import Ability
from .connection import Connection
from .key_values import KeyValues
from .live import LiveRelay
from .log_stream import LogStream, token_of
from .members import Lease, Likeness, Member, Membership
from .peers import Peers
from .pipeline import ClusterPipeline, ErasureQuestion
from .server_checks import Server, check_peers, check_servers
from .shared_directory import DirectoryExchange, SharedDirectory
from .shared_files import SharedFiles
from .strangers import Differences, refuse_strangers
from .tasks import cancel_tasks

logger = logging.getLogger("lens.cluster")

PARTITION = "partition"
SINGLETON = "only"
ERASE = "erase"
LIVE = "live"
REFRESH_SECONDS = 2.0
RELEASE_SECONDS = 3.0


async def open_cluster(
    settings: ClusterSettings, directory: Directory, files: Sequence[Path], likeness: Likeness
) -> Cluster:
    """Connect, check the servers, and take over what all daemons share. Raises LensError."""
    from .. import __version__

    cluster = Cluster(settings, __version__, likeness)
    await cluster.join()
    try:
        await cluster.share(directory, files)
    except BaseException:
        await cluster.close()
        raise
    return cluster


class Singleton:
    """Work that one daemon of the cluster does at a time."""

    def __init__(self) -> None:
        self._held = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start_work(self) -> None:
        """The lease is ours."""
        self._held.set()

    async def end(self) -> None:
        """The lease is not ours any more: cancel what is under way."""
        self._held.clear()
        await cancel_tasks([self._task])

    async def work_alone(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work while the lease is held, until cancelled."""
        while True:
            await self._held.wait()
            self._task = asyncio.create_task(work())
            try:
                await asyncio.wait([self._task])
                if not self._task.cancelled():
                    self._task.result()
                    return
            finally:
                self._task.cancel()


class Cluster:
    """Connects, takes leases, and begins and ends what is done under each."""

    def __init__(self, settings: ClusterSettings, version: str, likeness: Likeness) -> None:
        self.settings = settings
        self.likeness = likeness
        self.connection = Connection(settings)
        self.keys = KeyValues(self.connection, f"{settings.name}_state")
        self.servers: dict[str, Server] = {}
        self._differences = Differences(likeness)
        self.pipelines: list[ClusterPipeline] = []
        self.url = ""
        self._version = version
        self._started_at = time.time()
        self._singletons: dict[str, Singleton] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._exchange: DirectoryExchange | None = None
        self._files: SharedFiles | None = None
        self._directory: Directory | None = None
        self._relay: LiveRelay | None = None
        self.ability = Ability(lambda: [one for pipeline in self.pipelines for one in pipeline.required_sinks()])
        self.peers = Peers(self.connection, lambda: self.membership.members.values())
        self.membership = Membership(
            self.keys, settings.lease_seconds, describe=self._describe, begin=self._begin, end=self._end
        )

    async def join(self) -> None:
        """Connect and check that the servers keep what they acknowledge. Raises LensError."""
        await self.connection.connect()  # first: of servers that are away, nothing else is to be said
        try:
            self.servers = await check_servers(self.settings)
            check_peers(self.settings, self.keys.stream, await self.keys.ensure_bucket(), self.servers)
            await refuse_strangers(self.keys, self.likeness, self.settings.name, self.settings.lease_seconds)
        except BaseException:
            await self.connection.close()
            raise

    async def share(self, directory: Directory, files: Sequence[Path]) -> None:
        """Take over directory, tokens and logins, and keep them in step with the others. Raises LensError."""
        self._directory = directory
        self.peers.siblings_of(ERASE).answer_siblings(self._settle_erasure)
        await self.peers.start()
        if isinstance(directory, SharedDirectory):
            self._exchange = DirectoryExchange(self.connection, directory)
            await self._exchange.start()
        self._files = SharedFiles(self.connection, self.keys, files)
        await self._files.start()

    def share_tap(self, tap: Tap) -> None:
        """Let the listeners of a tap hear what passes through the other daemons, and theirs what passes here."""
        self._relay = tap.relay = LiveRelay(self.connection, self.peers.siblings_of(LIVE), tap)

    async def share_files(self) -> None:
        """Tell the others of tokens and logins now, if the servers can be reached."""
        if self._files is not None:
            with contextlib.suppress(LensError):  # it is tried again in the background
                await self._files.exchange_files()

    def make_pipeline(self, config: PipelineConfig, slots: Sequence[SinkSlot], **options: Any) -> ClusterPipeline:
        """A pipeline whose log is a stream within the limits of its spool; `options` are `ClusterPipeline`'s."""
        spool = config.spool
        letters = spool.max_bytes // 4 if spool.max_dead_letter_bytes is None else spool.max_dead_letter_bytes
        stream = LogStream(self.connection, config.name, spool.max_bytes, letters)
        siblings = self.peers.siblings_of(ERASE)
        pipeline = ClusterPipeline(config.name, stream, self.keys, self.servers, slots, siblings=siblings, **options)
        self.pipelines.append(pipeline)
        return pipeline

    def start(self) -> None:
        """Take part: from now on this daemon gets partitions and what runs only once."""
        partitions = [f"{PARTITION}.{number}" for number in range(self.settings.partitions)]
        singletons = [f"{SINGLETON}.{name}" for name in self._singletons]
        self.membership.start([partitions, singletons])
        self._tasks.append(asyncio.create_task(self._refresh_repeatedly(), name="cluster status"))

    async def leave(self) -> None:
        """Give everything to the others; the connection stays open for what still publishes."""
        await cancel_tasks(self._tasks)
        await self.membership.leave()

    async def close(self) -> None:
        """Stop the exchange with the others and close the connection."""
        for part in (self._relay, self._exchange, self._files):
            if part is not None:
                await part.stop()
        await self.peers.stop()
        await self.connection.close()

    async def _settle_erasure(self, body: bytes) -> bytes:
        """Forget here what another daemon deletes, and wait until what is being stored of it has been stored."""
        question = msgspec.msgpack.decode(body, type=ErasureQuestion)
        for uid in question.workload_uids:
            if self._directory is not None:
                self._directory.forget_workload(uid)
        for pipeline in self.pipelines:
            if pipeline.name == question.pipeline:
                await pipeline.settle_erasure(question)
        return b""

    def run_alone(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
        """Do work whenever this daemon holds the lease of that name, and cancel it when the lease is lost."""
        singleton = self._singletons[token_of(name)] = Singleton()
        return singleton.work_alone(work)

    async def _begin(self, lease: Lease) -> None:
        kind, _, name = lease.name.partition(".")
        if kind == PARTITION:
            for pipeline in self.pipelines:
                await pipeline.begin_partition(int(name), lease.epoch)
        else:
            self._singletons[name].start_work()

    async def _end(self, lease: Lease, in_order: bool) -> None:
        kind, _, name = lease.name.partition(".")
        if kind == PARTITION:
            seconds = RELEASE_SECONDS if in_order else 0.0
            await asyncio.gather(
                *(pipeline.end_partition(int(name), deadline_seconds=seconds) for pipeline in self.pipelines)
            )
        else:
            await self._singletons[name].end()

    def _describe(self) -> Member:
        return Member(
            name=self.connection.settings.name,
            address=self.peers.address,
            url=self.url,
            version=self._version,
            started_at=self._started_at,
            unreached=self.ability.unreached,
            likeness=self.likeness,
            lags={
                f"{pipeline.name}/{partition}": records
                for pipeline in self.pipelines
                for partition, records in pipeline.lags().items()
            },
        )

    async def _refresh_repeatedly(self) -> None:
        while True:
            await asyncio.gather(*(pipeline.refresh() for pipeline in self.pipelines), self.ability.check_sinks())
            self._differences.notice_members(self.membership.members.values())
            await asyncio.sleep(REFRESH_SECONDS)

    def cluster_status(self) -> Mapping[str, Any]:
        """Members, leases, lag of each partition, leader of each stream: for `lens cluster status`."""
        lags: dict[str, int] = {}
        for member in self.membership.members.values():
            lags |= member.lags
        return {
            "name": self.settings.name,
            **self.membership.describe_leases(),
            "difference": self._differences.text,
            "partitions": self.settings.partitions,
            "replicas": self.settings.replicas,
            "allow_unsafe": self.settings.allow_unsafe,
            "lags": lags,
            "streams": [
                {
                    "name": pipeline.stream.name,
                    "leader": pipeline.stream.leader,
                    "missing": pipeline.stream.missing,
                    "bytes": pipeline.stream.bytes,
                    "max_bytes": pipeline.stream.max_bytes,
                    "refusal": pipeline.stream.refusal,
                    "outage": pipeline.log.why_full(),
                }
                for pipeline in self.pipelines
            ],
        }
