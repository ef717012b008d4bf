"""Characters that do not belong into an address are refused with a message, by every route that reads."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from lens_core.testing import LensFactory, RunningLens

ROUTES = (
    "/workloads",
    "/workloads/w",
    "/workloads/w/detection",
    "/workloads/w/events",
    "/workloads/w/diagnosis",
    "/workloads/w/metrics/sources",
    "/workloads/w/metrics/available",
    "/workloads/w/metrics/data",
    "/workloads/w/metrics/iteration-times",
    "/workloads/w/metrics/rows",
    "/status",
    "/directory",
    "/overview",
)
BODIES = (b"[" * 200_000, b'{"a":' * 100_000, b'{"target":"\xff"}', b'{"target":"a\\u0000b"}', b"nonsense", b"[1]")


@pytest.fixture
async def client(lens: LensFactory) -> AsyncIterator[httpx.AsyncClient]:
    running: RunningLens = await lens()
    async with httpx.AsyncClient(base_url=f"{running.url}/api/v1", timeout=60) as found:
        yield found


async def test_nul_and_bad_utf8_are_named(client: httpx.AsyncClient) -> None:
    for route in ROUTES:
        for text in ("%00", "a%00b", "%ff", "%c3%28", "%ed%a0%80"):
            answer = await client.get(f"{route}?cluster={text}")
            assert answer.status_code == 400, (route, text, answer.text)
            assert answer.json()["message"].startswith("cluster ")
            assert (await client.get(f"{route}?{text}=1")).status_code == 400
    for text in ("%00", "%ff", "a%00"):
        answer = await client.get(f"/workloads/{text}/metrics/data")
        assert answer.status_code == 400
        assert "workload_uid in the path" in answer.json()["message"]


async def test_an_unknown_parameter_is_refused_with_the_known_ones(client: httpx.AsyncClient) -> None:
    answer = await client.get("/workloads/w/metrics/data?metric=loss")
    assert answer.status_code == 400
    assert "did you mean metrics?" in answer.json()["message"]
    assert "data_source" in answer.json()["message"]
    for route in ROUTES:
        assert (await client.get(f"{route}?nonsense=1")).status_code == 400, route


async def test_seconds_where_milliseconds_belong_are_refused_with_a_hint(client: httpx.AsyncClient) -> None:
    for name in ("start", "end"):
        answer = await client.get(f"/workloads/w/metrics/data?{name}=1700000000")
        assert answer.status_code == 400
        assert "1700000000000" in answer.json()["message"]


async def test_a_wrong_route_says_that_it_is_one(client: httpx.AsyncClient) -> None:
    answer = await client.get("/workload")
    assert answer.status_code == 404
    assert "/api/v1/workloads" in answer.json()["message"]


@pytest.mark.parametrize("path", ["/query", "/search", "/annotations", "/variable", "/exports", "/metrics"])
async def test_bodies_of_questions_that_cannot_be_read_are_refused(client: httpx.AsyncClient, path: str) -> None:
    for body in BODIES:
        answer = await client.post(path, content=body)
        assert answer.status_code == 400, (body[:20], answer.text)
    # No question is that large; at the path that OpenTelemetry posts to, it lacks its content type.
    refusal = 415 if path == "/metrics" else 413
    assert (await client.post(path, content=b" " * 2_000_000)).status_code == refusal
