"""Devices of the pods of this node, from the kubelet's pod-resources socket.

Messages: kubernetes/kubelet, pkg/apis/podresources/v1/api.proto (service v1.PodResourcesLister).
"""

from __future__ import annotations

import fnmatch
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lens_core import Collector, Device, LensError, Pod, Record, hookimpl
from lens_core.plugin_api.protobuf import DELIMITED, WireError, fields

# Only looked for here, so that the plugin is unavailable without it: loaded, it takes 9 MiB of every daemon.
if find_spec("grpc") is None:
    raise ModuleNotFoundError("No module named 'grpc'", name="grpc")

METHOD = "/v1.PodResourcesLister/List"
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
CALL_SECONDS = 10.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
KINDS = {
    "*gpu*": "gpu_id",
    "*/mig-*": "gpu_id",
    "*rdma*": "device",
    "*infiniband*": "device",
    "*hca*": "device",
    "*/ib*": "device",
}
# A shared device has the number of the share after its id.
_SHARE = re.compile(r"::\d+$")


class PodResourcesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kubelet's socket, and the names of its resources in the directory."""

    socket: Annotated[str, Meta(min_length=1, description="the kubelet's pod-resources socket")] = SOCKET
    node: Annotated[str, Meta(description="this node's name; by default NODE_NAME, else the host's name")] = ""
    kinds: Annotated[
        dict[str, str],
        Meta(description="globs of resource names (amd.com/gpu) and their kind in the directory; the rest are asic"),
    ] = msgspec.field(default_factory=lambda: {**KINDS})


class PodResources(Collector):
    """Lists the devices of every pod on this node; who the pods are comes from another feed."""

    name = "pod_resources"
    Settings = PodResourcesSettings
    interval_seconds = 10.0
    timeout_seconds = 30.0

    settings: PodResourcesSettings

    async def check(self) -> None:
        """Ask once."""
        await self._list()

    async def collect(self) -> Sequence[Record]:
        """Tell the directory. There is nothing to store: what a pod held is in its series. Raises LensError."""
        node = self.settings.node or os.environ.get("NODE_NAME") or socket.gethostname()
        try:
            pods = pods_of_answer(await self._list(), node, self.settings.kinds)
        except (WireError, UnicodeDecodeError) as error:
            raise LensError(f"the kubelet's answer cannot be read: {error}") from None
        self.context.directory.replace(pods, self.context.name)
        return []

    async def _list(self) -> bytes:
        import grpc.aio

        options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES), ("grpc.enable_http_proxy", 0)]
        try:
            async with grpc.aio.insecure_channel(f"unix://{self.settings.socket}", options=options) as channel:
                return bytes(await channel.unary_unary(METHOD)(b"", timeout=CALL_SECONDS))
        except grpc.aio.AioRpcError as error:
            raise LensError(f"the kubelet's socket {self.settings.socket}: {error.details()}") from None


def pods_of_answer(answer: bytes, node: str, kinds: Mapping[str, str]) -> list[Pod]:
    """The pods of a ListPodResourcesResponse that hold devices. Raises WireError."""
    found = []
    for field in fields(answer):
        if field.number == 1:
            parts = _parts(field.value)
            devices = [device for container in parts.get(3, []) for device in _devices(container, kinds)]
            if devices:
                name, namespace = (_decode_text(parts, number) for number in (1, 2))
                found.append(Pod(uid="", name=name, namespace=namespace, node=node, devices=devices))
    return found


def _devices(container: bytes, kinds: Mapping[str, str]) -> list[Device]:
    found: dict[tuple[str, str], Device] = {}
    for group in _parts(container).get(2, []):
        parts = _parts(group)
        kind = kind_of_resource(_decode_text(parts, 1), kinds)
        for raw in parts.get(2, []):
            device = Device(kind=kind, id=_SHARE.sub("", raw.decode()))
            found[device.kind, device.id] = device
    return list(found.values())


def kind_of_resource(resource: str, kinds: Mapping[str, str]) -> str:
    """The kind of the first glob that a resource's name matches."""
    return next((kind for glob, kind in kinds.items() if fnmatch.fnmatchcase(resource.lower(), glob)), "asic")


def _parts(message: Any) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    if not isinstance(message, bytes):
        raise WireError("a message has the wrong type")
    for field in fields(message):
        if field.kind == DELIMITED:
            found.setdefault(field.number, []).append(field.value)
    return found


def _decode_text(parts: Mapping[int, list[bytes]], number: int) -> str:
    return parts[number][-1].decode() if number in parts else ""


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [PodResources]


# An entry point that names an extra must name an attribute.
plugin = sys.modules[__name__]
