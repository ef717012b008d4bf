"""The settings of the otlp sink."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lens_core import Secret
from lens_core.plugin_api.urls import separate_login

_SIGNAL_PATH = re.compile(r"/v1/(metrics|logs|traces)/?$")


class OtlpSinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receiver, and the form in which it gets what Lens has."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s/]",
            description="the receiver's address for OTLP over HTTP; /v1/metrics and /v1/logs are appended",
            examples=["http://collector:4318"],
        ),
    ]
    token: Annotated[Secret | None, Meta(description="sent as a bearer token")] = None
    username: Annotated[str, Meta(description="for basic authentication")] = ""
    password: Annotated[Secret | None, Meta(description="for basic authentication")] = None
    headers: Annotated[dict[str, Secret], Meta(description="sent as they are")] = {}
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
