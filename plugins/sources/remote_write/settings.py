"""The settings of the remote_write source."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NEGATIVE_GLOBS = ["gpu_*", "amd_*", "dcgm_*", "rdma_*", "ib_*", "*_utilization*"]
NODE_LABELS = ["primus_lens_node_name", "node", "node_name", "nodename", "kubernetes_node", "Hostname", "hostname"]
DEVICE_LABELS = {
    "gpu_id": "gpu_id",
    "gpu": "gpu_id",
    "UUID": "gpu_id",
    "uuid": "gpu_id",
    "device": "device",
    "asic": "asic",
}


class RemoteWriteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mapping of series to pods, and the handling of the rest."""

    path: Annotated[
        str, Meta(pattern=r"^/[A-Za-z0-9_./-]*$", description="answered beside /api/v1/write, at the root too")
    ] = "/prometheus"
    copies: Annotated[
        Literal["none", "also", "only"],
        Meta(
            description="a copy of the series for each workload of its pod, with workload_ before the name; only: "
            "nothing but the copies, as Primus Lens does it"
        ),
    ] = "none"
    workload: Annotated[
        Literal["root", "nearest"],
        Meta(description="which of a pod's workloads a series gets: the topmost owner, or the one next to the pod"),
    ] = "root"
    drop_negative: Annotated[
        list[str], Meta(description="globs of metric names whose negative samples are errors of the exporter")
    ] = msgspec.field(default_factory=lambda: [*NEGATIVE_GLOBS])
    node_labels: Annotated[list[str], Meta(description="labels that name the node; the first that is there counts")] = (
        msgspec.field(default_factory=lambda: [*NODE_LABELS])
    )
    device_labels: Annotated[
        dict[str, str], Meta(description="labels that name a device of the node, and its kind in the directory")
    ] = msgspec.field(default_factory=lambda: {**DEVICE_LABELS})
    device_errors: Annotated[
        bool, Meta(description="errors of GPUs among the series (DCGM's and AMD's exporters) become events of the node")
    ] = True
    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1, description="largest body, decompressed")] = (
        32 * 1024 * 1024
    )
    cached_series: Annotated[
        int, Meta(ge=1000, description="label sets that are remembered; more live ones than that cost time")
    ] = 150_000
    recent_drops: Annotated[int, Meta(ge=0, le=100_000, description="drops that /remote-write/drops shows")] = 1000
