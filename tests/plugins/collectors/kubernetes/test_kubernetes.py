from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from lens_plugins.collectors.kubernetes import Kubernetes, KubernetesSettings

from lens_core import Context, LensError, Pod
from lens_core.base.self_metrics import SelfMetrics
from lens_core.config.loading import parse_config
from lens_core.daemon.daemon import Daemon
from lens_core.directory.directory import Directory
from lens_core.plugin_host.host import PluginHost
from tests.plugins.collectors.kubernetes.api_server import ApiServer, owner, pod, running_server

JOB = owner("PyTorchJob", "llama", "j-1", "kubeflow.org/v1")
SET = owner("ReplicaSet", "web-5d", "r-1", "apps/v1")
DEPLOYMENT = owner("Deployment", "web", "d-1", "apps/v1")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    # The server logs the watches that it cuts.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    async with running_server() as running:
        running.objects["/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/llama"] = {"metadata": {"uid": "j-1"}}
        running.objects["/apis/apps/v1/namespaces/ml/replicasets/web-5d"] = {
            "metadata": {"uid": "r-1", "namespace": "ml", "ownerReferences": [DEPLOYMENT]}
        }
        running.objects["/apis/apps/v1/namespaces/ml/deployments/web"] = {"metadata": {"uid": "d-1"}}
        yield running


def kubeconfig(folder: Path, server: str, **user: Any) -> str:
    path = folder / "config"
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.fixture
async def make(server: ApiServer, tmp_path: Path) -> AsyncIterator[Callable[..., Kubernetes]]:
    """Make collectors of the server's cluster, with a directory that forgets at once."""
    made: list[Kubernetes] = []

    def build(user: dict[str, Any] | None = None, **settings: Any) -> Kubernetes:
        context = Context(
            name="kubernetes",
            logger=logging.getLogger("test"),
            data_dir=tmp_path,
            metrics=SelfMetrics(),
            directory=Directory(grace_seconds=0),
        )
        config = kubeconfig(tmp_path, server.url, **(user or {}))
        made.append(Kubernetes(KubernetesSettings(kubeconfig=config, **settings), context))
        return made[-1]

    yield build
    for collector in made:
        await collector.stop()


async def until(condition: Callable[[], Any], seconds: float = 240.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "this did not come true in time"
        await asyncio.sleep(0.01)


def known(collector: Kubernetes) -> list[str]:
    return sorted(one.uid for one in collector.context.directory.pods())


async def collected(collector: Kubernetes) -> list[str]:
    records = await collector.collect()
    await collector.stored()
    return sorted(one.uid for one in records if isinstance(one, Pod))


async def test_pods_and_the_owners_of_owners(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    await server.put(pod("u-1", "llama-0", JOB))
    await server.put(pod("u-2", "web-5d-x", SET, phase="Pending", node=""))
    collector = make()
    records = {record.uid: record for record in await collector.collect() if isinstance(record, Pod)}
    first, second = records["u-1"], records["u-2"]
    assert (first.name, first.namespace, first.node, first.phase) == ("llama-0", "ml", "n1", "Running")
    assert first.labels == {"training.kubeflow.org/job-name": "llama"}
    assert [(one.uid, one.name, one.kind, one.parent_uid) for one in first.workloads] == [
        ("j-1", "llama", "PyTorchJob", "")
    ]
    assert [(one.uid, one.kind, one.parent_uid) for one in second.workloads] == [
        ("r-1", "ReplicaSet", "d-1"),
        ("d-1", "Deployment", ""),
    ]
    assert collector.context.directory.workloads_by_pod()["web-5d-x"] == [["web-5d", "r-1"], ["web", "d-1"]]


async def test_pages_and_owners_are_asked_for_once(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    for number in range(25):
        await server.put(pod(f"u-{number}", f"llama-{number}", JOB))
    collector = make(page_pods=10)
    assert len(await collected(collector)) == 25
    assert server.asked("/api/v1/pods") == 3
    assert server.asked("/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/llama") == 1
    assert await collected(collector) == []


async def test_watch_tells_the_directory_at_once(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    collector = make()
    assert await collected(collector) == []
    await server.put(pod("u-1", "llama-0", JOB))
    await until(lambda: known(collector) == ["u-1"])
    assert await collected(collector) == ["u-1"]
    await server.put(pod("u-1", "llama-0", JOB, phase="Failed"))
    await until(lambda: not known(collector))  # ended, and this directory has no grace
    assert await collected(collector) == ["u-1"]
    await server.delete("u-1")
    await server.put(pod("u-2", "llama-1", JOB))
    await until(lambda: known(collector) == ["u-2"])
    assert server.asked("/api/v1/pods") == 1


async def test_what_was_not_stored_is_handed_over_again(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    await server.put(pod("u-1", "llama-0", JOB))
    collector = make()
    assert len(await collector.collect()) == 1
    assert await collected(collector) == ["u-1"]
    assert await collected(collector) == []


async def test_dropped_watch_goes_on_where_it_was(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    collector = make()
    await collected(collector)
    await until(lambda: server.asked("watch") == 1)
    await server.drop_watches()
    await server.put(pod("u-1", "llama-0", JOB))
    await until(lambda: known(collector) == ["u-1"])
    assert server.asked("/api/v1/pods") == 1
    assert await collected(collector) == ["u-1"]


async def test_history_that_is_gone_lists_anew(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    await server.put(pod("u-1", "llama-0", JOB))
    collector = make()
    await collected(collector)
    await until(lambda: server.asked("watch") == 1)
    await server.delete("u-1")
    await server.put(pod("u-2", "llama-1", JOB))
    await server.forget_history()
    await server.drop_watches()
    await until(lambda: known(collector) == ["u-2"])
    assert server.asked("/api/v1/pods") >= 1
    await server.put(pod("u-3", "llama-2", JOB))
    await until(lambda: known(collector) == ["u-2", "u-3"])


async def test_slow_list_is_waited_for(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    server.list_delay_seconds = 0.5
    await server.put(pod("u-1", "llama-0", JOB))
    assert await collected(make()) == ["u-1"]


async def test_failing_server_is_said_and_tried_again(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    server.failures = 1
    await server.put(pod("u-1", "llama-0", JOB))
    collector = make()
    with pytest.raises(LensError, match="HTTP 500: etcd is away"):
        await collector.collect()
    await until(lambda: known(collector) == ["u-1"])
    assert await collected(collector) == ["u-1"]


async def test_owner_that_may_not_be_read_is_the_topmost(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    server.forbidden.add("/apis/apps/v1/namespaces/ml/replicasets/web-5d")
    await server.put(pod("u-2", "web-5d-x", SET))
    (record,) = await make().collect()
    assert isinstance(record, Pod)
    assert [(one.uid, one.parent_uid) for one in record.workloads] == [("r-1", "")]


async def test_selection_is_the_servers_work(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    await collected(make(namespace="ml", node_name="n1", label_selector="a=b"))
    path, query = server.requests[0]
    assert path == "/api/v1/namespaces/ml/pods"
    assert (query["fieldSelector"], query["labelSelector"]) == ("spec.nodeName=n1", "a=b")


async def test_tokens_that_are_rotated(server: ApiServer, make: Callable[..., Kubernetes], tmp_path: Path) -> None:
    server.token = "first"
    (tmp_path / "token").write_text("first\n")
    collector = make({"tokenFile": "token"})
    await collected(collector)
    server.token = "second"
    (tmp_path / "token").write_text("second\n")
    await server.drop_watches()
    await server.put(pod("u-1", "llama-0", JOB))
    await until(lambda: known(collector) == ["u-1"])


async def test_command_that_prints_a_token(server: ApiServer, make: Callable[..., Kubernetes]) -> None:
    server.token = "printed"
    answer = '{"status": {"token": "printed", "expirationTimestamp": "2199-01-01T00:00:00Z"}}'
    collector = make({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [answer]}})
    assert await collected(collector) == []
    await collector.check()
    server.token = "another"
    with pytest.raises(Exception, match="401"):
        await make({"token": "printed"}).check()


async def test_pods_reach_the_directory_and_the_sinks_of_a_daemon(server: ApiServer, tmp_path: Path) -> None:
    await server.put(pod("u-1", "llama-0", JOB))
    out = tmp_path / "out.jsonl"
    text = (
        f"server: {{listen: '127.0.0.1:0'}}\nsources: {{remote_write: {{}}}}\n"
        f"collectors: {{kubernetes: {{kubeconfig: {kubeconfig(tmp_path, server.url)}, interval_seconds: 0.05}}}}\n"
        f"sinks: {{file: {{type: jsonl, path: {out}}}}}\n"
    )
    config = parse_config(text, "test", PluginHost.load(), {}, folder=tmp_path, data_dir=tmp_path / "data")
    started = asyncio.Event()
    daemon = Daemon(config, PluginHost.load(), announce=lambda running: started.set())
    task = asyncio.create_task(daemon.run())
    await asyncio.wait_for(started.wait(), 240)
    await until(lambda: out.exists() and out.read_text().count("\n") == 1)
    await server.put(pod("u-2", "llama-1", JOB))
    await until(lambda: out.read_text().count("\n") == 2)
    assert sorted(daemon.directory.workloads_by_pod()) == ["llama-0", "llama-1"]
    daemon.stop()
    await asyncio.wait_for(task, 240)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(record["record"], record["uid"]) for record in records] == [("pod", "u-1"), ("pod", "u-2")]
    assert records[0]["workloads"][0]["uid"] == "j-1"
