"""The gRPC side: service `elastic.Master`, without generated code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lens_core import LensError

from ...dlrover.messages import JOB_UID
from ...dlrover.pickles import MAX_PICKLE_BYTES
from ..grpc_listener import GrpcListener, Method

Handler = Callable[[bytes, str], Awaitable[bytes]]


def make_listener(address: str, report: Handler, get: Handler) -> GrpcListener:
    """A port for `report` and `get`; no TLS and no tokens, as DLRover's agents expect it."""
    methods = {"report": _method(report), "get": _method(get)}
    return GrpcListener(
        address,
        {"elastic.Master": methods},
        max_message_bytes=MAX_PICKLE_BYTES,
        extra="dlrover",
        setting="grpc_listen",
        maximum_concurrent_rpcs=256,
    )


def _method(handler: Handler) -> Method:
    async def answer(body: bytes, context: Any) -> bytes:
        metadata = dict(context.invocation_metadata() or ())
        try:
            return await handler(body, str(metadata.get(JOB_UID, "")))
        except LensError as error:
            from grpc import StatusCode

            await context.abort(StatusCode.UNAVAILABLE, str(error))
            raise

    return answer
