"""The network between one daemon and NATS is cut without a word: the others go on, and so does it when it is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from lens_core.cli.checks import sources as source_findings
from lens_core.cluster.connection import Connection
from lens_core.model.records import encode_envelope
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.proxies import wires_to
from tests.lens_core.cluster.test_cluster_road import row, stored
from tests.lens_core.cluster.test_isolated_sinks import held_partitions
from tests.lens_core.cluster.test_sharing import role_at, run_command
from tests.waiting import until_answer


def connection_of(lens: RunningLens) -> Connection:
    assert lens.daemon.assembly is not None
    assert lens.daemon.assembly.cluster is not None
    return lens.daemon.assembly.cluster.connection


async def wait_for_readiness(lens: RunningLens, wanted: int) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        await until_answer(lambda: client.get(f"{lens.url}/readyz"), lambda answer: answer.status_code == wanted)


async def send_until_taken(lens: RunningLens, steps: Iterable[int]) -> None:
    for step in steps:
        body = encode_envelope([row(f"job-{step}", step)])
        while (await lens.post("/records", body, content_type="application/msgpack")).status_code == 503:
            await asyncio.sleep(0.05)


@pytest.mark.slow("waits until the leases of a daemon without NATS have run out, and until it is back")
# The client of NATS leaves the socket of a server that fell silent to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
async def test_a_daemon_without_nats_is_replaced_and_comes_back(
    daemons: Daemons, cluster_settings: dict[str, Any]
) -> None:
    async with wires_to(cluster_settings["nats"]) as wires:
        beyond = await daemons({"cluster": {**cluster_settings, "nats": [wire.url for wire in wires]}})
        near = await daemons()
        both = [beyond, near]
        await until(lambda: all(held_partitions(lens) == 2 for lens in both), "each has its share")
        for number, lens in enumerate(both):
            await send_until_taken(lens, range(number, 20, 2))
        token = await run_command(near, "token", "create", "--role", "read", "alice")
        await until(lambda: role_at(beyond, token) == "read", "both know the token")
        for wire in wires:
            wire.cut()
        await run_command(near, "token", "revoke", "alice")
        await until(lambda: held_partitions(near) == 4, "the other one has all partitions")
        await until(lambda: not connection_of(beyond).is_connected, "the silence is noticed")
        body = encode_envelope([row("job-20", 20)])
        refused = await beyond.post("/records", body, content_type="application/msgpack")
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        refusals = [one.text for one in source_findings(await beyond.get_json("/status"))]
        assert any("refused 1 items (overloaded), the last ones with: NATS" in text for text in refusals), refusals
        await wait_for_readiness(beyond, 503)  # a load balancer sends nobody here
        assert held_partitions(beyond) == 0
        await send_until_taken(near, range(20, 40))
        for wire in wires:
            wire.mend()
        await until(lambda: all(held_partitions(lens) == 2 for lens in both), "each has its share again")
        await until(lambda: role_at(beyond, token) is None, "the token is revoked there, too")
        await wait_for_readiness(beyond, 200)
        for number, lens in enumerate(both):
            await send_until_taken(lens, range(40 + number, 60, 2))
        await until(lambda: {one.row_step for one in stored(both)} == set(range(60)), "all rows arrive")
