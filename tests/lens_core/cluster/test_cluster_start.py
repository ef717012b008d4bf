"""Settings that a cluster does not support are refused with a message, at the start."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest
from click.testing import CliRunner
from nats.js import api

from lens_core.base.errors import LensError
from lens_core.cli import cli
from lens_core.cluster import connection
from lens_core.cluster.server_checks import Server, check_peers, check_servers, check_stream
from lens_core.config.loading import ClusterSettings, InvalidConfiguration, parse_config
from lens_core.plugin_host.host import PluginHost
from tests.lens_core.cluster.conftest import Daemons
from tests.nats_servers import NatsServers
from tests.ports import free_ports

NATS = ["nats://127.0.0.1:4222"]
DSN = "postgresql://lens@db/lens"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({}, "sinks.store: postgresql as it is set here keeps"),
        ({"sinks": {"rows": {"type": "jsonl", "path": "rows.jsonl"}}}, "sinks.rows: jsonl as it is set here"),
        ({"spool": {"kind": "memory"}, "sinks": {"s": {"type": "postgresql", "dsn": DSN}}}, "spool.kind: memory"),
        ({"cluster": {"nats": NATS, "replicas": 1}}, "replicas: with fewer than three"),
        ({"cluster": {"nats": ["nats://user:pw@h:4222"]}}, "user, password, token or credentials"),
        ({"cluster": {"nats": []}}, "cluster.nats"),
        ({"cluster": {"nats": NATS, "user": "lens"}}, "one needs the other"),
        ({"cluster": {"nats": NATS, "token": "abcdef", "credentials": "f"}}, "only one of them"),
        ({"cluster": None}, "cluster: is empty: name the servers in cluster.nats, or remove it"),
        ({"cluster": {"nats": NATS, "monitoring": ["h:8222"]}}, "cluster.monitoring: write http://HOST:8222"),
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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"credentials": "/nowhere.creds"}, r"^cluster\.credentials: /nowhere\.creds cannot be read: No such file"),
        ({"tls_ca": "/nowhere.pem"}, r"^cluster\.tls_ca: /nowhere\.pem cannot be read: No such file"),
        ({"tls_ca": __file__}, r"^cluster\.tls_ca: .*test_cluster_start\.py holds no certificate in PEM"),
        ({}, r"^cluster\.nats: no server can be reached \(nats://127\.0\.0\.1:\d+\): .*Connect call failed"),
    ],
)
async def test_what_keeps_a_daemon_from_nats_is_named(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    (port,) = free_ports(1)
    settings = ClusterSettings(nats=[f"nats://127.0.0.1:{port}"], **change)
    with pytest.raises(LensError, match=reason):
        await connection.Connection(settings).connect()


async def test_credentials_can_be_read_with_the_extra(
    nats_servers: NatsServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that asks for nothing lets everybody in; one that asks gets a signature of the seed."""
    import nkeys

    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER).decode()
    file = tmp_path / "lens.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\nx.y.z\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    connected = connection.Connection(settings_of(nats_servers, credentials=str(file)))
    await connected.connect()
    assert connected.is_connected
    await connected.close()


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


VARZ = {
    "server_name": "n0",
    "version": "2.11.3",
    "max_payload": 1 << 20,
    "jetstream": {"config": {"sync_always": True}},
}


async def answer_varz(monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, Any]]) -> ClusterSettings:
    """Settings of servers whose monitoring answers that."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=answers[int(request.url.host.removeprefix("s"))])

    client = partial(httpx.AsyncClient, transport=httpx.MockTransport(answer))
    monkeypatch.setattr("lens_core.cluster.server_checks.httpx.AsyncClient", client)
    return ClusterSettings(nats=NATS, monitoring=[f"http://s{number}" for number in range(len(answers))])


@pytest.mark.parametrize(
    ("change", "reason", "is_allowed"),
    [
        ({}, "", True),
        ({"jetstream": {"config": {}}}, "has no JetStream", True),
        ({"jetstream": {}}, "has no JetStream", True),
        ({"jetstream": {"config": {"store_dir": "/js"}}}, "set jetstream { sync_interval: always }", True),
        ({"server_name": "n0"}, "2 different servers were seen and cluster.replicas is 3", True),
        ({"server_name": None, "jetstream": "x"}, "does not say how the server syncs", True),
        ({"version": "2.10.22"}, "is NATS 2.10.22, and Lens needs 2.11: upgrade it", False),
        ({"version": "2.9.0-beta.1"}, "is NATS 2.9.0-beta.1", False),
        ({"max_payload": 65536}, "raise max_payload", False),
    ],
)
async def test_each_way_to_be_unsafe_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], reason: str, is_allowed: bool
) -> None:
    with monkeypatch.context() as patched:
        answers = [{**VARZ}, {**VARZ, "server_name": "n1"}, {**VARZ, "server_name": "n2", **change}]
        settings = await answer_varz(patched, answers)
        if not reason:
            assert len(await check_servers(settings)) == 3
            return
        with pytest.raises(LensError) as refused:
            await check_servers(settings)
        assert reason in str(refused.value)
        assert ("allow_unsafe" in str(refused.value)) is is_allowed
        if is_allowed:
            assert await check_servers(ClusterSettings(nats=NATS, monitoring=settings.monitoring, allow_unsafe=True))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"storage": api.StorageType.MEMORY}, "is kept in memory"),
        ({"max_age": 60.0}, "deletes what is older than 60 s"),
        ({"max_msgs": 10}, "keeps 10 messages"),
        ({"retention": api.RetentionPolicy.WORK_QUEUE}, "deletes what somebody has read"),
        ({"discard": api.DiscardPolicy.OLD}, "deletes the oldest when it is full"),
    ],
)
def test_a_stream_that_may_lose_what_it_has_is_refused(change: dict[str, Any], reason: str) -> None:
    config = api.StreamConfig(name="lens_default", storage=api.StorageType.FILE, discard=api.DiscardPolicy.NEW)
    check_stream(ClusterSettings(nats=NATS), config)
    with pytest.raises(LensError, match=reason):
        check_stream(ClusterSettings(nats=NATS), config.evolve(**change))
    check_stream(ClusterSettings(nats=NATS, allow_unsafe=True), config.evolve(**change))


async def test_a_stream_in_memory_that_somebody_made_before_is_refused(
    daemons: Daemons, cluster_settings: dict[str, Any]
) -> None:
    name = cluster_settings["name"]
    client = await nats.connect(cluster_settings["nats"])
    await client.jetstream().add_stream(
        name=f"{name}_default", subjects=[f"{name}.default.*.out.*"], storage=api.StorageType.MEMORY, num_replicas=3
    )
    await client.close()
    with pytest.raises(LensError, match="is kept in memory"):
        await daemons()


def test_a_daemon_alone_runs_no_thread_and_no_task_of_it(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys, threading
from pathlib import Path
from lens_core.testing.running import RunningLens, configured

async def main():
    lens = await RunningLens(configured(Path({str(tmp_path)!r}), (), {{}}, store=False)).started()
    await lens.get_json("/status")
    names = [task.get_name() for task in asyncio.all_tasks()] + [one.name for one in threading.enumerate()]
    found = [name for name in names if any(word in name for word in ("cluster", "lease", "peer", "others", "shared"))]
    assert not found, found
    assert lens.daemon.tap.relay is None
    found = [name for name in sys.modules if name.split(".")[0] == "nats" or name.startswith("lens_core.cluster")]
    assert not found, found
    await lens.stop()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
