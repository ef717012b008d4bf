"""From an HTTP request to a source's handler: role, size, decompression, errors in the words of the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from ..base.compression import decompress, too_large
from ..base.errors import Overloaded, PayloadTooLarge, RequestError, Unavailable, UnsupportedMediaType
from ..base.exits import without_exit
from ..base.redaction import hide
from ..plugin_api.components import IngestRequest, Reply, Route
from ..plugin_host.guard import Guard
from .auth import require_role
from .checking import MAX_QUESTION_BYTES
from .errors import error_response, json_response
from .state import ApiState

logger = logging.getLogger("lens.ingest")

# Beyond this many bytes decompression goes to a thread, so that other requests are answered meanwhile.
LARGE_BODY_BYTES = 256 * 1024


Endpoint = Callable[[Request], Awaitable[Response]]


class Answering(NamedTuple):
    """A route of a path, and the instance of the source that answers it."""

    route: Route
    source: str


def ingest_endpoint(route: Route, state: ApiState, source: str, claiming: Sequence[Answering] = ()) -> Endpoint:
    """The endpoint that Starlette calls for one route of a source; `claiming` are others that share its path."""
    own = Answering(route, source)
    sharing = [one.route for one in (own, *claiming)]
    limit = max(one.max_body_bytes or state.max_body_bytes for one in sharing)
    encodings = tuple(dict.fromkeys(encoding for one in sharing for encoding in one.encodings))

    async def endpoint(request: Request) -> Response:
        answering = own
        try:
            if claiming:
                answering = _choose_route(own, claiming, _ingest_request(request, b""))
            require_role(request, state, route.role)
            with _in_flight(request, state, limit) as grow:
                body = await _read_body(request, encodings, limit, grow)
                received = _ingest_request(request, body)
                if claiming:
                    answering = _choose_route(own, claiming, received)
                reply = await _handle(answering.route, received, state.guards.get(answering.source))
            return _response(reply)
        except RequestError as error:
            return _refuse(answering.route, request, error)
        except Exception as error:
            if answering.route.refusal is None:
                raise
            logger.error("Request failed. source=%s path=%s", answering.source, request.url.path, exc_info=error)
            return _refuse(answering.route, request, RequestError("internal error; details are in the daemon's log"))

    return endpoint


def _choose_route(own: Answering, claiming: Sequence[Answering], request: IngestRequest) -> Answering:
    """The route that claims the request, else the path's own."""
    return next((one for one in claiming if one.route.claims is not None and one.route.claims(request)), own)


def endpoint_beside(route: Route, state: ApiState, ingest: Endpoint, question: Endpoint) -> Endpoint:
    """The endpoint of a path on which Lens itself answers a question: what the route does not claim is one.

    A question is small and not packed, so that its beginning is enough to tell.
    """
    claims = route.claims

    async def endpoint(request: Request) -> Response:
        assert claims is not None
        if claims(_ingest_request(request, b"")) or request.headers.get("content-encoding", "identity") != "identity":
            return await ingest(request)
        pieces: list[bytes] = []
        size = 0
        stream = request.stream()
        async for piece in stream:
            pieces.append(piece)
            size += len(piece)
            if size > MAX_QUESTION_BYTES:
                break
        body = b"".join(pieces)
        whole = _replayed(request, body, stream)
        if size > MAX_QUESTION_BYTES or claims(_ingest_request(request, body)):
            return await ingest(whole)
        try:
            return await question(whole)
        except RequestError as error:
            return error_response(error)

    return endpoint


def _replayed(request: Request, body: bytes, rest: AsyncIterator[bytes]) -> Request:
    """The request from its beginning: what was read of its body, then what was not."""
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": True}
        piece = await anext(rest, b"")
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    return Request(request.scope, receive)


def _refuse(route: Route, request: Request, error: RequestError) -> Response:
    """Answer an error in the words of the route's protocol."""
    plain = error_response(error, route.wire_errors.get(error.status))
    if route.refusal is None:
        return plain
    try:
        reply = route.refusal(error, _ingest_request(request, b""))
        response = _response(msgspec.structs.replace(reply, body=_hidden(reply.body)))
    except Exception:
        logger.exception("Could not encode a refusal for the protocol. path=%s", request.url.path)
        return plain
    for name in ("Retry-After", "WWW-Authenticate"):
        if name in plain.headers:
            response.headers.setdefault(name, plain.headers[name])
    return response


def _hidden(body: Any) -> Any:
    """The body of a refusal without what came from a secret."""
    if body is None:
        return None
    if isinstance(body, bytes):
        return hide(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return msgspec.Raw(hide(msgspec.json.encode(body).decode()).encode())


async def _handle(route: Route, request: IngestRequest, guard: Guard | None) -> Reply:
    """Call the source; what it raises, other than a refusal, is its own defect and is counted as one."""
    if guard is None:
        return await _call_handler(route, request)
    if reason := guard.why_paused():
        raise Unavailable(f"this source is paused: {reason}", retry_after_seconds=max(1.0, guard.seconds_paused()))
    try:
        reply: Reply = await guard.measure(_call_handler(route, request))
    except RequestError:
        raise
    except Exception as error:
        guard.record_failure(error)
        raise
    guard.succeeded()
    return reply


async def _call_handler(route: Route, request: IngestRequest) -> Reply:
    return await without_exit(route.handler(request))


@contextmanager
def _in_flight(request: Request, state: ApiState, limit: int) -> Iterator[Callable[[int], None]]:
    """Count the bytes of bodies that are being worked on; refuse new ones past the limit.

    One that was too large when it was unpacked had as many bytes as the limit has, and is counted with them.
    """
    held = unpacked = 0

    def grow(size: int) -> None:
        nonlocal held
        held += size
        state.in_flight_bytes += size

    if state.in_flight_bytes >= state.max_in_flight_bytes:
        raise Overloaded("too many bytes are being taken in at once", retry_after_seconds=1)
    try:
        yield grow
    except PayloadTooLarge:
        unpacked = limit
        raise
    finally:
        state.in_flight_bytes -= held
        state.memory.after_body(held + unpacked)


async def _read_body(request: Request, encodings: Sequence[str], limit: int, grow: Callable[[int], None]) -> bytes:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in encodings and encoding != "x-gzip":
        raise UnsupportedMediaType(f"content encoding {encoding!r} is not one of {', '.join(encodings)}")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise too_large(limit)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        grow(len(piece))
        pieces.append(piece)
    raw = b"".join(pieces)
    pieces.clear()  # or a large body would be held twice while it is unpacked
    if encoding == "identity":
        return raw
    if size < LARGE_BODY_BYTES and encoding == "snappy":
        body = decompress(raw, encoding, limit)
    else:
        body = await asyncio.to_thread(decompress, raw, encoding, limit)
    grow(len(body))
    return body


def _ingest_request(request: Request, body: bytes) -> IngestRequest:
    return IngestRequest(
        body=body,
        path=request.scope["path"],
        method=request.method,
        headers=request.headers,
        query=request.query_params,
        client=request.client.host if request.client else "",
        parameters=request.query_params.multi_items(),
        path_parameters=request.path_params,
    )


def _response(reply: Reply) -> Response:
    if reply.body is None:
        return Response(status_code=reply.status, headers=dict(reply.headers))
    if isinstance(reply.body, bytes):
        return Response(reply.body, reply.status, dict(reply.headers))
    return json_response(reply.body, reply.status, dict(reply.headers))
