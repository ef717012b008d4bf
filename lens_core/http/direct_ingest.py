"""Requests to sources, past what is made for readers: most requests of a busy daemon, and half of their time otherwise.

Compression of answers, headers for browsers, fair shares and checks of parameters do nothing for a POST to a source's
own path without parameters, and finding its route among a hundred takes longer than all that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import on_http_exception
from .openapi import DeclaredRoute

_NOTHING = QueryParams()


class DirectIngest:
    """Middleware: answers a POST to one of these paths by its route, without what comes after."""

    def __init__(self, app: ASGIApp, routes: Mapping[str, DeclaredRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on."""
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None or scope["method"] != "POST" or scope["query_string"]:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = _IngestRequest(scope, receive, send)
        try:
            response = await route.endpoint(request)
        except HTTPException as error:
            response = await on_http_exception(request, error)
        await response(scope, receive, send)


class _IngestHeaders(Headers):
    """Headers that are found without a search: a dozen are asked for, most of which are not there."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        self._first: dict[str, str] = {}
        for name, value in self._list:
            self._first.setdefault(name.decode("latin-1"), value.decode("latin-1"))

    def __getitem__(self, key: str) -> str:
        return self._first[key.lower()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._first


class _IngestRequest(Request):
    """A request without parameters."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self._headers = _IngestHeaders(scope)
        self._query_params = _NOTHING


def ingest_routes(prefixes: Mapping[str, Sequence[Route]]) -> dict[str, DeclaredRoute]:
    """The routes of sources by their whole paths, as the routes below each prefix would answer them."""
    found: dict[str, DeclaredRoute] = {}
    for prefix, routes in prefixes.items():
        for route in routes:
            if isinstance(route, DeclaredRoute) and route.declared.role == "ingest" and _first(routes, route) is route:
                found.setdefault(prefix + route.path, route)
    return found


def _first(routes: Sequence[Route], wanted: Route) -> BaseRoute | None:
    """The route that answers a POST to the path of another; None if that is no path but a pattern."""
    if wanted.param_convertors:
        return None
    scope = {"type": "http", "method": "POST", "path": wanted.path}
    return next((route for route in routes if route.matches(scope)[0] is Match.FULL), None)
