"""Server-sent events: new points come within a second, the past once more where it changed, and nothing twice."""

from __future__ import annotations

import asyncio

import msgspec

from lens_core import Event
from tests.durations import Stopwatch
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import ORIGIN, row


async def test_new_points_come_by_themselves(asked: QueryApp) -> None:
    await asked.spool.deliver(row(0))
    waited = []
    async with asked.stream(metrics="loss") as events:
        assert (await anext(events))[0] == "ready"
        for step in range(1, 6):
            await asked.spool.deliver(row(step, values={"loss": 0.5, "other": 1.0}))
            watch = Stopwatch()
            name, data = await asyncio.wait_for(anext(events), 240)
            waited.append(watch.seconds())
            assert name == "points"
            assert [(p["metric_name"], p["iteration"], p["value"]) for p in data["points"]] == [("loss", step, 0.5)]
    assert sorted(waited)[2] < 8.0


async def test_a_new_attempt_is_sent_from_its_beginning(asked: QueryApp) -> None:
    await asked.spool.deliver(row(5, session="one"))
    async with asked.stream() as events:
        await anext(events)
        await asked.spool.deliver(*(row(step, session="two") for step in range(1200)))
        seen: list[int] = []
        while len(seen) < 1200:
            _, data = await asyncio.wait_for(anext(events), 240)
            seen += [p["iteration"] for p in data["points"] if p["attempt"] == 2]
        assert seen == list(range(1200))


async def test_rows_of_the_past_come_again_and_are_told(asked: QueryApp) -> None:
    await asked.spool.deliver(row(0), row(1))
    async with asked.stream() as events:
        await anext(events)
        await asked.spool.deliver(row(0, sequence=99, values={"loss": 42.0}))
        _, data = await asyncio.wait_for(anext(events), 240)
        assert 42.0 in [p["value"] for p in data["points"]]
        assert (await asyncio.wait_for(anext(events), 240))[0] == "changed"


async def test_rows_that_are_left_out_are_counted(asked: QueryApp) -> None:
    async with asked.stream() as events:
        await anext(events)
        ranks = (msgspec.structs.replace(ORIGIN, rank=rank) for rank in range(600))
        await asked.spool.deliver(*(row(0, origin=of_rank) for of_rank in ranks))
        name, data = await asyncio.wait_for(anext(events), 240)
        assert (name, len(data["points"])) == ("points", 500)
        assert await asyncio.wait_for(anext(events), 240) == ("left_out", {"rows": 100})


async def test_events_come_too(asked: QueryApp) -> None:
    await asked.spool.deliver(row(0))
    async with asked.stream() as events:
        await anext(events)
        await asked.spool.deliver(Event(origin=ORIGIN, type="checkpoint_saved", event_time=5.0))
        name, data = await asyncio.wait_for(anext(events), 240)
        assert (name, data["type"]) == ("event", "checkpoint_saved")


async def test_a_client_goes_on_where_it_was(asked: QueryApp) -> None:
    await asked.spool.deliver(row(0))
    path = "/api/v1/workloads/workload-1/stream"
    async with asked.client.stream("GET", path) as response:
        lines = response.aiter_lines()
        while not (line := await anext(lines)).startswith("id: "):
            pass
    await asked.spool.deliver(row(1), row(2))
    async with asked.stream(cursor=line.removeprefix("id: ")) as events:
        await anext(events)
        _, data = await asyncio.wait_for(anext(events), 240)
        assert [p["iteration"] for p in data["points"]] == [1, 2]
    assert (await asked.get("/workloads/workload-1/stream", cursor="nonsense")).status_code == 400


async def test_streams_end_with_the_daemon(asked: QueryApp) -> None:
    async with asked.stream() as events:
        await anext(events)
        asked.state_of_daemon = "stopping"
        assert await asyncio.wait_for(anext(events, None), 240) is None
