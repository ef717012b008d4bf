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
    suffixes: Annotated[bool, Meta(description="unit and type after the names of series: _seconds, _total")] = True
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
    grpc_listen: Annotated[str, Meta(description="HOST:PORT for gRPC (0.0.0.0:4317); '' for HTTP alone")] = ""
    grpc_tls_certificate: Annotated[
        str,
        Meta(description="a PEM file: the certificate and its chain, for TLS on that port; renewed ones are taken up"),
    ] = ""
    grpc_tls_key: Annotated[str, Meta(description="a PEM file: the key of grpc_tls_certificate")] = ""
    grpc_client_ca_file: Annotated[
        str, Meta(description="a PEM file: only clients with a certificate that one of these has signed are served")
    ] = ""
    grpc_token: Annotated[
        Secret | None, Meta(description="what senders over gRPC give as a bearer token; HTTP has the daemon's tokens")
    ] = None

    def __post_init__(self) -> None:
        if bool(self.grpc_tls_certificate) != bool(self.grpc_tls_key):
            raise ValueError("grpc_tls_certificate and grpc_tls_key: one needs the other")
        if self.grpc_client_ca_file and not self.grpc_tls_certificate:
            raise ValueError("grpc_client_ca_file: it needs grpc_tls_certificate and grpc_tls_key")
