"""The application: every route under `/api/v1` and `/v1`, and at the root where a seed gives a bare path."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..base.errors import RequestError
from ..base.self_metrics import SelfMetrics
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Route as PluginRoute
from ..plugin_api.components import Sink, Source
from ..plugin_host.info import summary_of
from .checking import RefuseControlCharacters, with_known_parameters
from .collisions import refuse_collisions
from .detection import DetectionRoutes
from .diagnosis import DiagnosisRoutes
from .direct_ingest import DirectIngest, ingest_routes
from .directory import DirectoryRoutes, PodRoutes
from .disconnects import CancelOnDisconnect
from .errors import json_response, on_http_exception, on_request_error, on_unexpected
from .fair_share import FairShare
from .ingest import Answering, endpoint_beside, ingest_endpoint
from .log_tail import LogTailRoutes
from .measurements import MeasurementRoutes
from .openapi import DeclaredRoute, openapi_document
from .openapi_routes import PREFIX, QUESTIONS, query_of
from .page.assets import SecurityHeaders
from .page.live import LiveRoutes
from .page.overview import OverviewRoutes
from .page.routes import PageRoutes
from .query import QueryRoutes
from .runs import RunRoutes
from .state import ApiState
from .status import StatusRoutes

PREFIXES = (PREFIX, "/v1")
COMPRESS_FROM_BYTES = 1024
_EVENT_STREAMS = ("/stream", "/tap", "/changes")
COMPRESSION_LEVEL = 1  # the event loop waits meanwhile: fast rather than small


def build_app(state: ApiState) -> Starlette:
    """Build the application of a daemon."""
    below, root = routes_of(state)
    count_from_zero([*below, *root], state.metrics)
    mounts: list[BaseRoute] = [Mount(prefix, routes=below) for prefix in PREFIXES]
    ingest = ingest_routes({"": root, **dict.fromkeys(PREFIXES, below)})
    return _application(state, [*root, *mounts], ingest)


def build_metrics_app(state: ApiState) -> Starlette:
    """Build the application of the second listener: Lens' own metrics, liveness and readiness."""
    return _application(state, StatusRoutes(state).root_routes())


def _application(
    state: ApiState, routes: Sequence[BaseRoute], ingest: Mapping[str, DeclaredRoute] | None = None
) -> Starlette:
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(CountRequests, state=state),
            *_cross_origin(state),
            Middleware(DirectIngest, routes=ingest or {}),
            Middleware(SecurityHeaders, frame_ancestors=state.frame_ancestors),
            Middleware(CompressAnswers),
            Middleware(RefuseControlCharacters),
            Middleware(FairShare),
        ],
        exception_handlers={
            RequestError: on_request_error,
            HTTPException: on_http_exception,
            Exception: on_unexpected,
        },
    )


def _cross_origin(state: ApiState) -> list[Middleware]:
    """Let the pages of the listed origins ask with a token; a login's cookie is not sent from there."""
    if not state.cors_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(state.cors_origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match", "Last-Event-ID"],
            expose_headers=["ETag", "X-Next-Cursor", "X-Total-Count", "Retry-After"],
        )
    ]


def routes_of(state: ApiState) -> tuple[list[Route], list[Route]]:
    """The routes below the prefixes, and those at the root. Raises RouteCollision where two collide."""
    queries = QueryRoutes(state)
    status = StatusRoutes(state)
    pods = PodRoutes(state)
    directory = DirectoryRoutes(state)
    page = PageRoutes(state)
    below = [
        *page.api_routes(),
        *LiveRoutes(state).routes(),
        *OverviewRoutes(state).routes(),
        *LogTailRoutes(state).routes(),
        *MeasurementRoutes(state).routes(),
        *RunRoutes(state).routes(),
    ]
    below += [*status.api_routes(), *pods.routes(), *directory.routes()]
    others = [*DetectionRoutes(state).routes(), *DiagnosisRoutes(state).routes(), *queries.routes()]
    asked = [*map(_checked, others)]
    below = [*map(_checked, below), *_source_routes(state, asked), *asked]
    root = [*page.root_routes(), *status.root_routes(), *pods.routes(), *_source_routes(state, (), root=True)]

    async def openapi(request: Request) -> Response:
        """This document."""
        return json_response(document())

    for routes in (below, root):
        refuse_collisions(routes)
    below.insert(0, Route("/openapi.json", openapi, methods=["GET"]))
    # Made when it is first asked for: that takes as long as all else here.
    document = cache(lambda: openapi_document(below, root))
    return below, root


def _checked(route: Route) -> Route:
    """The route, which refuses parameters that are not documented for it; bodies with questions come with any.

    One that only reads is cancelled when its client goes away.
    """
    methods = sorted(route.methods or ())
    path = route.path.replace(":path}", "}")
    is_reading = "GET" in methods or path in QUESTIONS
    endpoint = route.endpoint
    if path not in QUESTIONS:
        endpoint = with_known_parameters(endpoint, {name for method in methods for name in query_of(method, path)})
    middleware = [Middleware(CancelOnDisconnect)] if is_reading else []
    return Route(route.path, endpoint, methods=methods, name=route.name, middleware=middleware)


def _source_routes(state: ApiState, asked: Sequence[Route], *, root: bool = False) -> Sequence[Route]:
    """The routes of plugins; `asked` are routes of Lens' own with which those may share a path that claim requests."""
    components: list[Source | Sink | Analyzer] = [*state.sources, *state.sinks, *state.analyzers]
    declared = [
        _Declaration(route, path, component)
        for component in components
        for route in component.routes()
        for path in route.paths
        if route.at_root or not root
    ]
    return [_declared(owner, claiming, state, asked) for owner, claiming in _share_paths(declared)]


class _Declaration(NamedTuple):
    """One path of a plugin's route."""

    route: PluginRoute
    path: str
    component: Source | Sink | Analyzer

    def shares_with(self, other: _Declaration) -> bool:
        """Whether both answer the same requests, but for those that one of them claims."""
        mine, others = self.route, other.route
        return self.path == other.path and set(mine.methods) == set(others.methods) and mine.role == others.role


def _share_paths(declared: Sequence[_Declaration]) -> list[tuple[_Declaration, list[_Declaration]]]:
    """The owner of each path, and the routes that claim some of its requests; without an owner the first of these."""
    shared: list[tuple[_Declaration, list[_Declaration]]] = []
    for one in sorted(declared, key=lambda one: one.route.claims is not None):
        claiming = next((claiming for owner, claiming in shared if one.route.claims and owner.shares_with(one)), None)
        if claiming is None:
            shared.append((one, []))
        else:
            claiming.append(one)
    return shared


def count_from_zero(routes: Sequence[BaseRoute], metrics: SelfMetrics) -> None:
    """Make the counters of each route that a plugin declares: a scraper sees the first refusal as an increase."""
    for route in routes:
        if isinstance(route, DeclaredRoute):
            for status in ("200", "503"):
                metrics.http_requests.labels(route.path, status)


def _declared(
    owner: _Declaration, claiming: Sequence[_Declaration], state: ApiState, asked: Sequence[Route]
) -> DeclaredRoute:
    route, path, component = owner
    others = [Answering(one.route, one.component.context.name) for one in claiming]
    endpoint = ingest_endpoint(route, state, component.context.name, others)
    question = next((one for one in asked if one.path == path and set(route.methods) <= (one.methods or set())), None)
    if route.claims is not None and question is not None:
        endpoint = endpoint_beside(route, state, endpoint, question.endpoint)
    # For the OpenAPI document: what its author says about the handler, else about the plugin.
    endpoint.__doc__ = inspect.getdoc(route.handler) or summary_of(type(component))
    found = DeclaredRoute(path, endpoint, methods=list(route.methods), name=f"{component.name}:{path}")
    bodies = {media: kind for one in (*others, Answering(route, "")) for media, kind in one.route.bodies.items()}
    found.declared = msgspec.structs.replace(route, bodies=bodies) if others else route
    found.instance = component.context.name
    found.component = f"{component.context.name} ({component.name})"
    return found


class CompressAnswers:
    """Middleware that compresses answers for those who accept gzip.

    Streams of events stay as they are, because each event has to arrive at once, and so do ranges of files. Newer
    versions of Starlette see that by themselves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(app, minimum_size=COMPRESS_FROM_BYTES, compresslevel=COMPRESSION_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with or without compression."""
        is_plain = scope["type"] != "http" or scope["path"].endswith(_EVENT_STREAMS) or "range" in Headers(scope=scope)
        await (self._app if is_plain else self._compressed)(scope, receive, send)


class CountRequests:
    """Middleware that counts answers by route and status; the route's pattern is the label, never the path."""

    def __init__(self, app: ASGIApp, state: ApiState) -> None:
        self._app = app
        self._requests = state.metrics.http_requests
        self._counters: dict[tuple[str, int], Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and note the status of its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = scope.get("route")
                self._count(getattr(route, "path", "none"), message["status"])
            await send(message)

        await self._app(scope, receive, noting)

    def _count(self, path: str, status: int) -> None:
        counter = self._counters.get((path, status))
        if counter is None:
            counter = self._counters[path, status] = self._requests.labels(path, str(status))
        counter.inc()
