from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lens_core import IngestRequest, Reply, Route, Source
from lens_core.plugin_host.guard import Guard
from lens_core.plugin_host.host import PluginHost
from tests.plugins.sources.ingest_app import IngestApp


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_after_many_failures_in_a_row_it_is_paused_and_tried_again_later(clock: Clock) -> None:
    host = PluginHost([])
    guard = Guard(host, "source", "odd", pause_after=3, pause_seconds=10, clock=clock)
    for _ in range(2):
        guard.record_failure(ValueError("x"))
    guard.succeeded()
    for _ in range(2):
        guard.record_failure(ValueError("x"))
    assert guard.why_paused() == ""
    guard.record_failure(ValueError("the reason"))
    assert "3 times in a row; the last time: ValueError: the reason" in guard.why_paused()
    clock.now = 10.0
    assert guard.why_paused() == ""
    guard.succeeded()
    assert host.paused("odd", kind="source") == ""


def test_a_sink_is_counted_and_never_paused(clock: Clock) -> None:
    guard = Guard(PluginHost([]), "sink", "s", pauses=False, pause_after=1, clock=clock)
    guard.record_failure(ValueError("x"))
    assert guard.why_paused() == ""


class Odd(Source):
    """A source whose handler has a defect."""

    name = "odd"

    def routes(self) -> Sequence[Route]:
        return [Route(paths=["/odd"], handler=self._handle)]

    async def _handle(self, request: IngestRequest) -> Reply:
        if request.body == b"fine":
            return Reply(body={"success": True})
        raise KeyError("a defect")


async def test_a_source_with_a_defect_is_paused_and_its_neighbours_answer(tmp_path: Path, clock: Clock) -> None:
    app = IngestApp(Odd, tmp_path)
    guard = Guard(PluginHost([]), "source", "odd", pause_after=2, pause_seconds=10, clock=clock)
    app.state.guards = {"odd": guard}
    statuses = [(await app.post("/v1/odd", content=b"x")).status_code for _ in range(3)]
    assert statuses == [500, 500, 503]
    paused = await app.post("/v1/odd", content=b"fine")
    assert paused.json()["code"] == "Unavailable"
    assert "paused: failed 2 times in a row" in paused.json()["message"]
    async with app.client() as client:
        assert (await client.get("/livez")).status_code == 200
    clock.now = 10.0
    assert (await app.post("/v1/odd", content=b"fine")).status_code == 200
    assert (await app.post("/v1/odd", content=b"x")).status_code == 500
