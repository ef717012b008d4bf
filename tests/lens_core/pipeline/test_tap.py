from __future__ import annotations

import asyncio
import json
import math

import pytest
from starlette.requests import Request

from lens_core import BadRequest
from lens_core.http.page.live import _changes, _records, shown, wanted_records
from lens_core.model.records import Event, LogLine, Origin, Record, SeriesBatch, StepMetrics
from lens_core.pipeline.tap import MAX_LISTENERS, ChangeListener, RecordListener, RecordSelection, Tap, subject_name


def row(workload: str = "w", value: float = 1.0) -> StepMetrics:
    return StepMetrics(origin=Origin(workload_uid=workload), data_source="wandb", row_step=1, values={"loss": value})


async def test_a_slow_listener_loses_the_oldest_and_holds_nobody_up() -> None:
    tap = Tap()
    with tap.listening(RecordListener(RecordSelection(), 2)) as listener:
        tap.publish("p", [row(value=float(number)) for number in range(5)])
        await listener.wait(1)
        taken = listener.drain_records()
    assert [record.values["loss"] for _, record in taken if isinstance(record, StepMetrics)] == [3.0, 4.0]
    assert listener.dropped == 3
    tap.publish("p", [row()])
    assert listener.drain_records() == []


async def test_changes_name_each_origin_once() -> None:
    tap = Tap()
    pod = Event(origin=Origin(namespace="n", pod_name="p"), type="stalled")
    with tap.listening(ChangeListener(10)) as listener:
        tap.publish("p", [row("a"), row("b"), row("a"), pod, LogLine(text="x")])
        assert listener.drain_subjects() == ["a", "b", "n/p"]
        assert listener.drain_subjects() == []


def test_names_of_origins() -> None:
    assert subject_name(Origin(pod_uid="u", pod_name="p")) == "u"
    assert subject_name(Origin(pod_name="p")) == "p"


async def test_closing_ends_every_stream() -> None:
    tap = Tap()
    streams = [_changes(tap), _records(tap, RecordSelection())]
    for stream in streams:
        assert b"event: hello" in await anext(stream)
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await asyncio.sleep(0)
    tap.close_listeners()
    for task in waiting:
        await asyncio.wait_for(task, 240)
    for stream in streams:
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    with tap.listening(ChangeListener(1)) as late:
        assert late.closed


async def test_a_stream_tells_what_it_dropped() -> None:
    tap = Tap()
    stream = _records(tap, RecordSelection())
    await anext(stream)
    tap.publish("p", [row()] * 2500)
    assert b'"records":500' in await anext(stream)
    assert (await anext(stream)).count(b"event: record") == 2000
    await stream.aclose()  # type: ignore[attr-defined]


def test_listeners_are_bounded() -> None:
    tap = Tap()
    opened = [tap.listening(ChangeListener(1)) for _ in range(MAX_LISTENERS)]
    for one in opened:
        one.__enter__()
    with pytest.raises(Exception, match="live views"):
        tap.ensure_room()


def request(query: str) -> Request:
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


@pytest.mark.parametrize(
    ("query", "record", "expected"),
    [
        ("", row(), True),
        ("kind=event", row(), False),
        ("kind=event,step_metrics", row(), True),
        ("pipeline=other", row(), False),
        ("pipeline=de*", row(), True),
        ("workload=w", row(), True),
        ("workload=x*", row(), False),
        ("workload=pod-*", LogLine(origin=Origin(namespace="n", pod_name="pod-1"), text=""), True),
    ],
)
def test_filters(query: str, record: Record, expected: bool) -> None:
    assert wanted_records(request(query)).is_wanted("default", record) is expected


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BadRequest):
        wanted_records(request("kind=nonsense"))


def test_records_are_shown_as_json_can_hold_them() -> None:
    found = shown("p", row(value=math.nan))
    assert found["values"] == {"loss": "NaN"}
    assert found["pipeline"] == "p"
    assert len(shown("p", LogLine(text="x" * 10_000))["text"]) < 2100
    assert shown("p", SeriesBatch(body=b"\x00" * 1000)).get("body", "") == ""
    json.dumps(found)


async def test_a_cancellation_that_comes_together_with_news_is_obeyed() -> None:
    """Whichever turn of the loop it hits: before Python 3.12 asyncio.wait_for swallows it in one of them."""
    for turns in range(6):
        listener = ChangeListener(10)

        async def listen(listener: ChangeListener = listener) -> None:
            while True:
                await listener.wait(60)
                listener.drain_subjects()

        task = asyncio.create_task(listen())
        for _ in range(3):
            await asyncio.sleep(0)
        listener.receive_subjects(["a"])
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert task.cancelled(), turns
