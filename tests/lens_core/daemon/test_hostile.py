"""The short form of tests/hostile.py: nothing that strangers send holds the daemon up or breaks it."""

from __future__ import annotations

import gzip

import httpx
import pytest

from lens_core.base import process
from lens_core.testing import LensFactory
from lens_core.testing.waiting import until
from tests.hostile import play


async def test_the_daemon_answers_while_strangers_try(lens: LensFactory) -> None:
    running = await lens()
    watch = await play(running.url, size=100_000, readers=10)
    assert not watch.failed
    assert watch.longest < 20.0, watch.during  # a second or two on a busy machine; the defects took minutes
    assert (await running.get_json("/status"))["state"] == "running"


@pytest.mark.parametrize("packed", [False, True])
async def test_memory_is_returned_after_a_large_body(
    packed: bool, lens: LensFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[bool] = []
    monkeypatch.setattr(process, "release_memory", lambda: released.append(True))
    running = await lens()
    body = b" " * (20_000_000 if packed else process.UNUSUAL_BYTES)
    headers = {"Content-Encoding": "gzip"} if packed else {}
    async with httpx.AsyncClient(base_url=running.url) as client:
        answer = await client.post("/api/v1/logs", content=gzip.compress(body) if packed else body, headers=headers)
    assert answer.status_code == (413 if packed else 200), answer.text
    await until(lambda: bool(released), "memory is returned")
