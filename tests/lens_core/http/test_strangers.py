"""Texts of strangers in tables and terminals, readers that do not read, and the two names of the loss."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.cli.wording import plain
from lens_core.http.grafana_query import MOST_TARGETS
from lens_core.http.point_text import stream_csv
from lens_core.http.sse import EventStream
from lens_core.model.queries import PointColumns
from lens_core.testing import LensFactory
from lens_core.testing.waiting import until


async def _one(name: str) -> AsyncIterator[PointColumns]:
    yield PointColumns(
        metric_name=name,
        data_source="wandb",
        run_id=name,
        attempt=1,
        iterations=array("q", [1]),
        timestamps=array("q", [1]),
        values=array("d", [1.0]),
    )


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@a", "\ta", "\ra"])
async def test_no_cell_of_csv_is_a_formula(name: str) -> None:
    body = b"".join([piece async for piece in stream_csv(_one(name))])
    cells = body.decode().split("\r\n", 1)[1].replace('"', "").split(",")
    assert cells[0].startswith("'")
    assert cells[5].startswith("'")


@given(st.text())
def test_no_text_moves_the_cursor_of_a_terminal(text: str) -> None:
    assert all(letter.isprintable() for letter in plain(text, 1000))


async def test_a_reader_that_does_not_read_is_dropped_and_counted_once() -> None:
    ended: list[bool] = []
    made = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield b"x" * 1000

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()  # as a transport whose buffer is full

    stream = EventStream(pieces(), on_end=lambda: ended.append(True), slow_reader_seconds=0.05)
    await asyncio.wait_for(stream({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send), 20)
    assert ended == [True]
    assert made == 1


async def test_the_loss_is_found_under_either_name_and_questions_are_bounded(lens: LensFactory) -> None:
    running = await lens(store=True)
    line = {"workload_uid": "w", "message": "iteration 5/ 10 | lm loss: 1.5 | elapsed time per iteration (ms): 100.0 |"}
    assert (await running.post("/logs", [line])).is_success
    statuses = running.daemon.status
    await until(
        lambda: any(s.ledger.delivered for pipe in statuses().pipelines for s in pipe.sinks if s.name == "store"),
        "the row is stored",
    )
    for name in ("loss", "lm_loss"):
        found = await running.get_json("/workloads/w/metrics/data", metrics=name)
        assert [point["value"] for point in found["data"]] == [1.5], name
    many = {"targets": [{"target": "a"}] * (MOST_TARGETS + 1)}
    assert (await running.post("/query", many)).status_code == 400
    span = {"from": "2000-01-01T00:00:00Z", "to": "2030-01-01T00:00:00Z"}
    payload = {"workload_uid": "w", "aggregate": "mean", "interval": "1ms"}
    answer = await running.post("/query", {"targets": [{"target": "loss", "payload": payload}], "range": span})
    assert answer.status_code == 400
    assert "intervals" in answer.text
