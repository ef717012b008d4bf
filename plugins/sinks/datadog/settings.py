"""Settings of the datadog sink."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lens_core import Secret


class DatadogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the datadog sink.

    `api_key`: DD_API_KEY when left out, else it comes from AWS. `aws_secret`: a secret of AWS (a JSON object with
    DD_API_KEY, or the key as plain text). `aws_region`: where that secret is. `site`: DD_SITE, else datadoghq.com;
    others are us3.datadoghq.com, datadoghq.eu …
    `url`: another intake or a proxy, instead of `https://api.SITE`.

    `tags`: on every metric, as `key:value`. `env`: a tag `env:…`; DD_ENV when left out. `prefix`: before every name.
    `rows`: send training rows too, each value as the gauge `ROWS_PREFIX.NAME`; every run is a custom metric of its
    own then. `rows_prefix`: what names of rows begin with. `compression`: gzip, zstd or none. `timeout_seconds`: for
    one request. `max_records`: when a batch is full. `max_payload_bytes`: the limit of the intake, compressed;
    `max_body_bytes`: the limit decompressed; `max_points`: points per payload.
    """

    api_key: Secret | None = None
    aws_secret: str = ""
    aws_region: str = ""
    site: str = ""
    url: str = ""
    tags: list[str] = []
    env: str = ""
    prefix: str = ""
    rows: bool = False
    rows_prefix: str = "lens.training"
    compression: Literal["gzip", "zstd", "none"] = "gzip"
    timeout_seconds: Annotated[float, Meta(gt=0)] = 30.0
    max_records: Annotated[int, Meta(ge=1)] = 5_000
    max_payload_bytes: Annotated[int, Meta(ge=1024, le=512_000)] = 512_000
    max_body_bytes: Annotated[int, Meta(ge=1024, le=5_242_880)] = 5_242_880
    max_points: Annotated[int, Meta(ge=1)] = 10_000
