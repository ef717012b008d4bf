"""Daemons that must not be one cluster, or not stay as they are: other names, another store, another configuration.

Two clusters that use one NATS under one name would share out each other's records. Who differs in what a cluster cannot
have two of is refused at its start; a daemon with another configuration is named, because a rolling change of it is
nothing wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterable

import msgspec

from ..base.errors import LensError
from ..config.loading import Config
from ..plugin_api.store import Store
from .key_values import KeyValues
from .members import MEMBERS, Likeness, Member

logger = logging.getLogger("lens.cluster")

# Longer than a lease, so that a daemon which lives has renewed its key meanwhile.
LEASES_TO_WAIT = 1.5


def likeness_of(config: Config) -> Likeness:
    """The likeness of a daemon with this configuration; no secrets, which change one daemon after the other."""
    sink = config.sinks.get(config.store or "")
    store = sink.plugin.destination(sink.settings) if sink is not None and issubclass(sink.plugin, Store) else ""
    components = {
        kind: sorted([one.name, one.type] for one in getattr(config, kind).values())
        for kind in ("sources", "collectors", "detectors", "analyzers")
    }
    sinks = sorted([one.name, one.type, one.required, repr(one.filter)] for one in config.sinks.values())
    pipelines = sorted([one.name, list(one.sinks), repr(one.filter)] for one in config.pipelines.values())
    text = json.dumps([components, sinks, pipelines, config.store])
    digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return Likeness(config.server.cluster_name, store, digest)


async def refuse_strangers(keys: KeyValues, own: Likeness, name: str, lease_seconds: float) -> None:
    """Raise LensError if daemons that live under this `cluster.name` are of another cluster. Raises Overloaded."""
    before = await keys.read_entries(MEMBERS)
    if not any(_difference(own, _member_of(entry.text)) for entry in before.values()):
        return
    await asyncio.sleep(LEASES_TO_WAIT * lease_seconds)
    for key, entry in (await keys.read_entries(MEMBERS)).items():
        member = _member_of(entry.text)
        is_alive = key not in before or before[key].revision != entry.revision
        if is_alive and (difference := _difference(own, member)):
            raise LensError(
                f"cluster.name: {name!r} is in use at these NATS servers by the daemon {member.url or member.address},"
                f" {difference}: give one of both clusters another cluster.name; if the store has moved or was renamed,"
                " stop all daemons before one starts with the new configuration"
            )


def _member_of(text: str) -> Member:
    return msgspec.json.decode(text, type=Member)


def _difference(own: Likeness, member: Member) -> str:
    """The difference in what a cluster cannot have two of; '' if there is none, or if it is not known."""
    other = member.likeness
    if other.cluster and own.cluster and other.cluster != own.cluster:
        return f"whose server.cluster_name is {other.cluster!r}, and this one's is {own.cluster!r}"
    if other.store and own.store and other.store != own.store:
        return f"which stores to {other.store}, and this one to {own.store}"
    return ""


class Differences:
    """Notices members that do other work than this daemon; `text` names them while there are any."""

    def __init__(self, own: Likeness) -> None:
        self.text = ""
        self._own = own

    def notice_members(self, members: Iterable[Member]) -> None:
        """Compare, and log it when it changes."""
        others = sorted(
            member.url or member.address
            for member in members
            if member.likeness.configuration not in ("", self._own.configuration)
        )
        text = f"another configuration than here: {', '.join(others)}; give all daemons the same file" if others else ""
        if text and text != self.text:
            logger.warning("These daemons have %s", text)
        self.text = text
