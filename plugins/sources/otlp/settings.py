"""The settings of the otlp source."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lens_core import Secret

STEP_ATTRIBUTES = ["megatron.iteration", "dl.iteration", "training.iteration", "iteration", "global_step", "step"]


class OtlpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conversion of metrics, log records and spans, and the port for gRPC."""

    step_attributes: Annotated[
        list[str],
        Meta(
            description="a point with one of these attributes is a value of a training step: it joins that step's row"
        ),
    ] = msgspec.field(default_factory=lambda: [*STEP_ATTRIBUTES])
    resource_labels: Annotated[
        list[str], Meta(description="further resource attributes that every series gets as labels (nemo.run.id)")
    ] = []
    suffixes: Annotated[bool, Meta(description="unit and type behind the names of series: _seconds, _total")] = True
    target_info: Annotated[
        bool, Meta(description="a series target_info for each resource, with all of its attributes")
    ] = True
    workload: Annotated[
        Literal["root", "nearest"],
        Meta(description="which of a pod's workloads a series gets: the topmost owner, or the one next to the pod"),
    ] = "root"
    max_line_bytes: Annotated[int, Meta(ge=1024, description="longer log lines are cut")] = 256 * 1024
    ignore_pods: Annotated[tuple[str, ...], Meta(description="pods whose log lines are left out; * and ? match")] = (
        "*primus-lens-telemetry-processor*",
    )
    max_body_bytes: Annotated[
        int, Meta(ge=1024, le=1024**3, description="of a request after decompression, over HTTP and over gRPC")
    ] = 16 * 1024 * 1024
    cached_series: Annotated[int, Meta(ge=0, description="label sets that are kept decoded, about 1 KiB each")] = (
        100_000
    )
    grpc_listen: Annotated[
        str, Meta(description="HOST:PORT for gRPC (0.0.0.0:4317), without TLS; '' for HTTP alone")
    ] = ""
    grpc_token: Annotated[
        Secret | None, Meta(description="what senders over gRPC give as a bearer token; HTTP has the daemon's tokens")
    ] = None
