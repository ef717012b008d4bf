"""Pods, workloads and devices from the tables of a Primus Lens.

Tables: gpu_pods, workload_pod_reference, gpu_workload, node_container, node_container_devices (AMD Primus-SaFE, Lens).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import psycopg
from lens_plugins.connection_strings import check_connection_string, with_password
from msgspec import Meta

from lens_core import Collector, Context, Device, LensError, Pod, Record, Secret, WorkloadReference, hookimpl

PODS = "select uid, name, namespace, node_name, phase from gpu_pods where running order by uid"
# Depth is limited: a circle of parents must not be followed for ever.
WORKLOADS = """
with recursive member (pod_uid, workload_uid, depth) as (
    select r.pod_uid, r.workload_uid, 0
    from workload_pod_reference r join gpu_pods p on p.uid = r.pod_uid and p.running
  union
    select m.pod_uid, w.parent_uid, m.depth + 1
    from member m join gpu_workload w on w.uid = m.workload_uid
    where w.parent_uid <> '' and m.depth < 10
)
select m.pod_uid, w.uid, w.name, w.kind, w.namespace, w.parent_uid
from (select pod_uid, workload_uid, min(depth) as depth from member group by 1, 2) m
join gpu_workload w on w.uid = m.workload_uid
order by m.pod_uid, m.depth, w.uid
"""
DEVICES = """
select c.pod_uid, d.device_type, d.device_no, d.device_name
from node_container_devices d join node_container c on c.container_id = d.container_id
join gpu_pods p on p.uid = c.pod_uid and p.running
where lower(c.status) = 'running'
order by 1, 2, 3, 4
"""


# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]


class DirectoryPostgresqlSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The location of the tables."""

    dsn: Annotated[Secret, Meta(description="the database of the Primus Lens, read only")]
    password: Annotated[
        Secret | None, Meta(description="the password for `dsn`, as it is: nothing in it has to be encoded")
    ] = None

    def __post_init__(self) -> None:
        check_connection_string("dsn", self.dsn, self.password)


class DirectoryPostgresql(Collector):
    """Reads the running pods, their workloads and devices in three queries of one snapshot."""

    name = "directory_postgresql"
    Settings = DirectoryPostgresqlSettings
    interval_seconds = 20.0
    timeout_seconds = 60.0

    settings: DirectoryPostgresqlSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._stored: dict[str, Pod] = {}
        self._handed: dict[str, Pod] = {}

    async def check(self) -> None:
        """Run the queries."""
        await self._read_pods()

    async def collect(self) -> Sequence[Record]:
        """The pods that are new or changed. Raises LensError."""
        self._handed = {pod.uid: pod for pod in await self._read_pods()}
        self.context.directory.replace(self._handed.values(), self.context.name)
        return [pod for uid, pod in self._handed.items() if self._stored.get(uid) != pod]

    async def stored(self) -> None:
        """Mark the records that were handed over as stored."""
        self._stored = self._handed

    async def _read_pods(self) -> list[Pod]:
        address = with_password(self.settings.dsn, self.settings.password)
        try:
            async with await psycopg.AsyncConnection.connect(address) as connection:
                await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
                await connection.set_read_only(True)
                pods, workloads, devices = [
                    await (await connection.execute(query)).fetchall() for query in (PODS, WORKLOADS, DEVICES)
                ]
        except psycopg.Error as error:
            # The error of a connection may hold the DSN with its password.
            raise LensError(
                f"the tables cannot be read: {error.diag.message_primary or type(error).__name__}"
            ) from None
        return _pods(pods, workloads, devices)


def _pods(rows: Sequence[Any], workloads: Sequence[Any], devices: Sequence[Any]) -> list[Pod]:
    members: dict[str, list[WorkloadReference]] = {}
    for pod_uid, uid, name, kind, namespace, parent in workloads:
        reference = WorkloadReference(
            uid=uid, name=name or "", kind=kind or "", namespace=namespace or "", parent_uid=parent or ""
        )
        members.setdefault(pod_uid, []).append(reference)
    held: dict[str, list[Device]] = {}
    for pod_uid, kind, number, name in devices:
        held.setdefault(pod_uid, []).append(_device(kind or "", number, name or ""))
    return [
        Pod(
            uid=uid,
            name=name,
            namespace=namespace or "",
            node=node or "",
            phase=phase or "Running",
            workloads=members.get(uid, []),
            devices=held.get(uid, []),
        )
        for uid, name, namespace, node, phase in rows
    ]


def _device(kind: str, number: object, name: str) -> Device:
    """GPUs go by their number, everything else by its name."""
    kind = kind.lower()
    if kind == "gpu":
        return Device(kind="gpu_id", id=str(number))
    return Device(kind="device" if kind in ("ib", "rdma") else "asic", id=name)


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [DirectoryPostgresql]
