"""The check at the start that NATS keeps what it acknowledges: synced before the answer, in three copies or more.

JetStream acknowledges before it syncs unless `sync_interval` is `always`: a power failure of the whole cluster then
loses what was acknowledged. Only the servers' monitoring tells.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from ..base.errors import LensError
from ..config.settings import ClusterSettings

logger = logging.getLogger("lens.cluster")

MONITORING_PORT = 8222
_SECONDS = 5.0
_HINT = "; cluster.allow_unsafe: true starts all the same, for trying"


class Server(NamedTuple):
    """A NATS server as its monitoring describes it."""

    address: str
    name: str
    has_jetstream: bool
    syncs_always: bool


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
    names = {one.name for one in servers}
    if len(names) < settings.replicas:
        problems.append(
            f"{len(names)} different servers were seen and cluster.replicas is {settings.replicas}: name the monitoring"
            " address of each in cluster.monitoring"
        )
    _refuse_unsafe(settings, problems)
    return {one.name: one for one in servers}


def check_peers(settings: ClusterSettings, stream: str, peers: Sequence[str], servers: dict[str, Server]) -> None:
    """Raise LensError if a stream lies on fewer servers than wanted, or on one that nobody has seen to sync."""
    problems = []
    if len(peers) < settings.replicas:
        problems.append(f"the stream {stream} has {len(peers)} copies, and cluster.replicas is {settings.replicas}")
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
        return Server(address, str(told["server_name"]), bool(config), bool(config.get("sync_always")))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, AttributeError, TypeError) as error:
        raise LensError(f"{address}/varz does not say how the server syncs ({type(error).__name__})") from None
