"""DLRover's messages around the pickle: the protobuf of the gRPC service, the JSON of the HTTP one, the reports.

proto3, service `elastic.Master`: Message{int32 node_id=1; string node_type=2; bytes data=3} for requests and for the
answers of `get`; Response{bool success=1; string reason=2} for those of `report`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from lens_core import LensError
from lens_core.plugin_api.protobuf import DELIMITED, VARINT, WireError, delimited, fields, numeric

from .pickles import PickleError, Wire, dump, load

WORKER_TRAINING_METRIC = "WorkerTrainingMetric"
JOB_UID = "job_uid"


class BadMessage(LensError):
    """A request or an answer is not what DLRover's protocol says."""


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One diagnosis report: the fields of DLRover's WorkerTrainingMetric. `timestamp` in seconds."""

    timestamp: int = 0
    data_type: str = "GENERIC"
    data_content: str = ""
    node_id: int = -1
    node_type: str = ""
    node_rank: int = -1
    is_final_result: bool = False
    need_report: bool = False


class Request(msgspec.Struct, frozen=True):
    """The sender and its message, still pickled."""

    node_id: int
    node_type: str
    data: bytes


class _HttpRequest(msgspec.Struct, frozen=True):
    node_id: int
    node_type: str
    data: str


def report_to_wire(report: Report) -> Wire:
    """The message in which a report travels."""
    content = msgspec.json.encode(report).decode()
    return Wire(
        "DiagnosisReportData",
        {"data_cls": WORKER_TRAINING_METRIC, "data_content": content, "node_rank": report.node_rank},
    )


def report_from_wire(message: Wire) -> Report:
    """The report of a message. Raises BadMessage."""
    try:
        return msgspec.json.decode(str(message.fields.get("data_content", "")), type=Report, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage(f"the report cannot be read: {error}") from None


def encode_grpc(request: Request) -> bytes:
    """A request for the gRPC service."""
    parts = [numeric(1, request.node_id)] if request.node_id else []
    return b"".join([*parts, delimited(2, request.node_type.encode()), delimited(3, request.data)])


def decode_grpc(body: bytes) -> Request:
    """A request to the gRPC service. Raises BadMessage."""
    try:
        found = {field.number: field for field in fields(body)}
    except WireError as error:
        raise BadMessage(str(error)) from None
    number = found[1].value if 1 in found and found[1].kind == VARINT else 0
    texts = {key: found[key].value for key in (2, 3) if key in found and found[key].kind == DELIMITED}
    number = number - (1 << 64) if number >= 1 << 63 else number
    return Request(number, texts.get(2, b"").decode("utf-8", "replace"), texts.get(3, b""))


def encode_grpc_response(success: bool, reason: str = "") -> bytes:
    """The gRPC answer to a report."""
    return (numeric(1, 1) if success else b"") + (delimited(2, reason.encode()) if reason else b"")


def decode_grpc_response(body: bytes) -> tuple[bool, str]:
    """Success and reason of a gRPC answer. Raises BadMessage."""
    success, reason = False, ""
    try:
        for field in fields(body):
            if field.number == 1 and field.kind == VARINT:
                success = bool(field.value)
            elif field.number == 2 and field.kind == DELIMITED:
                reason = field.value.decode("utf-8", "replace")
    except WireError as error:
        raise BadMessage(str(error)) from None
    return success, reason


def encode_http(request: Request) -> bytes:
    """A request for the HTTP service."""
    data = base64.b64encode(request.data).decode()
    return msgspec.json.encode(_HttpRequest(request.node_id, request.node_type, data))


def decode_http(body: bytes) -> Request:
    """A request to the HTTP service. Raises BadMessage."""
    try:
        found = msgspec.json.decode(body, type=_HttpRequest)
        return Request(found.node_id, found.node_type, base64.b64decode(found.data, validate=True))
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError) as error:
        raise BadMessage(f"the request cannot be read: {error}") from None


def encode_http_response(success: bool, data: bytes = b"") -> bytes:
    """The HTTP answer: a pickle."""
    return dump(Wire("BaseResponse", {"success": success, "data": data}))


def decode_http_response(body: bytes) -> tuple[bool, bytes]:
    """Success and data of an HTTP answer. Raises BadMessage."""
    try:
        found = load(body)
    except PickleError as error:
        raise BadMessage(f"the answer cannot be read: {error}") from None
    data: Any = found.fields.get("data", b"")
    return found.fields.get("success") is True, data if isinstance(data, bytes) else b""
