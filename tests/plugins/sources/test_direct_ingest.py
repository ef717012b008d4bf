"""Requests to sources go past the middleware for readers, and are answered as if they had not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from lens_plugins.sources.records_api import RecordsApi
from lens_plugins.sources.remote_write.source import RemoteWrite
from starlette.exceptions import HTTPException

from lens_core import IngestRequest, Reply, Route, Source
from lens_core.http.direct_ingest import ingest_routes
from lens_core.http.openapi import DeclaredRoute
from tests.plugins.sources.ingest_app import IngestApp
from tests.plugins.sources.remote_write.wire import packed

SNAPPY = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}


class Odd(Source):
    """A source of somebody else's, whose handlers are not all as they should be."""

    name = "odd"

    def routes(self) -> list[Route]:
        return [
            Route(paths=["/teapot"], handler=self.teapot),
            Route(paths=["/broken"], handler=self.broken),
            Route(paths=["/by/{name}"], handler=self.by_name),
        ]

    async def teapot(self, request: IngestRequest) -> Reply:
        raise HTTPException(418, "short and stout")

    async def broken(self, request: IngestRequest) -> Reply:
        raise RuntimeError("a defect")

    async def by_name(self, request: IngestRequest) -> Reply:
        return Reply(body={"path": request.path})


@pytest.fixture
def ask(ingest_app: Callable[..., IngestApp]) -> Callable[..., Any]:
    """Send a request directly and, with a parameter that nobody reads, by way of everything."""

    async def both(kind: type[Source], path: str, *, address: str = "127.0.0.1", **more: Any) -> httpx.Response:
        app = ingest_app(kind)
        async with app.client(address) as client:
            direct, other = [
                await client.request(url=path + query, **{"method": "POST", **more}) for query in ("", "?x=1")
            ]
        assert (direct.status_code, direct.content) == (other.status_code, other.content)
        assert {**direct.headers} == {**other.headers}
        counted = [
            line for line in app.metrics.exposition().decode().splitlines() if "lens_http_requests_total{" in line
        ]
        assert direct.status_code == 500 or any(
            f'status="{direct.status_code}"' in line and line.endswith(" 2.0") for line in counted
        )
        return direct

    return both


@pytest.mark.parametrize("path", ["/prometheus", "/prometheus/api/v1/write", "/api/v1/write", "/v1/write"])
async def test_every_path_of_a_source_is_answered_the_same(ask: Callable[..., Any], path: str) -> None:
    answer = await ask(RemoteWrite, path, content=packed(b""), headers=SNAPPY)
    assert answer.status_code == 204


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (400, {"content": b"\xff", "headers": SNAPPY}),
        (415, {"content": b"", "headers": {"content-type": "text/plain"}}),
        (401, {"content": b"", "address": "10.0.0.1"}),
        (401, {"content": b"", "headers": {"authorization": "Bearer wrong"}}),
        (403, {"content": b"", "headers": {"sec-fetch-site": "cross-site"}}),
    ],
)
async def test_refusals_are_the_same(ask: Callable[..., Any], status: int, more: Any) -> None:
    answer = await ask(RemoteWrite, "/api/v1/write", **more)
    assert answer.status_code == status


@pytest.mark.parametrize(("path", "status"), [("/api/v1/teapot", 418), ("/api/v1/broken", 500), ("/api/v1/by/me", 200)])
async def test_what_a_handler_does_wrong_is_answered_the_same(ask: Callable[..., Any], path: str, status: int) -> None:
    answer = await ask(Odd, path, content=b"")
    assert answer.status_code == status


async def test_other_methods_and_other_paths_are_not_touched(ask: Callable[..., Any]) -> None:
    assert (await ask(RecordsApi, "/api/v1/records", method="GET")).status_code == 405
    assert (await ask(RecordsApi, "/api/v1/nothing")).status_code == 404


def test_a_route_that_is_hidden_behind_another_is_not_found(ingest_app: Callable[..., IngestApp]) -> None:
    declared = [route for route in ingest_app(Odd).app.routes[-1].routes if isinstance(route, DeclaredRoute)]  # type: ignore[attr-defined]
    first = next(route for route in declared if route.path == "/teapot")
    second = DeclaredRoute("/teapot", first.endpoint, methods=["POST"])
    second.declared = first.declared
    assert ingest_routes({"/v1": [first, second]}) == {"/v1/teapot": first}
