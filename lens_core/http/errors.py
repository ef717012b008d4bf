"""Every error has one shape, `{"code", "message"}`, and a true HTTP status."""

from __future__ import annotations

import logging
import math
from difflib import get_close_matches

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..base.errors import BadRequest, MethodNotAllowed, NotFound, RequestError
from ..base.redaction import hide

logger = logging.getLogger(__name__)

JSON = "application/json"


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(body), status, headers, media_type=JSON)


def error_response(error: RequestError, status: int | None = None) -> Response:
    """The answer to a refused request; `status` where a protocol's senders need another one."""
    headers = {}
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response({"code": error.code, "message": hide(error.message)}, status or error.status, headers)


async def on_request_error(request: Request, error: Exception) -> Response:
    """Handler of the errors that Lens raises on purpose."""
    assert isinstance(error, RequestError)
    return error_response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Handler of Starlette's own errors: an unknown route, a wrong method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(NotFound(f"there is no route {request.url.path[:200]}{_near_routes(request)}"))
    if error.status_code == 405:
        response = error_response(MethodNotAllowed(f"{request.method} is not answered at {request.url.path}"))
        response.headers.update(error.headers or {})
        return response
    return error_response(BadRequest(str(error.detail)), error.status_code)


def _near_routes(request: Request) -> str:
    """The routes that were perhaps meant: alike, or the same below /api/v1."""
    paths: list[str] = []
    for route in request.app.routes:
        below = getattr(route, "routes", None)
        prefix = getattr(route, "path", "")
        if below is None:
            paths.append(prefix)
        elif prefix == "/api/v1":
            paths += [prefix + inner.path.replace(":path}", "}") for inner in below]
    asked = request.url.path[:200]
    near = get_close_matches(asked, paths, 3) or get_close_matches(f"/api/v1{asked}", paths, 3)
    return f"; near it are {', '.join(near)}" if near else "; /api/v1/openapi.json lists them"


async def on_unexpected(request: Request, error: Exception) -> Response:
    """Handler of everything else: the log has the details, the client does not."""
    logger.error("Request failed. method=%s path=%s", request.method, request.url.path, exc_info=error)
    return error_response(RequestError("internal error; details are in the daemon's log"))
