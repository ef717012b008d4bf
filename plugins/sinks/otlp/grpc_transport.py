"""OTLP over gRPC: the services' method Export, without generated code."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lens_core import LensError, Poisoned, Retry
from lens_core.plugin_api.protobuf import DELIMITED, VARINT, WireError, fields
from lens_core.plugin_api.urls import basic_auth, revealed

from .settings import OtlpSinkSettings, read_pem, tls_context

_METHODS = {
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_DETAILS = "grpc-status-details-bin"
_RETRY_INFO = b"google.rpc.RetryInfo"
_PORT = 4317
_NANOSECONDS = 1_000_000_000
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_HINTS = {
    "UNAUTHENTICATED": "the receiver does not accept the key; set the right token, user or header",
    "PERMISSION_DENIED": "the receiver does not accept the key; set the right token, user or header",
    "UNIMPLEMENTED": "nothing takes this signal at this address; check the url, and the receiver's pipelines",
}


class GrpcTransport:
    """Calls Export; the channel is opened with the first call. Raises LensError where grpcio
    is missing, or files of certificates cannot be used."""

    def __init__(self, settings: OtlpSinkSettings) -> None:
        self._settings = settings
        self._channel: Any = None
        try:
            self._grpc = importlib.import_module("grpc")
            self._aio = importlib.import_module("grpc.aio")
        except ImportError:
            raise LensError(
                'protocol: grpc needs a package: pip install "lens-agent[otlp-grpc]"; or set protocol: http'
            ) from None
        self._metadata = tuple(_metadata(settings).items())
        self._credentials = None
        if settings.url.lower().startswith("https"):
            tls_context(settings)  # gRPC itself says of unusable files only that it cannot connect
            self._credentials = self._grpc.ssl_channel_credentials(
                read_pem("ca_file", settings.ca_file),
                read_pem("client_key", settings.client_key),
                read_pem("client_certificate", settings.client_certificate),
            )

    async def close(self) -> None:
        """Close the connections."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def export(self, signal: str, body: bytes) -> bytes | Retry | Poisoned:
        """Send the message of a signal; the message of the answer when it was taken."""
        compression = self._grpc.Compression
        try:
            answer = await self._open_channel().unary_unary(_METHODS[signal])(
                body,
                timeout=self._settings.timeout_seconds,
                metadata=self._metadata,
                compression=compression.Gzip if self._settings.compression == "gzip" else compression.NoCompression,
            )
        except self._aio.AioRpcError as error:
            return classify(error.code().name, error.details() or "", dict(error.trailing_metadata() or ()))
        return bytes(answer)

    def _open_channel(self) -> Any:
        if self._channel is None:
            options = [("grpc.max_receive_message_length", _MAX_ANSWER_BYTES), ("grpc.max_send_message_length", -1)]
            parts = urlsplit(self._settings.url)
            target = parts.netloc if parts.port else f"{parts.netloc}:{_PORT}"
            if self._credentials is not None:
                self._channel = self._aio.secure_channel(target, self._credentials, options=options)
            else:
                self._channel = self._aio.insecure_channel(target, options=options)
        return self._channel


def _metadata(settings: OtlpSinkSettings) -> dict[str, str]:
    """The headers of each call: names in small letters, as HTTP/2 has them."""
    found = {name.lower(): text for name, text in revealed(settings.headers).items()}
    if settings.token:
        found["authorization"] = f"Bearer {settings.token.reveal()}"
    elif (login := basic_auth(settings.username, settings.password)) is not None:
        found["authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
    return found


def classify(code: str, details: str, trailing: Mapping[str, Any]) -> Retry | Poisoned:
    """The meaning of a status. Only what says that the message is wrong or too large is about the records."""
    reason = f"{code}: {' '.join(details.split())[:300]}"
    pause = retry_info(trailing.get(_DETAILS, b""))
    if code == "INVALID_ARGUMENT":
        return Poisoned(reason)
    if code == "RESOURCE_EXHAUSTED" and pause is None and _is_about_size(details):
        return Poisoned(reason)
    hint = _HINTS.get(code, "")
    return Retry(f"{reason} ({hint})" if hint else reason, pause, timed_out=code == "DEADLINE_EXCEEDED")


def _is_about_size(details: str) -> bool:
    """Whether a receiver says that the message is too large, and not that it is busy."""
    lowered = details.lower()
    return "larger than" in lowered or "too large" in lowered or "exceeds" in lowered


def retry_info(details: Any) -> float | None:
    """The seconds that a google.rpc.Status asks to wait in a RetryInfo; None where it has none."""
    if not isinstance(details, bytes):
        return None
    try:
        for one in fields(details):
            if one.number == 3 and one.kind == DELIMITED:
                held = {part.number: part.value for part in fields(one.value) if part.kind == DELIMITED}
                if bytes(held.get(1, b"")).endswith(_RETRY_INFO):
                    return _seconds_of(held.get(2, b""))
    except WireError:
        return None
    return None


def _seconds_of(retry_info: bytes) -> float:
    duration = next((one.value for one in fields(retry_info) if one.number == 1 and one.kind == DELIMITED), b"")
    parts = {one.number: one.value for one in fields(duration) if one.kind == VARINT}
    seconds = float(parts.get(1, 0) + parts.get(2, 0) / _NANOSECONDS)
    return seconds if seconds < 2**31 else 0.0  # negative ones are huge numbers here
