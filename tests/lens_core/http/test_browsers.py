"""For browsers and slow connections: compressed answers, and pages of other origins where the settings list them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from lens_core.config.settings import ServerSettings
from lens_core.http.app import CompressAnswers
from tests.lens_core.http.query_app import QueryApp, running_app
from tests.plugins.sinks.postgresql.support import row

DATA = "/api/v1/workloads/workload-1/metrics/data"
ORIGIN = "https://grafana.example"


@pytest.mark.parametrize("wanted", ["json", "csv", "arrow"])
async def test_answers_are_compressed_for_those_who_accept_it(asked: QueryApp, wanted: str) -> None:
    await asked.spool.deliver(*[row(step) for step in range(500)])
    parameters = {"format": wanted}
    plain = await asked.client.get(DATA, params=parameters, headers={"Accept-Encoding": "identity"})
    packed = await asked.client.get(DATA, params=parameters, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert packed.num_bytes_downloaded < len(plain.content) / 2
    again = {"If-None-Match": packed.headers["etag"], "Accept-Encoding": "gzip"}
    assert (await asked.client.get(DATA, params=parameters, headers=again)).status_code == 304


async def test_streams_of_events_are_not_compressed(asked: QueryApp) -> None:
    await asked.spool.deliver(row(1))
    path = "/api/v1/workloads/workload-1/stream"
    async with asked.client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as response:
        assert response.status_code == 200
        assert "content-encoding" not in response.headers


async def test_a_range_of_a_file_is_not_compressed(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    (tmp_path / "file").write_bytes(content)

    async def answer_file(scope: Scope, receive: Receive, send: Send) -> None:
        await FileResponse(tmp_path / "file")(scope, receive, send)

    app = CompressAnswers(answer_file)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lens") as client:
        whole = await client.get("/file", headers={"Accept-Encoding": "gzip"})
        part = await client.get("/file", headers={"Accept-Encoding": "gzip", "Range": "bytes=100-5099"})
    assert (whole.content, whole.headers["content-encoding"]) == (content, "gzip")
    assert (part.status_code, part.content) == (206, content[100:5100])
    assert "content-encoding" not in part.headers


async def test_only_listed_origins_may_ask(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_app(tmp_path, postgres_dsn, cors_origins=[ORIGIN]) as asked:
        for origin, expected in ((ORIGIN, ORIGIN), ("https://stranger.example", None)):
            answer = await asked.client.get("/api/v1/workloads", headers={"Origin": origin})
            assert answer.headers.get("access-control-allow-origin") == expected
            assert "access-control-allow-credentials" not in answer.headers
            wanted = {"Origin": origin, "Access-Control-Request-Method": "GET"}
            wanted["Access-Control-Request-Headers"] = "authorization"
            preflight = await asked.client.options("/api/v1/workloads", headers=wanted)
            assert (preflight.status_code == 200) is (expected is not None)


async def test_without_the_setting_no_origin_may(asked: QueryApp) -> None:
    answer = await asked.client.get("/api/v1/workloads", headers={"Origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origin", ["*", "grafana.example", "https://a.example/", "https://u:p@a.example", "null", ""])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="cors_origins"):
        ServerSettings(cors_origins=[origin])


@pytest.mark.parametrize("origin", [ORIGIN, "http://localhost:3000", "http://[::1]:3000", "http://10.0.0.1"])
def test_origins_are_taken(origin: str) -> None:
    assert ServerSettings(cors_origins=[origin]).cors_origins == [origin]


async def test_the_listed_pages_may_show_it_in_a_frame(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_app(tmp_path, postgres_dsn, frame_ancestors=[ORIGIN, "http://other:3000"]) as asked:
        page = await asked.client.get("/")
    assert page.headers["content-security-policy"].endswith(f"; frame-ancestors {ORIGIN} http://other:3000")
    assert "x-frame-options" not in page.headers
    with pytest.raises(ValueError, match="frame_ancestors: '\\*' is no origin"):
        ServerSettings(frame_ancestors=["*"])
