"""Built-in collectors that talk to something go through the contract checks, and no built-in component goes without."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import psycopg
import pytest
import yaml
from lens_plugins.collectors.directory_file import DirectoryFile, DirectoryFileSettings
from lens_plugins.collectors.directory_postgresql import DirectoryPostgresql, DirectoryPostgresqlSettings
from lens_plugins.collectors.hook_spool import HookSpool, HookSpoolSettings
from lens_plugins.collectors.kubernetes import Kubernetes, KubernetesSettings
from lens_plugins.collectors.pod_resources import PodResources, PodResourcesSettings
from lens_plugins.collectors.slurm import Slurm, SlurmSettings
from lens_plugins.collectors.stacks import Stacks, StacksSettings
from lens_plugins.collectors.wandb_cloud import WandbCloud
from lens_plugins.collectors.wandb_cloud.figures import WandbCloudSettings

from lens_core import Context, Secret
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import check_collector, make_context
from tests.plugins.collectors.kubernetes.api_server import pod, running_server
from tests.plugins.collectors.test_directory_feeds import FILE, TABLES
from tests.plugins.collectors.test_hook_spool import leave
from tests.plugins.collectors.wandb_cloud.wandb_server import KEY, WandbServer, serving, table

TESTS = Path(__file__).parent
NOWHERE = "http://127.0.0.1:9"
CHECKS = {"collector": "check_collector(", "sink": "SINK_CHECKS", "source": "check_source("}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context("checked", tmp_path)


@pytest.fixture
def lingering() -> Iterator[int]:
    """A process that waits."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n", timeout=60)


async def test_directory_file(context: Context, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(FILE)
    working = DirectoryFile(DirectoryFileSettings(path=str(tmp_path / "pods.yaml")), context)
    await check_collector(
        working, failing=DirectoryFile(DirectoryFileSettings(path=str(tmp_path / "nowhere")), context)
    )


async def test_directory_postgresql(context: Context, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(TABLES.encode())
    away = DirectoryPostgresqlSettings(dsn=Secret("postgresql://lens:x@127.0.0.1:9/lens"))
    await check_collector(
        DirectoryPostgresql(DirectoryPostgresqlSettings(dsn=Secret(postgres_dsn)), context),
        failing=DirectoryPostgresql(away, context),
    )


async def test_hook_spool(context: Context, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    leave(spool, 20)
    await check_collector(HookSpool(HookSpoolSettings(path=str(spool), max_records_per_run=5), context))


async def test_kubernetes(context: Context, tmp_path: Path) -> None:
    def settings(server: str, name: str) -> KubernetesSettings:
        document = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
        }
        (tmp_path / name).write_text(yaml.safe_dump(document))
        return KubernetesSettings(kubeconfig=str(tmp_path / name))

    async with running_server() as server:
        await server.put(pod("u-1", "llama-0"))
        working = Kubernetes(settings(server.url, "here"), context)
        await check_collector(working, failing=Kubernetes(settings(NOWHERE, "away"), context))


async def test_pod_resources(context: Context, tmp_path: Path) -> None:
    async def handle(request: bytes, call: object) -> bytes:
        return b""

    server = grpc.aio.server()
    handlers = {"List": grpc.unary_unary_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
    server.add_insecure_port(f"unix://{tmp_path / 'kubelet.sock'}")
    await server.start()
    working, away = (PodResourcesSettings(socket=str(tmp_path / name)) for name in ("kubelet.sock", "nobody.sock"))
    try:
        await check_collector(PodResources(working, context), failing=PodResources(away, context))
    finally:
        await server.stop(None)


async def test_slurm(context: Context, tmp_path: Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\necho 'JobId=7 JobName=llama JobState=RUNNING NodeList=n1 NumNodes=1 UserId=me(1)'\n")
    program.chmod(0o755)
    working, away = (SlurmSettings(scontrol=str(tmp_path / name)) for name in ("scontrol", "nothing"))
    await check_collector(Slurm(working, context), failing=Slurm(away, context))


async def test_stacks(context: Context, lingering: int) -> None:
    await check_collector(Stacks(StacksSettings(pids=(lingering,)), context))


async def test_wandb_cloud(context: Context, tmp_path: Path) -> None:
    def settings(url: str) -> WandbCloudSettings:
        return WandbCloudSettings(
            entity="acme", project="llm", api_key=Secret(KEY), base_url=url, request_timeout_seconds=2
        )

    with serving(WandbServer(table(1_790_000_000.0))) as server:
        working = WandbCloud(settings(server.url), context)
        await check_collector(working, failing=WandbCloud(settings(NOWHERE), context))


@pytest.mark.parametrize("kind", CHECKS)
def test_every_built_in_component_goes_through_the_contract_checks(kind: str) -> None:
    host = PluginHost.load()
    names = [name for name in host.names(kind) if host.is_built_in(kind, name)]  # type: ignore[arg-type]
    checked = "\n".join(text for file in TESTS.rglob("test_*.py") if CHECKS[kind] in (text := file.read_text()))
    classes = {name: host.component(kind, name).__name__ for name in names}  # type: ignore[arg-type]
    assert {name for name, found in classes.items() if f"{found}(" not in checked} == set()
    assert len(names) >= 5
