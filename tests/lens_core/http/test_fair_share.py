"""One reader's many questions leave the others their share."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from starlette.types import Receive, Scope, Send

from lens_core.http import fair_share
from lens_core.http.fair_share import QUESTIONS_AT_ONE_TIME, FairShare
from lens_core.testing import until


class Asked:
    """An application whose answers come when they are let go; counts the questions that it has at one time."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = dict(scope["headers"]).get(b"authorization", b"").decode()
        self.now[reader] = self.now.get(reader, 0) + 1
        await self.go.wait()
        self.now[reader] -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lens")


async def test_a_reader_that_asks_much_waits_for_its_own_answers_only() -> None:
    asked = Asked()
    path = "/api/v1/workloads/w/metrics/data"
    async with client(FairShare(asked)) as http:
        greedy = [asyncio.create_task(http.get(path, headers={"authorization": "Bearer a"})) for _ in range(20)]
        await until(lambda: asked.now.get("Bearer a") == QUESTIONS_AT_ONE_TIME, "the greedy reader's questions")
        modest = asyncio.create_task(http.get(path, headers={"authorization": "Bearer b"}))
        await until(lambda: asked.now.get("Bearer b") == 1, "the other reader's question")
        assert asked.now["Bearer a"] == QUESTIONS_AT_ONE_TIME
        asked.go.set()
        answers = await asyncio.gather(*greedy, modest)
    assert {answer.status_code for answer in answers} == {200}


async def test_questions_past_the_bound_are_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(fair_share, "QUESTIONS_THAT_WAIT", 2)
    asked = Asked()
    async with client(FairShare(asked)) as http:
        waiting = [asyncio.create_task(http.get("/v1/workloads")) for _ in range(QUESTIONS_AT_ONE_TIME + 2)]
        await until(lambda: sum(asked.now.values()) == QUESTIONS_AT_ONE_TIME, "the questions")
        refused = await http.get("/v1/workloads")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        asked.go.set()
        await asyncio.gather(*waiting)


async def test_what_asks_no_store_and_streams_do_not_wait() -> None:
    asked = Asked()
    async with client(FairShare(asked)) as http:
        tasks = [
            asyncio.create_task(http.get(path))
            for path in ("/livez", "/api/v1/workloads/w/stream", "/api/v1/wandb/metrics")
            for _ in range(QUESTIONS_AT_ONE_TIME + 1)
        ]
        await until(lambda: sum(asked.now.values()) == len(tasks), "all of them")
        asked.go.set()
        await asyncio.gather(*tasks)
