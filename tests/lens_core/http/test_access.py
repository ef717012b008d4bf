from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from lens_plugins.sources.wandb_api import WandbApi

from lens_core.http.app import build_metrics_app
from tests.plugins.sources.ingest_app import IngestApp

BODY = {"pod_name": "p", "metrics": []}
ELSEWHERE = "192.0.2.7"


@pytest.fixture
def app(tmp_path: Path) -> IngestApp:
    return IngestApp(WandbApi, tmp_path)


async def status(app: IngestApp, method: str, path: str, address: str = ELSEWHERE, **headers: str) -> tuple[int, str]:
    async with app.client(address) as client:
        answer = await client.request(method, path, json=BODY if method == "POST" else None, headers=headers)
        return answer.status_code, answer.json()["code"] if answer.status_code >= 400 else ""


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
async def test_loopback_needs_no_token(app: IngestApp, address: str) -> None:
    assert await status(app, "POST", "/api/v1/wandb/metrics", address) == (200, "")
    assert await status(app, "GET", "/api/v1/status", address) == (200, "")


async def test_other_machines_need_one(app: IngestApp) -> None:
    assert await status(app, "POST", "/api/v1/wandb/metrics") == (401, "Unauthorized")
    assert await status(app, "GET", "/metrics") == (401, "Unauthorized")
    assert await status(app, "GET", "/api/v1/workloads/w/metrics/sources") == (401, "Unauthorized")
    assert await status(app, "GET", "/livez") == (200, "")


async def test_somebody_behind_a_proxy_on_loopback_is_not_loopback(app: IngestApp) -> None:
    forwarded = {"X-Forwarded-For": ELSEWHERE}
    assert await status(app, "GET", "/api/v1/status", "127.0.0.1", **forwarded) == (401, "Unauthorized")


async def test_a_token_allows_its_role_and_no_other(app: IngestApp) -> None:
    ingest = {"Authorization": f"Bearer {app.tokens.create_token('i', 'ingest')}"}
    read = {"Authorization": f"bearer {app.tokens.create_token('r', 'read')}"}
    admin = {"Authorization": f"Bearer {app.tokens.create_token('a', 'admin')}"}
    assert await status(app, "POST", "/v1/wandb/metrics", **ingest) == (200, "")
    assert await status(app, "GET", "/v1/status", **ingest) == (403, "Forbidden")
    assert await status(app, "GET", "/v1/status", **read) == (200, "")
    assert await status(app, "POST", "/v1/replay", **read) == (403, "Forbidden")
    assert await status(app, "GET", "/v1/status", **admin) == (200, "")
    app.tokens.revoke("a")
    assert await status(app, "GET", "/v1/status", **admin) == (401, "Unauthorized")


async def test_a_wrong_token_is_noticed_from_loopback_too(app: IngestApp) -> None:
    assert await status(app, "GET", "/v1/status", "127.0.0.1", Authorization="Bearer nonsense") == (401, "Unauthorized")


async def test_open_ingest_opens_ingest_only(ingest_open: IngestApp) -> None:
    assert await status(ingest_open, "POST", "/v1/wandb/metrics") == (200, "")
    assert await status(ingest_open, "GET", "/v1/status") == (401, "Unauthorized")


@pytest.mark.parametrize("is_open", [True, False])
async def test_metrics_on_both_listeners_need_a_token_unless_they_are_open(tmp_path: Path, is_open: bool) -> None:
    app = IngestApp(WandbApi, tmp_path, metrics_open=is_open)
    expected = (200, "") if is_open else (401, "Unauthorized")
    assert await status(app, "GET", "/metrics") == expected
    assert await status(app, "GET", "/metrics", "127.0.0.1") == (200, "")
    assert await status(app, "GET", "/api/v1/status") == (401, "Unauthorized")
    transport = httpx.ASGITransport(build_metrics_app(app.state), client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://lens") as client:
        answer = await client.get("/metrics")
        assert answer.status_code == expected[0]
        assert answer.headers["content-type"].startswith("text/plain" if is_open else "application/json")
        assert (await client.get("/metrics", headers={"Authorization": "Bearer x"})).status_code == 401
        assert (await client.get("/api/v1/status")).json()["code"] == "NotFound"
        assert (await client.get("/livez")).status_code == 200


@pytest.fixture
def ingest_open(tmp_path: Path) -> IngestApp:
    return IngestApp(WandbApi, tmp_path, open_ingest=True)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/nothing", (404, "NotFound")),
        ("GET", "/api/v1/nothing", (404, "NotFound")),
        ("GET", "/api/v1/wandb/metrics", (405, "MethodNotAllowed")),
        ("GET", "/api/v1/workloads//metrics/data", (400, "RequestParameterInvalid")),
        ("GET", "/api/v1/workloads/w/metrics/data", (503, "Unavailable")),
    ],
)
async def test_errors_have_one_shape(app: IngestApp, method: str, path: str, expected: tuple[int, str]) -> None:
    assert await status(app, method, path, "127.0.0.1") == expected


async def test_the_openapi_document_knows_every_route(
    app: IngestApp, routes_of: Callable[[IngestApp], set[str]]
) -> None:
    async with app.client() as client:
        document = (await client.get("/api/v1/openapi.json")).json()
    assert routes_of(app) <= set(document["paths"])


@pytest.fixture
def routes_of() -> Callable[[IngestApp], set[str]]:
    return lambda app: {f"/api/v1{path}" for source in app.state.sources for r in source.routes() for path in r.paths}
