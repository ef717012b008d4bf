"""The short form of tests/hostile.py: nothing that strangers send holds the daemon up or breaks it."""

from __future__ import annotations

from lens_core.testing import LensFactory
from tests.hostile import play


async def test_the_daemon_answers_while_strangers_try(lens: LensFactory) -> None:
    running = await lens()
    watch = await play(running.url, size=100_000, readers=10)
    assert not watch.failed
    assert watch.longest < 20.0, watch.during  # a second or two on a busy machine; the defects took minutes
    assert (await running.get("/status"))["state"] == "running"
