"""The page's own routes: its files, and logging in and out."""

from __future__ import annotations

import html
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...base.errors import BadRequest, Forbidden, NotFound, PayloadTooLarge, TooManyRequests
from ..auth import require_role
from ..errors import json_response
from ..sessions import COOKIE, CSRF_HEADER, LIFETIME_SECONDS, SECURE_COOKIE, FailureLimit
from ..state import ApiState
from .assets import assets

FOREVER = "public, max-age=31536000, immutable"
MAX_FORM_BYTES = 4096
_MESSAGE_PLACE = b"<!--message-->"


class PageRoutes:
    """GET /, GET /page/…, GET and POST /login, POST /logout, GET /api/v1/session."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._failures = FailureLimit()

    def root_routes(self) -> list[Route]:
        """Those at the root."""
        return [
            Route("/", self.page, methods=["GET"]),
            Route("/page/{version}/{name}", self.file, methods=["GET"]),
            Route("/login", self.login_form, methods=["GET"]),
            Route("/login", self.login, methods=["POST"]),
            Route("/logout", self.logout, methods=["POST"]),
        ]

    def api_routes(self) -> list[Route]:
        """Those below `/api/v1`."""
        return [Route("/session", self.session, methods=["GET"])]

    async def page(self, request: Request) -> Response:
        """The page itself holds no data, so it needs no token."""
        return _file(request, "index.html", "no-cache")

    async def file(self, request: Request) -> Response:
        """A file of the page; its name changes with its contents, so it may be kept for good."""
        version, name = request.path_params["version"], request.path_params["name"]
        if name.endswith(".html"):
            raise NotFound(f"the page has no file {name!r}")
        return _file(request, name, FOREVER if version == assets().version else "no-cache")

    async def login_form(self, request: Request) -> Response:
        """A plain form that takes a token; works without JavaScript."""
        return _form("")

    async def login(self, request: Request) -> Response:
        """A token against a session cookie; then back to the page."""
        address = request.client.host if request.client else ""
        try:
            self._failures.check_address(address)
        except TooManyRequests as error:
            response = _form(error.message, 429)
            response.headers["Retry-After"] = str(int(error.retry_after_seconds or 60))
            return response
        _refuse_strangers(request)
        form = await _read_form(request)
        name = self._state.sessions.open_session(form.get("token", "").strip())
        if name is None:
            self._failures.record_failure(address)
            return _form("Nobody issued this token, or it was revoked.", 401)
        await self._share_logins()
        response = RedirectResponse("./", 303)
        secure = request.url.scheme == "https"
        response.set_cookie(
            SECURE_COOKIE if secure else COOKIE,
            name,
            max_age=LIFETIME_SECONDS,
            path="/",
            secure=secure,
            httponly=True,
            samesite="strict",
        )
        return response

    async def _share_logins(self) -> None:
        """Let the other daemons of a cluster know: the browser's next request may reach one of them."""
        if self._state.share_logins is not None:
            await self._state.share_logins()

    async def logout(self, request: Request) -> Response:
        """End the session, on the server too."""
        found = self._state.sessions.find_session(request)
        if found is not None:
            require_role(request, self._state, found[1])
            self._state.sessions.end_session(request)
            await self._share_logins()
        response = json_response({"success": True})
        secure = request.url.scheme == "https"
        response.delete_cookie(SECURE_COOKIE if secure else COOKIE, path="/", secure=secure, httponly=True)
        return response

    async def session(self, request: Request) -> Response:
        """The client's session: its role, whether it has logged in, and the token that its changes must carry."""
        require_role(request, self._state, "read")
        found = self._state.sessions.find_session(request)
        if found is None:
            return json_response({"role": "admin", "login": False, "csrf_header": CSRF_HEADER, "csrf": None})
        session, role = found
        return json_response({"role": role, "login": True, "csrf_header": CSRF_HEADER, "csrf": session.csrf})


def _file(request: Request, name: str, caching: str) -> Response:
    asset = assets().named(name)
    headers = {"Cache-Control": caching, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.compressed, headers=headers, media_type=asset.media_type)
    return Response(asset.plain, headers=headers, media_type=asset.media_type)


def _form(message: str, status: int = 200) -> Response:
    shown = f'<p role="alert" class="problem">{html.escape(message)}</p>'.encode() if message else b""
    content = assets().named("login.html").plain.replace(_MESSAGE_PLACE, shown)
    return Response(content, status, {"Cache-Control": "no-store"}, media_type="text/html; charset=utf-8")


def _refuse_strangers(request: Request) -> None:
    """A form on another site's page must not log somebody in here."""
    origin = request.headers.get("origin", "")
    if origin and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise Forbidden("the login form is used from its own page only")


async def _read_form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise PayloadTooLarge(f"the form has more than {MAX_FORM_BYTES} bytes")
    try:
        return {name: values[-1] for name, values in parse_qs(body.decode()).items()}
    except UnicodeDecodeError:
        raise BadRequest("the form is not UTF-8") from None
