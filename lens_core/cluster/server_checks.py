"""The check at the start that NATS keeps what it acknowledges: synced before the answer, in three copies or more.

JetStream acknowledges before it syncs unless `sync_interval` is `always`: a power failure of the whole cluster then
loses what was acknowledged. Only the servers' monitoring tells.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
from nats.js import api

from ..base.errors import LensError
from ..config.settings import ClusterSettings

logger = logging.getLogger("lens.cluster")

MONITORING_PORT = 8222
# The first version that answers batches of direct gets, and messages as large as the pieces of a snapshot.
MIN_VERSION = (2, 11)
MIN_PAYLOAD = 512 * 1024
_SECONDS = 5.0
_HINT = "; cluster.allow_unsafe: true starts all the same, for trying"


class Server(NamedTuple):
    """A NATS server as its monitoring describes it."""

    address: str
    name: str
    has_jetstream: bool
    syncs_always: bool
    version: str = ""
    max_payload: int = MIN_PAYLOAD


async def check_servers(settings: ClusterSettings) -> dict[str, Server]:
    """The servers by name. Raises LensError that says which of them may lose data, unless that is allowed."""
    addresses = settings.monitoring or [_monitoring_of(url) for url in settings.nats]
    async with httpx.AsyncClient(timeout=_SECONDS) as client:
        answers = await asyncio.gather(*(_ask_server(client, address) for address in addresses), return_exceptions=True)
    servers = [answer for answer in answers if isinstance(answer, Server)]
    problems = [str(answer) for answer in answers if isinstance(answer, LensError)]
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, LensError):
            raise answer
    problems += [f"{one.address} ({one.name}) has no JetStream" for one in servers if not one.has_jetstream]
    problems += [
        f"{one.address} ({one.name}) does not sync before it answers: set jetstream {{ sync_interval: always }}"
        for one in servers
        if one.has_jetstream and not one.syncs_always
    ]
    _refuse_unfit(servers)
    names = {one.name for one in servers}
    if len(names) < settings.replicas:
        problems.append(
            f"{len(names)} different servers were seen and cluster.replicas is {settings.replicas}: name the monitoring"
            " address of each in cluster.monitoring"
        )
    _refuse_unsafe(settings, problems)
    return {one.name: one for one in servers}


def _refuse_unfit(servers: Sequence[Server]) -> None:
    """Raise LensError for servers that cannot do what Lens asks of them; nothing allows those."""
    problems = [
        f"{one.address} ({one.name}) is NATS {one.version}, and Lens needs 2.11: upgrade it"
        for one in servers
        if one.version and _number_version(one.version) < MIN_VERSION
    ]
    problems += [
        f"{one.address} ({one.name}) takes messages of {one.max_payload} bytes, and Lens needs {MIN_PAYLOAD}: raise"
        " max_payload"
        for one in servers
        if one.max_payload < MIN_PAYLOAD
    ]
    if problems:
        raise LensError(f"the NATS servers cannot be used: {'; '.join(problems)}")


def _number_version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version; what follows them, such as -beta, does not count."""
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found is not None else MIN_VERSION


def check_stream(settings: ClusterSettings, config: api.StreamConfig, *, is_bounded: bool = True) -> None:
    """Raise LensError if a stream that was there already may lose what it acknowledged, and say why.

    `is_bounded` is whether it must refuse what is too much, rather than delete the oldest.
    """
    problems = []
    if config.storage != api.StorageType.FILE:
        problems.append(f"the stream {config.name} is kept in memory")
    if config.max_age:
        problems.append(f"the stream {config.name} deletes what is older than {config.max_age:g} s (max_age)")
    if config.max_msgs is not None and config.max_msgs > 0:
        problems.append(f"the stream {config.name} keeps {config.max_msgs} messages (max_msgs)")
    if config.retention not in (None, api.RetentionPolicy.LIMITS):
        problems.append(f"the stream {config.name} deletes what somebody has read (retention)")
    if is_bounded and config.discard not in (None, api.DiscardPolicy.NEW):
        problems.append(f"the stream {config.name} deletes the oldest when it is full (discard: old)")
    if problems:
        problems.append("change these settings, or delete the streams while no daemon runs and let Lens make them")
    _refuse_unsafe(settings, problems)


def check_peers(settings: ClusterSettings, stream: str, peers: Sequence[str], servers: dict[str, Server]) -> None:
    """Raise LensError if a stream lies on fewer servers than wanted, or on one that nobody has seen to sync."""
    problems = []
    if len(peers) < settings.replicas:
        problems.append(
            f"the stream {stream} has {len(peers)} copies, and cluster.replicas is {settings.replicas}: run"
            f" `nats stream edit {stream} --replicas {settings.replicas}`, or set cluster.replicas to what it has"
        )
    unseen = sorted(peer for peer in peers if peer not in servers)
    if unseen:
        problems.append(
            f"the stream {stream} lies on servers whose monitoring is not in cluster.monitoring: {', '.join(unseen)}"
        )
    _refuse_unsafe(settings, problems)


def _refuse_unsafe(settings: ClusterSettings, problems: Sequence[str]) -> None:
    if not problems:
        return
    if settings.allow_unsafe:
        logger.warning("Acknowledged data may be lost (cluster.allow_unsafe): %s", "; ".join(problems))
        return
    raise LensError(f"the NATS servers may lose what they acknowledge: {'; '.join(problems)}{_HINT}")


def _monitoring_of(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return f"http://{f'[{host}]' if ':' in host else host}:{MONITORING_PORT}"


async def _ask_server(client: httpx.AsyncClient, address: str) -> Server:
    try:
        response = await client.get(f"{address.rstrip('/')}/varz")
        response.raise_for_status()
        told: dict[str, Any] = response.json()
        jetstream = told.get("jetstream") or {}
        config = jetstream.get("config") or {}
        return Server(
            address,
            str(told["server_name"]),
            bool(config),
            bool(config.get("sync_always")),
            str(told.get("version", "")),
            int(told.get("max_payload") or 0),
        )
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, AttributeError, TypeError) as error:
        raise LensError(
            f"{address}/varz does not say how the server syncs ({type(error).__name__}): give the server"
            " http_port: 8222, or name the address of its monitoring in cluster.monitoring"
        ) from None
