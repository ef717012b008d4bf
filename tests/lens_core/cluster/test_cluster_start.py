"""Settings that a cluster does not support are refused with a message, at the start."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lens_core.base.errors import LensError
from lens_core.cli import cli
from lens_core.cluster import connection
from lens_core.cluster.server_checks import Server, check_peers, check_servers
from lens_core.config.loading import ClusterSettings, InvalidConfiguration, parse_config
from lens_core.plugin_host.host import PluginHost
from tests.lens_core.cluster.conftest import Daemons
from tests.nats_servers import NatsServers, free_ports

NATS = ["nats://127.0.0.1:4222"]
DSN = "postgresql://lens@db/lens"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({}, "sinks.store: postgresql as it is set here keeps"),
        ({"sinks": {"store": {"type": "postgresql", "dsn": DSN, "required": False}}}, "required: false is not"),
        ({"sinks": {"store": {"type": "postgresql", "dsn": DSN, "isolate": True}}}, "isolate is not supported"),
        ({"sinks": {"rows": {"type": "jsonl", "path": "rows.jsonl"}}}, "sinks.rows: jsonl as it is set here"),
        ({"spool": {"kind": "memory"}, "sinks": {"s": {"type": "postgresql", "dsn": DSN}}}, "spool.kind: memory"),
        ({"cluster": {"nats": NATS, "replicas": 1}}, "replicas: with fewer than three"),
        ({"cluster": {"nats": ["nats://user:pw@h:4222"]}}, "user, password, token or credentials"),
        ({"cluster": {"nats": []}}, "cluster.nats"),
        ({"cluster": {"nats": NATS, "user": "lens"}}, "one needs the other"),
        ({"cluster": {"nats": NATS, "token": "abcdef", "credentials": "f"}}, "only one of them"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(document: dict[str, Any], reason: str, tmp_path: Path) -> None:
    text = json.dumps({"cluster": {"nats": NATS}, **document})
    with pytest.raises(InvalidConfiguration) as refused:
        parse_config(text, "lens.yaml", PluginHost.load(), {}, folder=tmp_path, data_dir=tmp_path)
    assert reason in str(refused.value)
    assert "pw" not in str(refused.value).replace("password", "")


def settings_of(servers: NatsServers, **changes: Any) -> ClusterSettings:
    return ClusterSettings(nats=servers.urls, monitoring=servers.monitoring, **changes)


async def test_a_server_that_does_not_sync_or_is_alone_is_refused(tmp_path: Path) -> None:
    servers = NatsServers(tmp_path, count=1, sync="2m")
    try:
        await asyncio.to_thread(servers.start)
        with pytest.raises(LensError) as refused:
            await check_servers(settings_of(servers))
        assert "does not sync before it answers" in str(refused.value)
        assert "1 different servers were seen and cluster.replicas is 3" in str(refused.value)
        found = await check_servers(settings_of(servers, allow_unsafe=True, replicas=1))
        assert not found["n0"].syncs_always
    finally:
        servers.stop()


async def test_servers_of_which_nothing_is_seen_are_refused(nats_servers: NatsServers) -> None:
    (port,) = free_ports(1)
    settings = ClusterSettings(
        nats=nats_servers.urls, monitoring=[*nats_servers.monitoring[:2], f"http://127.0.0.1:{port}"]
    )
    with pytest.raises(LensError, match="does not say how the server syncs"):
        await check_servers(settings)


def test_a_stream_on_a_server_that_was_not_seen_is_refused() -> None:
    servers = {name: Server("http://a", name, True, True) for name in ("a", "b", "c")}
    settings = ClusterSettings(nats=NATS)
    check_peers(settings, "s", ["a", "b", "c"], servers)
    with pytest.raises(LensError, match=r"lies on servers whose monitoring is not in cluster\.monitoring: d"):
        check_peers(settings, "s", ["a", "b", "d"], servers)
    with pytest.raises(LensError, match="has 2 copies"):
        check_peers(settings, "s", ["a", "b"], servers)


async def test_another_number_of_partitions_is_refused(daemons: Daemons, cluster_settings: dict[str, Any]) -> None:
    await daemons()
    with pytest.raises(LensError, match="was made with 4 and this configuration says 8"):
        await daemons({"cluster": {**cluster_settings, "partitions": 8}})


async def test_a_password_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    from lens_core.base.redaction import Secret
    from lens_core.cluster.connection import Connection

    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.3)
    (port,) = free_ports(1)
    settings = ClusterSettings(nats=[f"nats://127.0.0.1:{port}"], user="lens", password=Secret("hunter2hunter2"))
    with pytest.raises(LensError, match="no server can be reached") as refused:
        await Connection(settings).connect()
    assert "hunter2" not in str(refused.value) + repr(settings)


def test_a_daemon_alone_imports_nothing_of_it() -> None:
    code = (
        "import sys, lens_core.daemon.daemon, lens_core.cli.up, lens_core.cli.cluster\n"
        "is_cluster = lambda name: name.split('.')[0] == 'nats' or name.startswith('lens_core.cluster')\n"
        "found = [*filter(is_cluster, sys.modules)]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


async def test_lens_cluster_status_shows_members_and_owners(daemons: Daemons) -> None:
    from lens_core.testing import until

    both = [await daemons(), await daemons()]
    first = both[0].daemon.assembly
    assert first is not None
    cluster = first.cluster
    assert cluster is not None
    await until(
        lambda: (
            len(cluster.cluster_status()["members"]) == 2
            and len(set(cluster.cluster_status()["holders"].values())) == 2
        ),
        "both own",
    )
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["cluster", "status", "--url", both[0].url])
    assert done.exit_code == 0, done.output
    assert "2 members, 4 partitions" in done.output
    assert both[1].url in done.output
    assert "leader n" in done.output


async def test_lens_cluster_status_of_a_daemon_alone_says_so(lens: Any) -> None:
    alone = await lens()
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["cluster", "status", "--url", alone.url])
    assert done.exit_code == 1
    assert "this daemon is alone" in str(done.output) + str(done.exception)
