"""One NATS cluster of three for all tests here; each test has a name of its own on it, and so its own streams."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import nats
import pytest

from lens_core.plugin_api.components import Component
from lens_core.testing.running import RunningLens, configured
from tests.nats_servers import NatsServers

_numbers = itertools.count()


@pytest.fixture(scope="session")
def nats_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    """Three servers that sync always."""
    servers = NatsServers(tmp_path_factory.mktemp("nats"), advertise=False)
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
async def cluster_settings(nats_servers: NatsServers, request: pytest.FixtureRequest) -> AsyncIterator[dict[str, Any]]:
    """A section `cluster` of a cluster of its own.

    LEASE_SECONDS of a test's module are for tests in which nobody loses a lease, which on a busy machine are long.
    """
    yield {
        "nats": nats_servers.urls,
        "monitoring": nats_servers.monitoring,
        "name": f"t{os.getpid()}-{next(_numbers)}",
        "partitions": 4,
        "lease_seconds": getattr(request.module, "LEASE_SECONDS", 1.5),
    }
    # Servers agree several times a second about each stream: those of fifty tests take a tenth of a core until all end.
    async with await nats.connect(nats_servers.urls) as client:
        jetstream = client.jetstream(timeout=60)
        for stream in await jetstream.streams_info():
            await jetstream.delete_stream(stream.config.name or "")


class Daemons(Protocol):
    """The fixture `daemons`: start one more daemon of the cluster."""

    async def __call__(self, config: Mapping[str, Any] | None = None, *classes: type[Component]) -> RunningLens:
        """The running daemon; it ends with the test."""
        ...


@pytest.fixture
async def daemons(tmp_path: Path, cluster_settings: dict[str, Any]) -> AsyncIterator[Daemons]:
    """Daemons of one cluster, each with a sink that keeps what arrives."""
    running: list[RunningLens] = []

    async def start(config: Mapping[str, Any] | None = None, *classes: type[Component]) -> RunningLens:
        folder = tmp_path / f"d{len(running)}"
        folder.mkdir()
        # The servers set aside what a stream may hold, and all tests share their disks.
        document = {"cluster": cluster_settings, "spool": {"max_bytes": 8 * 1024 * 1024}, **(config or {})}
        lens = RunningLens(configured(folder, classes, document, store=False))
        running.append(lens)
        return await lens.started()

    yield start
    for lens in running:
        if lens.daemon.state not in ("stopped",):
            await lens.stop()
