"""The declared form of a request, and the splitting of its body into series.

What senders do with every status: 400 is dropped by all of them, 503 is tried again by all of them; Prometheus loses
data on 429, and vmagent is stuck on 401, 403, 404 and 413. So those four are not answered here.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from functools import lru_cache
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from lens_core import BadRequest, IngestRequest, UnsupportedMediaType
from lens_core.plugin_api.encoding import decompress
from lens_core.plugin_api.protobuf import WireError, splitter

VERSIONS = {"": "1.0", "prometheus.writerequest": "1.0", "io.prometheus.write.v2.request": "2.0"}
MEDIA_TYPE = "application/x-protobuf"
# Both versions at once: their field numbers are disjoint, so that a body of the other one is seen, not read as empty.
_Parts = splitter("WriteRequest", {"timeseries": 1, "metadata": 3, "symbols": 4, "series2": 5})


class Cut(msgspec.Struct, frozen=True):
    """A request in pieces: series of 1.0 or 2.0, and metadata (1.0) or symbols (2.0)."""

    series: list[bytes]
    metadata: list[bytes]
    symbols: list[bytes]


def version_of(headers: Mapping[str, str]) -> str:
    """1.0 or 2.0, by the content type; without one it is 1.0. Raises UnsupportedMediaType."""
    return _version_by(headers.get("content-type", ""))


@lru_cache(maxsize=64)
def _version_by(written: str) -> str:
    if not written.strip():
        return "1.0"
    message = Message()
    message["content-type"] = written
    version = VERSIONS.get(str(message.get_param("proto", "")).lower())
    if message.get_content_type() != MEDIA_TYPE or version is None:
        raise UnsupportedMediaType(
            f"content type {written[:200]!r} is not {MEDIA_TYPE}, or its proto is neither prometheus.WriteRequest nor "
            "io.prometheus.write.v2.Request"
        )
    return version


def body_of(request: IngestRequest, limit_bytes: int) -> bytes:
    """The message's bytes; senders that name no content encoding mean snappy. Raises RequestError."""
    if "content-encoding" in request.headers:
        return request.body
    if not request.body:
        raise BadRequest("the body is empty; remote write is sent as a snappy block")
    return decompress(request.body, "snappy", limit_bytes)


def split_request(body: bytes, version: str) -> Cut:
    """Cut a message into its series. Raises BadRequest."""
    try:
        parts: Any = _Parts.FromString(body)
    except DecodeError as error:
        raise BadRequest(f"the body is not a write request: {error}") from None
    first, second = list(parts.timeseries), list(parts.series2)
    metadata, symbols = list(parts.metadata), list(parts.symbols)
    if version == "1.0":
        if second or symbols:
            raise BadRequest("this is remote write 2.0; say so: Content-Type ...;proto=io.prometheus.write.v2.Request")
        return Cut(first, metadata, [])
    if first or metadata:
        raise BadRequest("this is remote write 1.0, but its content type says 2.0")
    return Cut(second, [], symbols)


def damaged(error: WireError) -> BadRequest:
    """The refusal of a message whose parts cannot be read."""
    return BadRequest(f"the body is not a write request: {error}")
