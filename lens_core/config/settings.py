"""The typed configuration: what the daemon is built from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..base.redaction import Secret
from ..delivery.sending.policy import DeliverySettings
from ..model.records import RECORD_KINDS
from ..plugin_api.instance import ComponentConfig

Address = Annotated[
    str,
    Meta(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^:/\s\[\]]+):[0-9]{1,5}$", examples=["127.0.0.1:8080"]),
]
NonEmpty = Annotated[str, Meta(min_length=1)]


_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?")


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP listener and what holds for the whole daemon."""

    listen: Annotated[Address, Meta(description="where the daemon listens; port 0 takes a free one")] = "127.0.0.1:8080"
    metrics_listen: Annotated[
        Address | None, Meta(description="a second listener for /metrics alone, for example 0.0.0.0:9090")
    ] = None
    metrics_open: Annotated[
        bool, Meta(description="let everybody read /metrics without a token, on both listeners")
    ] = False
    cors_origins: Annotated[
        list[str],
        Meta(description="pages of these origins may ask from a browser, for example https://grafana.example"),
    ] = []
    frame_ancestors: Annotated[
        list[str],
        Meta(description="pages of these origins may show the page in a frame, for example https://grafana.example"),
    ] = []
    tls_certificate: Annotated[
        NonEmpty | None, Meta(description="a PEM file: the certificate and its chain; HTTPS then, on both")
    ] = None
    tls_key: Annotated[NonEmpty | None, Meta(description="a PEM file: the key of tls_certificate")] = None
    public_url: Annotated[str, Meta(description="the address that people use, for links; '' derives it")] = ""
    cluster_name: Annotated[str, Meta(min_length=1, description="the name of this cluster in rows and queries")] = (
        "default"
    )
    open_ingest: Annotated[bool, Meta(description="take data without a token on addresses other than loopback")] = False
    ingest_token: Annotated[
        Secret | None,
        Meta(description="a token that may send, beside those of `lens token`; for a Secret that others have too"),
    ] = None
    max_body_bytes: Annotated[
        int, Meta(ge=1024, le=2**31 - 1, description="largest body of a request, decompressed")
    ] = 16 * 1024 * 1024
    max_in_flight_bytes: Annotated[
        int, Meta(ge=1024, description="bodies that are worked on at one time; more are answered 503")
    ] = 64 * 1024 * 1024
    pod_grace_seconds: Annotated[
        float, Meta(ge=0, description="a pod that ended or vanished is known for so long; its last data comes late")
    ] = 900.0
    shutdown_deadline_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="time to deliver what is there when stopping; the rest stays on disk")
    ] = 5.0

    def __post_init__(self) -> None:
        for name in ("listen", "metrics_listen"):
            address = getattr(self, name)
            if address and int(address.rpartition(":")[2]) > 65535:
                raise ValueError(f"{name}: the port must be at most 65535")
        for name in ("cors_origins", "frame_ancestors"):
            for origin in getattr(self, name):
                if not _ORIGIN.fullmatch(origin):
                    raise ValueError(f"{name}: {origin!r} is no origin; write SCHEME://HOST[:PORT], without a path")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key: one needs the other")
        if self.ingest_token is not None and len(self.ingest_token.reveal()) < 16:
            raise ValueError("ingest_token: it must have 16 letters or more, or it could be guessed")
        if self.max_in_flight_bytes < self.max_body_bytes:
            raise ValueError("max_in_flight_bytes: must be at least max_body_bytes, or no body of that size gets in")


class SpoolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The spool that keeps accepted records until every sink has them."""

    kind: Annotated[
        Literal["disk", "memory"], Meta(description="disk survives a crash; memory loses what is not delivered yet")
    ] = "disk"
    max_bytes: Annotated[
        int,
        Meta(ge=64 * 1024, description="how much may wait, as stored: many rows in a body are packed to about a fifth"),
    ] = 1024 * 1024 * 1024
    max_dead_letter_bytes: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="dead letters beyond this are discarded, the oldest first; null: a quarter of max_bytes"),
    ] = None


_NATS_URL = re.compile(r"(nats|tls)://[^\s/@]+(:\d{1,5})?")
_MONITORING_URL = re.compile(r"https?://[^\s/@]+(/\S*)?")


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several daemons as one over JetStream; without this section a daemon is alone and opens no connection for it."""

    nats: Annotated[list[str], Meta(min_length=1, description="the NATS servers: nats://HOST:PORT or tls://HOST:PORT")]
    name: Annotated[
        str,
        Meta(
            pattern="^[a-z0-9][a-z0-9_-]{0,31}$", description="begins every subject, stream and bucket of this cluster"
        ),
    ] = "lens"
    partitions: Annotated[
        int, Meta(ge=1, le=1024, description="parts of each log, shared out among the daemons; never change it later")
    ] = 64
    replicas: Annotated[
        int, Meta(ge=1, le=5, description="copies of each message; three or more, or nothing is safe")
    ] = 3
    allow_unsafe: Annotated[
        bool, Meta(description="run although servers may lose what they acknowledged; for trying, never for data")
    ] = False
    monitoring: Annotated[
        list[str],
        Meta(description="monitoring addresses of all servers (http://HOST:8222); [] takes port 8222 of those in nats"),
    ] = []
    lease_seconds: Annotated[
        float, Meta(ge=1, le=300, description="a daemon that is silent for so long loses what it owns")
    ] = 5.0
    user: Annotated[NonEmpty | None, Meta(description="the user at NATS, with password")] = None
    password: Annotated[Secret | None, Meta(description="the password of user")] = None
    token: Annotated[Secret | None, Meta(description="the token at NATS, instead of user and password")] = None
    credentials: Annotated[
        NonEmpty | None, Meta(description="a file of NATS credentials (.creds), instead of both")
    ] = None
    tls_ca: Annotated[NonEmpty | None, Meta(description="a PEM file: the authority that signed the servers")] = None

    def __post_init__(self) -> None:
        for url in self.nats:
            if not _NATS_URL.fullmatch(url):
                raise ValueError(
                    "nats: write nats://HOST:PORT, and who it is under user, password, token or credentials"
                )
        for address in self.monitoring:
            if not _MONITORING_URL.fullmatch(address):
                raise ValueError("monitoring: write http://HOST:8222 or https://HOST:8222")
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password: one needs the other")
        if sum(one is not None for one in (self.user, self.token, self.credentials)) > 1:
            raise ValueError("user, token and credentials: only one of them says who this is")
        if self.replicas < 3 and not self.allow_unsafe:
            raise ValueError(
                "replicas: with fewer than three copies a lost server may lose data; allow_unsafe: true allows it"
            )


class FilterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects records; an empty list or mapping selects everything. All given conditions must hold."""

    kinds: Annotated[list[str], Meta(description=f"kinds of record: {', '.join(RECORD_KINDS)}")] = []
    data_sources: Annotated[list[str], Meta(description="data sources: wandb, log, tensorflow …; * and ? match")] = []
    labels: Annotated[dict[str, str], Meta(description="labels of the origin; * and ? match")] = {}


class CollectorConfig(ComponentConfig, frozen=True, kw_only=True):
    """A collector with its schedule; the defaults are those of its class."""

    interval_seconds: float
    timeout_seconds: float


class AnalyzerConfig(ComponentConfig, frozen=True, kw_only=True):
    """An analyzer with its schedule; the defaults are those of its class."""

    interval_seconds: float
    timeout_seconds: float


class SinkConfig(ComponentConfig, frozen=True, kw_only=True):
    """A sink; the gate answers 503 when a required one is behind, an optional one skips the oldest instead.

    `limits` are the fields of BatchLimits that are written, in place of the sink's own; `delivery` is complete.
    """

    required: bool = True
    filter: FilterSettings = FilterSettings()
    limits: Mapping[str, Any] = {}
    delivery: DeliverySettings = DeliverySettings()


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A path from sources (and collectors and analyzers) to sinks; its name is the name of its spool."""

    name: str
    sources: list[str]
    sinks: list[str]
    filter: FilterSettings = FilterSettings()
    spool: SpoolSettings = SpoolSettings()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A valid configuration. `store` names the sink that answers queries; `notices` are worth a line in the log."""

    server: ServerSettings
    data_dir: Path
    spool: SpoolSettings
    sources: dict[str, ComponentConfig]
    collectors: dict[str, CollectorConfig]
    sinks: dict[str, SinkConfig]
    detectors: dict[str, ComponentConfig]
    analyzers: dict[str, AnalyzerConfig]
    disabled_detectors: list[str]
    pipelines: dict[str, PipelineConfig]
    store: str | None
    notices: list[str]
    file: Path | None = None
    cluster: ClusterSettings | None = None
