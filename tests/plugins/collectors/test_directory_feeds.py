from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psycopg
import pytest
from lens_plugins.collectors.directory_file import DirectoryFile, DirectoryFileSettings
from lens_plugins.collectors.directory_postgresql import DirectoryPostgresql, DirectoryPostgresqlSettings
from lens_plugins.collectors.pod_resources import KINDS, PodResources, PodResourcesSettings, kind_of_resource

from lens_core import Collector, Context, LensError, Partial, Pod, Secret
from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from lens_core.plugin_api.protobuf import delimited


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(
        name="feed",
        logger=logging.getLogger("test"),
        data_dir=tmp_path,
        metrics=SelfMetrics(),
        directory=Directory(grace_seconds=0),
    )


async def run(collector: Collector) -> list[str]:
    """One run, stored; the uids of the pods."""
    records = await collector.collect()
    assert not isinstance(records, Partial)
    await collector.stored()
    return [record.uid for record in records if isinstance(record, Pod)]


FILE = """
pods:
  - uid: u-1
    name: llama-0
    namespace: ml
    node: n1
    workloads: [{uid: w-1, name: llama}]
    devices: [{kind: gpu_id, id: 0}]
"""


def rewrite(path: Path, text: str, step: int) -> None:
    path.write_text(text)
    os.utime(path, (1_000_000 + step, 1_000_000 + step))


async def test_file_is_read_when_it_changes(context: Context, tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    rewrite(path, FILE, 1)
    collector = DirectoryFile(DirectoryFileSettings(path=str(path)), context)
    assert await run(collector) == ["u-1"]
    assert context.directory.devices() == {"n1": {"gpu_id": {"0": ["llama-0", "u-1"]}}}
    assert await run(collector) == []
    rewrite(path, FILE.replace("u-1", "u-2"), 2)
    assert await run(collector) == ["u-2"]
    assert [pod.uid for pod in context.directory.pods()] == ["u-2"]


@pytest.mark.parametrize("text", ["pods: [", "pods: [{uid: u}]", "pods: [{name: a, node_name: b}]", "[]"])
async def test_file_that_is_wrong_changes_nothing(context: Context, tmp_path: Path, text: str) -> None:
    path = tmp_path / "pods.yaml"
    rewrite(path, FILE, 1)
    collector = DirectoryFile(DirectoryFileSettings(path=str(path)), context)
    await run(collector)
    rewrite(path, text, 2)
    for _ in range(2):
        with pytest.raises(LensError, match=r"pods\.yaml"):
            await run(collector)
    assert [pod.uid for pod in context.directory.pods()] == ["u-1"]
    path.unlink()
    with pytest.raises(LensError, match="No such file"):
        await run(collector)


TABLES = """
create table gpu_pods (uid text, name text, namespace text, node_name text, phase text, running boolean);
create table workload_pod_reference (workload_uid text, pod_uid text);
create table gpu_workload (uid text, name text, kind text, namespace text, parent_uid text, status text);
create table node_container (container_id text, pod_uid text, status text, node_name text);
create table node_container_devices (container_id text, device_type text, device_no int, device_name text);
insert into gpu_pods values ('u-1', 'llama-0', 'ml', 'n1', 'Running', true),
  ('u-2', 'old', 'ml', 'n1', 'Succeeded', false);
insert into gpu_workload values ('w-1', 'llama', 'PyTorchJob', 'ml', 'w-0', 'Running'),
  ('w-0', 'llama', 'Workload', 'ml', '', 'Running'), ('w-loop', 'loop', 'X', 'ml', 'w-loop', 'Running');
insert into workload_pod_reference values ('w-1', 'u-1'), ('w-loop', 'u-1'), ('w-1', 'u-2');
insert into node_container values ('c-1', 'u-1', 'Running', 'n1'), ('c-2', 'u-2', 'Stopped', 'n1');
insert into node_container_devices values ('c-1', 'gpu', 3, 'card3'), ('c-1', 'ib', 0, 'mlx5_0'),
  ('c-2', 'gpu', 4, 'card4');
"""


async def test_tables_of_a_primus_lens(context: Context, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        collector = DirectoryPostgresql(DirectoryPostgresqlSettings(dsn=Secret(postgres_dsn)), context)
        assert await run(collector) == ["u-1"]
        assert await run(collector) == []
        (pod,) = context.directory.pods()
        chain = [(workload.uid, workload.parent_uid) for workload in pod.workloads]
        assert chain == [("w-1", "w-0"), ("w-loop", "w-loop"), ("w-0", "")]
        assert context.directory.devices()["n1"] == {
            "gpu_id": {"3": ["llama-0", "u-1"]},
            "device": {"mlx5_0": ["llama-0", "u-1"]},
        }
        connection.execute("update gpu_pods set running = false")
        assert await run(collector) == []
        assert context.directory.pods() == []


async def test_database_that_is_away_keeps_its_password(context: Context) -> None:
    dsn = Secret("postgresql://lens:hunter2@127.0.0.1:1/lens")
    with pytest.raises(LensError) as raised:
        await DirectoryPostgresql(DirectoryPostgresqlSettings(dsn=dsn), context).collect()
    assert "hunter2" not in str(raised.value)


def container(*groups: tuple[str, Sequence[str]]) -> bytes:
    parts = [
        delimited(2, delimited(1, resource.encode()) + b"".join(delimited(2, one.encode()) for one in ids))
        for resource, ids in groups
    ]
    return delimited(1, b"main") + b"".join(parts)


def resources(name: str, *containers: bytes) -> bytes:
    return delimited(
        1, delimited(1, name.encode()) + delimited(2, b"ml") + b"".join(delimited(3, one) for one in containers)
    )


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Callable[[bytes], str]]:
    """A gRPC server on a unix socket; called with what it shall answer, it gives the socket's path."""
    answer = b""

    async def handle(request: bytes, call: Any) -> bytes:
        return answer

    server = grpc.aio.server()
    handlers = {"List": grpc.unary_unary_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
    path = str(tmp_path / "kubelet.sock")
    server.add_insecure_port(f"unix://{path}")
    await server.start()

    def set_answer(given: bytes) -> str:
        nonlocal answer
        answer = given
        return path

    yield set_answer
    await server.stop(None)


async def test_devices_of_the_kubelet(context: Context, kubelet: Callable[[bytes], str]) -> None:
    path = kubelet(
        resources(
            "llama-0",
            container(("amd.com/gpu", ["0000:05:00.0", "0000:15:00.0"]), ("rdma/hca_shared", ["mlx5_0"])),
            container(("nvidia.com/gpu", ["GPU-abc::1", "GPU-abc::0"])),
        )
        + resources("plain", container())
    )
    context.directory.add_pods([Pod(uid="u-1", name="llama-0", namespace="ml")], "kubernetes")
    collector = PodResources(PodResourcesSettings(socket=path, node="n1"), context)
    assert list(await collector.collect()) == []
    mine = ["llama-0", "u-1"]
    assert context.directory.devices() == {
        "n1": {"gpu_id": {"0000:05:00.0": mine, "0000:15:00.0": mine, "GPU-abc": mine}, "device": {"mlx5_0": mine}}
    }
    kubelet(b"")
    await collector.collect()
    assert context.directory.devices() == {}
    kubelet(b"\x0a\xff")
    with pytest.raises(LensError, match="cannot be read"):
        await collector.collect()


async def test_kubelet_that_is_not_there(context: Context, tmp_path: Path) -> None:
    with pytest.raises(LensError, match=r"nobody\.sock"):
        await PodResources(PodResourcesSettings(socket=str(tmp_path / "nobody.sock")), context).collect()


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("nvidia.com/gpu", "gpu_id"),
        ("nvidia.com/mig-1g.10gb", "gpu_id"),
        ("gpu.intel.com/i915", "gpu_id"),
        ("rdma/hca_shared_devices_a", "device"),
        ("openshift.io/IB_nics", "device"),
        ("google.com/tpu", "asic"),
        ("habana.ai/gaudi", "asic"),
    ],
)
def test_kinds_of_resources(resource: str, kind: str) -> None:
    assert kind_of_resource(resource, KINDS) == kind
