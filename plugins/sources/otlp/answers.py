"""Answers to OTLP requests: success, partial success, and errors as google.rpc.Status, in the request's encoding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lens_core import IngestRequest, Reply, RequestError, UnsupportedMediaType
from lens_core.plugin_api.protobuf import delimited, numeric

PROTOBUF, JSON = "application/x-protobuf", "application/json"
# The field of a partial success that counts what was refused of each signal.
_REJECTED = {"metrics": "rejectedDataPoints", "logs": "rejectedLogRecords", "traces": "rejectedSpans"}
# Codes of google.rpc by the status over HTTP.
OK, INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE, UNAUTHENTICATED = (
    0,
    3,
    5,
    7,
    8,
    14,
    16,
)
_CODES: Mapping[int, int] = {
    400: INVALID_ARGUMENT,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: NOT_FOUND,
    413: RESOURCE_EXHAUSTED,
    415: INVALID_ARGUMENT,
    429: UNAVAILABLE,
    503: UNAVAILABLE,
}
# Senders drop what is answered 500, and send again what is answered 503: a defect here is no fault of the data.
LATER_SECONDS = 5.0
_MAX_MESSAGE = 1000
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def media_type(request: IngestRequest) -> str:
    """The encoding of a request, without parameters. Raises UnsupportedMediaType."""
    found = _content_type(request)
    if found not in (PROTOBUF, JSON):
        raise UnsupportedMediaType(f"content type {found[:100]!r} is neither {PROTOBUF} nor {JSON}")
    return found


def is_protobuf(request: IngestRequest) -> bool:
    """Whether the body is protobuf by its content type, which nothing but OTLP sends here."""
    return _content_type(request) == PROTOBUF


def _content_type(request: IngestRequest) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def success(signal: str, encoding: str, rejected: int, message: str) -> Reply:
    """200, with a partial success where something was refused or is to be said."""
    body: Any
    if encoding == JSON:
        partial: dict[str, Any] = {_REJECTED[signal]: str(rejected)} if rejected else {}
        if message:
            partial["errorMessage"] = message[:_MAX_MESSAGE]
        body = {"partialSuccess": partial} if partial else {}
        return Reply(body=body)
    return Reply(body=encode_success(rejected, message), headers={"Content-Type": PROTOBUF})


def encode_success(rejected: int, message: str) -> bytes:
    """The protobuf form of an answer, the same for all signals; empty for a full success."""
    if not rejected and not message:
        return b""
    count = numeric(1, rejected) if rejected else b""
    return delimited(1, count + delimited(2, message[:_MAX_MESSAGE].encode()))


def refuse(error: RequestError, request: IngestRequest) -> Reply:
    """Answer what is refused or fails; what may come again gets 503 and Retry-After, never 500 or 408."""
    status = 503 if error.status >= 500 else error.status
    headers: dict[str, str] = {}
    pause = retry_seconds(error)
    if pause is not None:
        headers["Retry-After"] = str(max(1, math.ceil(pause)))
    code = _CODES.get(status, INVALID_ARGUMENT)
    if is_protobuf(request):
        headers["Content-Type"] = PROTOBUF
        return Reply(body=encode_status(code, error.message), status=status, headers=headers)
    return Reply(body={"code": code, "message": error.message}, status=status, headers=headers)


def retry_seconds(error: RequestError) -> float | None:
    """The seconds that a sender should wait; None for a refusal for good."""
    if error.retry_after_seconds is not None:
        return error.retry_after_seconds
    return LATER_SECONDS if error.status >= 500 or error.status == 429 else None


def status_code(error: RequestError) -> int:
    """The code of google.rpc for an error."""
    return UNAVAILABLE if error.status >= 500 else _CODES.get(error.status, INVALID_ARGUMENT)


def encode_status(code: int, message: str, retry_after_seconds: float | None = None) -> bytes:
    """A google.rpc.Status, with RetryInfo where the sender may come again."""
    status = numeric(1, code) + delimited(2, message[:_MAX_MESSAGE].encode("utf-8", "replace"))
    if retry_after_seconds is None:
        return status
    info = delimited(1, numeric(1, max(1, math.ceil(retry_after_seconds))))
    return status + delimited(3, delimited(1, _RETRY_INFO.encode()) + delimited(2, info))
