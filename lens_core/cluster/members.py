"""Heartbeats and leases in the KV bucket: they say which daemons there are and which owns what.

A daemon renews one key, its own. A lease names its holder and is valid as long as that one's key changes; a
daemon whose key has not changed for `lease_seconds`, by the clock of whoever looks, loses everything. Nobody compares
clocks of two machines. Each lease's number is its revision in the bucket, so that a later one is always larger: logs
and databases refuse what comes under a smaller one. A daemon that could not renew its key in time gives up all that it
owns by itself, and begins again under another name.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from ..base.errors import LensError
from .key_values import Entry, KeyValues, KnownEntries
from .tasks import cancel_tasks

logger = logging.getLogger("lens.cluster")

MEMBERS = "members"
LEASES = "leases"
FORGET_SECONDS = 600.0


class Likeness(msgspec.Struct, frozen=True):
    """The things that all daemons of a cluster have in common; `configuration` is a digest of the work of each."""

    cluster: str = ""
    store: str = ""
    configuration: str = ""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon, as it describes itself with each heartbeat.

    `address` is its name among those that ask each other; `unreached` are the required sinks that it does not reach:
    it gets nothing while others reach theirs.
    """

    name: str
    url: str
    version: str
    started_at: float
    lags: Mapping[str, int] = {}
    address: str = ""
    unreached: Sequence[str] = ()
    likeness: Likeness = Likeness()


class Lease(msgspec.Struct, frozen=True):
    """A lease as it is held: by this daemon, under this number."""

    name: str
    epoch: int


class Seen(msgspec.Struct):
    """A member's last change that was seen, by our own clock."""

    revision: int
    at: float


class Membership:
    """This daemon's part in sharing out `wanted` leases; `begin` and `end` start and stop the work under one.

    `describe` makes what the others are told of this daemon. A lease that is lost is ended with False: at once.
    """

    def __init__(
        self,
        keys: KeyValues,
        lease_seconds: float,
        *,
        describe: Callable[[], Member],
        begin: Callable[[Lease], Awaitable[None]],
        end: Callable[[Lease, bool], Coroutine[Any, Any, None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.held: dict[str, Lease] = {}
        self.members: dict[str, Member] = {}
        self.holders: dict[str, str] = {}
        self._keys = keys
        self._leases = KnownEntries(keys, LEASES)
        self._lease_seconds = lease_seconds
        self._describe = describe
        self._begin = begin
        self._end = end
        self._clock = clock
        self._groups: list[Sequence[str]] = []
        self._seen: dict[str, Seen] = {}
        self._renewed_at = clock()
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._releasing: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def start(self, groups: Sequence[Sequence[str]]) -> None:
        """Take part in sharing out the leases of each group evenly."""
        self._groups = list(groups)
        self._renewed_at = self._clock()
        self._task = asyncio.create_task(self._run(), name="cluster leases")
        self._watch = asyncio.create_task(self._watch_renewal(), name="cluster fence")

    async def leave(self) -> None:
        """End the work under all leases and give them to the others at once."""
        await cancel_tasks([self._task, self._watch])
        waiting = [self._release(lease) for name, lease in self.held.items() if name not in self._releasing]
        await asyncio.gather(*waiting, *self._releasing.values(), *self._ending)
        try:
            await self._keys.purge_key(f"{MEMBERS}.{self.id}")
        except LensError as error:
            logger.debug("Left without a word. error=%s", error)

    @property
    def is_late(self) -> bool:
        """Whether the others may believe by now that this daemon is gone."""
        return self._clock() - self._renewed_at > self._lease_seconds * 0.8

    async def _run(self) -> None:
        while True:
            try:
                await self._renew()
                await self._share_out()
            except LensError as error:
                logger.warning("The leases could not be renewed. error=%s", error)
            await asyncio.sleep(self._lease_seconds / 5)

    async def _watch_renewal(self) -> None:
        """Give everything up in time when the key could not be renewed, also after the process had been stopped."""
        while True:
            await asyncio.sleep(self._lease_seconds / 10)
            if self.is_late and self.held:
                self._give_up()

    def _give_up(self) -> None:
        logger.warning("This daemon was silent for too long: it gives up what it owns. leases=%d", len(self.held))
        lost, self.held = list(self.held.values()), {}
        self.id = uuid.uuid4().hex[:12]
        for lease in lost:
            self._end_at_once(lease)

    def _end_at_once(self, lease: Lease) -> None:
        """End the work beside the heartbeat, which must not wait for it."""
        task = asyncio.create_task(self._end(lease, False), name=f"end {lease.name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _renew(self) -> None:
        if self.is_late and self.held:
            self._give_up()
        began = self._clock()
        text = msgspec.json.encode(self._describe()).decode()
        await self._keys.write_entry(f"{MEMBERS}.{self.id}", text)
        self._renewed_at = began

    async def _share_out(self) -> None:
        """Take what nobody holds up to a fair share, and give back what is above it."""
        entries = await self._keys.read_entries(MEMBERS)
        alive = await self._find_alive(entries)
        leases = await self._leases.read_again()
        self.holders = {name[len(LEASES) + 1 :]: entry.text for name, entry in leases.items() if entry.text in alive}
        for lease in list(self.held.values()):
            entry = leases.get(f"{LEASES}.{lease.name}")
            if entry is not None and entry.revision > lease.epoch:  # a replica may be behind, never ahead
                self.held.pop(lease.name, None)
                self._end_at_once(lease)
        for name, holder in list(self.holders.items()):
            if holder == self.id and name not in self.held:
                await self._adopt_lease(name)
        able = {one for one in alive if one not in self.members or not self.members[one].unreached} or alive
        for group in self._groups:
            await self._share_group(group, leases, able)

    async def _adopt_lease(self, name: str) -> None:
        """Begin under a lease that is ours although the write that took it, or gave it back, was never answered."""
        entry = await self._keys.read_entry(f"{LEASES}.{name}")
        if entry is None or entry.text != self.id:
            self.holders.pop(name, None)
            return
        lease = self.held[name] = Lease(name, entry.revision)
        await self._begin(lease)

    async def _share_group(self, group: Sequence[str], leases: Mapping[str, Entry], able: set[str]) -> None:
        mine = [name for name in group if name in self.held]
        target = -(-len(group) // len(able)) if self.id in able else 0
        for name in mine[target:]:
            if name not in self._releasing:  # beside the heartbeat, which waits for no sink
                self._releasing[name] = asyncio.create_task(self._release(self.held[name]), name=f"release {name}")
        free = [name for name in group if name not in self.held and self.holders.get(name) is None]
        # Each begins elsewhere, so that several that come at once do not all try for the same.
        free.sort(key=lambda name: zlib.crc32(f"{self.id}/{name}".encode()))
        wanted = free[: max(0, target - len(mine))]
        await asyncio.gather(*(self._take_lease(name, leases.get(f"{LEASES}.{name}")) for name in wanted))

    async def _find_alive(self, entries: Mapping[str, Entry]) -> set[str]:
        now = self._clock()
        self.members = {}
        alive = {self.id}
        for key, entry in entries.items():
            member = key[len(MEMBERS) + 1 :]
            seen = self._seen.get(member)
            if seen is None or entry.revision > seen.revision:
                seen = self._seen[member] = Seen(entry.revision, now)
            if member == self.id or now - seen.at <= self._lease_seconds:
                alive.add(member)
                self.members[member] = msgspec.json.decode(entry.text, type=Member)
            elif now - seen.at > FORGET_SECONDS:
                await self._keys.purge_key(key)
        return alive

    async def _take_lease(self, name: str, known: Entry | None) -> None:
        try:
            epoch = await self._keys.write_entry(
                f"{LEASES}.{name}", self.id, known.revision if known is not None else 0
            )
        except LensError as error:
            logger.debug("Another daemon was quicker. lease=%s error=%s", name, error)
            return
        lease = self.held[name] = Lease(name, epoch)
        self.holders[name] = self.id
        await self._begin(lease)

    async def _release(self, lease: Lease) -> None:
        """End the work in order, then say that the lease is free."""
        await self._end(lease, True)
        self.held.pop(lease.name, None)
        self._releasing.pop(lease.name, None)
        try:
            await self._keys.write_entry(f"{LEASES}.{lease.name}", "", lease.epoch)
        except LensError as error:
            logger.debug("The lease ends by itself. lease=%s error=%s", lease.name, error)

    def describe_leases(self) -> dict[str, Any]:
        """Members and holders, as last seen."""
        return {"member": self.id, "members": self.members, "holders": dict(self.holders)}
