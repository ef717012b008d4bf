"""The settings of the otlp sink."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lens_core import ConfigurationError, Secret
from lens_core.plugin_api.tls import client_context, require_files
from lens_core.plugin_api.urls import separate_login

_PLAIN_ADDRESS = re.compile(r"[a-z]+://[^/?#]+/?", re.IGNORECASE)
_SIGNAL_PATH = re.compile(r"/v1/(metrics|logs|traces)/?$")


class OtlpSinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receiver, and the form in which it gets what Lens has."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s/]",
            description="the receiver's address; over HTTP /v1/metrics and /v1/logs are appended, over gRPC https:// "
            "means TLS and http:// none",
            examples=["http://collector:4318", "https://collector:4317"],
        ),
    ]
    protocol: Annotated[
        Literal["http", "grpc"], Meta(description="HTTP with protobuf, or gRPC (needs lens-agent[otlp-grpc])")
    ] = "http"
    token: Annotated[Secret | None, Meta(description="sent as a bearer token")] = None
    username: Annotated[str, Meta(description="for basic authentication")] = ""
    password: Annotated[Secret | None, Meta(description="for basic authentication")] = None
    headers: Annotated[dict[str, Secret], Meta(description="sent as they are")] = {}
    ca_file: Annotated[str, Meta(description="certificates to trust instead of the system's")] = ""
    client_certificate: Annotated[
        str, Meta(description="a PEM file: the certificate and its chain, for a receiver that asks for one")
    ] = ""
    client_key: Annotated[str, Meta(description="a PEM file: the key of client_certificate")] = ""
    compression: Annotated[Literal["gzip", "none"], Meta(description="the content encoding of requests")] = "gzip"
    rows: Annotated[
        Literal["metrics", "logs", "both"],
        Meta(
            description="rows as gauges, one for each metric, for stores of series; as log records, which are exact "
            "and which another Lens reads back; or as both"
        ),
    ] = "metrics"
    events: Annotated[bool, Meta(description="events as log records; false leaves them out")] = True
    own_metrics_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="Lens' own metrics are sent so often; 0 for never")
    ] = 0.0
    timeout_seconds: Annotated[float, Meta(gt=0, le=300, description="for one request")] = 10.0
    max_records: Annotated[int, Meta(ge=1, description="records that make a batch")] = 2000
    max_bytes: Annotated[int, Meta(ge=1024, description="bytes that make a batch, before they are packed")] = 1024**2

    def __post_init__(self) -> None:
        separate_login(self)
        if (found := _SIGNAL_PATH.search(self.url)) is not None:
            raise ValueError(f"url: leave {found[0]} out; it is appended for each signal")
        if self.protocol == "grpc" and not _PLAIN_ADDRESS.fullmatch(self.url):
            raise ValueError("url: gRPC has no paths; write the address alone, as in http://collector:4317")
        if bool(self.client_certificate) != bool(self.client_key):
            raise ValueError("client_certificate and client_key: one needs the other")
        require_files(self, "ca_file", "client_certificate", "client_key")


def tls_context(settings: OtlpSinkSettings) -> ssl.SSLContext:
    """The certificates to trust and to show. Raises ConfigurationError for files that cannot be used."""
    return client_context(settings.ca_file, settings.client_certificate, settings.client_key)


def read_pem(name: str, path: str) -> bytes | None:
    """The content of the file that a setting names; None without one. Raises ConfigurationError."""
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{name} {path} cannot be read: {error.strerror}") from None
