"""Checks of a request before any endpoint sees it: characters that belong into no address, unknown parameters."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..base.compression import too_large
from ..base.errors import BadRequest
from ..base.json_items import DECODE_ERRORS
from .errors import error_response

MAX_QUESTION_BYTES = 1024 * 1024
# The one character that no text in the store can hold; others may stand in names that jobs gave themselves.
_CONTROL = re.compile("\x00")
# Control characters that a JSON text may hold: line feed and tab; all others are unintended.
_CONTROL_IN_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SHOWN = 50

Endpoint = Callable[[Request], Awaitable[Response]]


class RefuseControlCharacters:
    """Middleware: a NUL or invalid UTF-8 in a path or a parameter is a 400 that names where it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] == "http" and (reason := _why_no_address(scope)):
            await error_response(BadRequest(reason))(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _why_no_address(scope: Scope) -> str:
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    raw_path = raw_path.partition(b"?")[0]
    query: bytes = scope.get("query_string", b"")
    if b"%" in raw_path or not raw_path.isascii():
        name = "workload_uid in the path" if b"/workloads/" in raw_path else "the path"
        if problem := _problem(unquote_to_bytes(raw_path)):
            return f"{name} {problem}"
    if b"%" not in query and query.isascii():
        return ""
    for pair in query.split(b"&"):
        parameter, _, value = pair.partition(b"=")
        if problem := _problem(unquote_to_bytes(parameter)):
            return f"the name of a parameter {problem}"
        if problem := _problem(unquote_to_bytes(value)):
            return f"{unquote_to_bytes(parameter).decode()[:_SHOWN]} {problem}"
    return ""


def _problem(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8: {error.reason} at byte {error.start}"
    found = _CONTROL.search(text)
    return f"holds the control character U+{ord(found[0]):04X} at place {found.start()}" if found else ""


def with_known_parameters(endpoint: Endpoint, known: Iterable[str]) -> Endpoint:
    """The endpoint, which refuses parameters that it does not know: one that is misspelt would else say nothing."""
    names = sorted(known)

    @wraps(endpoint)
    async def checked(request: Request) -> Response:
        for name in request.query_params:
            if name not in names:
                raise BadRequest(_unknown(name, names))
        return await endpoint(request)

    return checked


def _unknown(name: str, known: list[str]) -> str:
    if not known:
        return f"unknown parameter {name[:_SHOWN]!r}: this route takes none"
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown parameter {name[:_SHOWN]!r}{hint} The known ones are {', '.join(known)}"


async def read_question(request: Request, limit: int = MAX_QUESTION_BYTES) -> bytes:
    """The body of a question. Raises PayloadTooLarge; a question is small, whatever bodies with data may be."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


def decode_question(body: bytes, kind: Any, *, strict: bool = True) -> Any:
    """The body of a question as `kind`; an empty one is `{}`. Raises BadRequest that says what is wrong, and where."""
    try:
        body.decode()  # the decoder looks only at what it keeps
        found = msgspec.json.decode(body or b"{}", type=kind, strict=strict)
        if b"\\u00" in body or b"\x7f" in body:
            _refuse_controls(msgspec.json.decode(body), "the body")
    except DECODE_ERRORS as error:
        raise BadRequest(f"the body could not be read: {error}") from None
    return found


def _refuse_controls(value: Any, where: str) -> None:
    if isinstance(value, str) and (found := _CONTROL_IN_TEXT.search(value)):
        raise BadRequest(f"{where} holds the control character U+{ord(found[0]):04X}")
    if isinstance(value, Mapping):
        for name, item in value.items():
            _refuse_controls(name, "a name in the body")
            _refuse_controls(item, name[:_SHOWN])
    elif isinstance(value, list):
        for item in value:
            _refuse_controls(item, where)
