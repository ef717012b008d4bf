"""The bodies of the calls between the daemon and an isolated sink or source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..base.compression import decompress
from ..base.errors import LensError
from ..model.records import Record, decode_envelope, encode_envelope
from ..plugin_api.components import IngestRequest, Reply
from ..plugin_api.sink_answers import Answer, Batch, Delivered, Poisoned, Position, Rejected, Retry
from .isolation_channel import MAX_MESSAGE_BYTES


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch; `packed` says that the envelope is compressed, as the spool has it."""

    envelope: bytes
    packed: bool
    start: Position
    end: Position
    spool_id: str
    pipeline: str
    sink: str
    attempt: int


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Any of a sink's four answers."""

    kind: Literal["delivered", "retry", "rejected", "poisoned"]
    filtered: int = 0
    reason: str = ""
    after_seconds: float | None = None
    timed_out: bool = False
    items: dict[int, str] = {}
    parts: dict[int, bytes] = {}


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the route with this index."""

    route: int
    body: bytes
    path: str
    method: str
    headers: dict[str, str]
    query: dict[str, str]
    client: str
    parameters: list[tuple[str, str]]


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply; `json` where the body is anything but bytes."""

    status: int
    headers: dict[str, str]
    body: bytes | None
    json: bytes | None


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a source on their way to its gate, with its counts."""

    envelope: bytes
    received: int | None
    filtered: int
    rejected: dict[str, int]


def encode_batch(batch: Batch) -> bytes:
    """Encode a batch for the child."""
    return msgspec.msgpack.encode(
        _Batch(
            envelope=encode_envelope(batch.records) if batch.packed is None else batch.packed,
            packed=batch.packed is not None,
            start=batch.start,
            end=batch.end,
            spool_id=batch.spool_id,
            pipeline=batch.pipeline,
            sink=batch.sink,
            attempt=batch.attempt,
        )
    )


def decode_batch(body: bytes) -> Batch:
    """Decode a batch. Raises LensError when a record of it cannot be read: its place would be another's."""
    found = msgspec.msgpack.decode(body, type=_Batch)
    plain = decompress(found.envelope, "zstd", MAX_MESSAGE_BYTES) if found.packed else found.envelope
    decoded = decode_envelope(plain)
    if decoded.rejected:
        raise LensError(f"a record cannot be read in the sink's process: {decoded.rejected[0][1]}")
    return Batch(
        records=decoded.records,
        start=found.start,
        end=found.end,
        spool_id=found.spool_id,
        pipeline=found.pipeline,
        sink=found.sink,
        attempt=found.attempt,
        packed=found.envelope if found.packed else None,
    )


def encode_answer(answer: Any) -> bytes:
    """Encode a sink's answer. Raises LensError for what is none."""
    if isinstance(answer, Delivered):
        found = _Answer(kind="delivered", filtered=answer.filtered)
    elif isinstance(answer, Retry):
        found = _Answer(
            kind="retry", reason=answer.reason, after_seconds=answer.after_seconds, timed_out=answer.timed_out
        )
    elif isinstance(answer, Rejected):
        parts = {index: encode_envelope([record]) for index, record in answer.parts.items()}
        found = _Answer(kind="rejected", items=dict(answer.items), filtered=answer.filtered, parts=parts)
    elif isinstance(answer, Poisoned):
        found = _Answer(kind="poisoned", reason=answer.reason)
    else:
        raise LensError(f"send() answered {answer!r}; it must be Delivered, Retry, Rejected or Poisoned"[:500])
    return msgspec.msgpack.encode(found)


def decode_answer(body: bytes) -> Answer:
    """Decode a sink's answer."""
    found = msgspec.msgpack.decode(body, type=_Answer)
    if found.kind == "delivered":
        return Delivered(found.filtered)
    if found.kind == "retry":
        return Retry(found.reason, found.after_seconds, found.timed_out)
    if found.kind == "poisoned":
        return Poisoned(found.reason)
    parts = {index: decode_envelope(envelope).records[0] for index, envelope in found.parts.items()}
    return Rejected(found.items, found.filtered, parts)


def encode_request(route: int, request: IngestRequest) -> bytes:
    """Encode a request for a source's route."""
    return msgspec.msgpack.encode(
        _Request(
            route=route,
            body=request.body,
            path=request.path,
            method=request.method,
            headers=dict(request.headers),
            query=dict(request.query),
            client=request.client,
            parameters=[*request.parameters],
        )
    )


def decode_request(body: bytes) -> tuple[int, IngestRequest]:
    """Decode the index of a route and a request for it."""
    found = msgspec.msgpack.decode(body, type=_Request)
    return found.route, IngestRequest(
        body=found.body,
        path=found.path,
        method=found.method,
        headers=found.headers,
        query=found.query,
        client=found.client,
        parameters=found.parameters,
    )


def encode_reply(reply: Any) -> bytes:
    """Encode what a source answers. Raises LensError for what is no reply."""
    if not isinstance(reply, Reply):
        raise LensError(f"a handler answered {reply!r}, and not a Reply"[:500])
    is_json = reply.body is not None and not isinstance(reply.body, bytes)
    return msgspec.msgpack.encode(
        _Reply(
            status=reply.status,
            headers=dict(reply.headers),
            body=None if is_json else reply.body,
            json=msgspec.json.encode(reply.body) if is_json else None,
        )
    )


def decode_reply(body: bytes) -> Reply:
    """Decode what a source answers."""
    found = msgspec.msgpack.decode(body, type=_Reply)
    answer = found.body if found.json is None else msgspec.Raw(found.json)
    return Reply(body=answer, status=found.status, headers=found.headers)


def encode_submission(
    records: Sequence[Record], received: int | None, filtered: int, rejected: Mapping[str, int] | None
) -> bytes:
    """Encode records for the gate."""
    return msgspec.msgpack.encode(
        Submission(
            envelope=encode_envelope(records), received=received, filtered=filtered, rejected=dict(rejected or {})
        )
    )


def decode_submission(body: bytes) -> tuple[Sequence[Record], Submission]:
    """Decode records for the gate. Raises LensError when one of them cannot be read."""
    found = msgspec.msgpack.decode(body, type=Submission)
    decoded = decode_envelope(found.envelope)
    if decoded.rejected:
        raise LensError(f"a record does not survive the envelope: {decoded.rejected[0][1]}")
    return decoded.records, found
