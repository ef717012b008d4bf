"""The list as a triage: counters, filters and sorting over all workloads, in pages."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lens_core import Event, Evidence
from lens_core.model.records import Origin
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row


async def fill(asked: QueryApp) -> None:
    """Seven workloads, each with another state."""
    now = time.time()

    async def send(uid: str, *values: float, ago: float = 0.0, event: str = "", namespace: str = "a") -> None:
        origin = Origin(workload_uid=uid, namespace=namespace)
        rows = [
            row(step, origin=origin, values={"loss": value}, event_time=now - ago - 10 + step)
            for step, value in enumerate(values)
        ]
        await asked.spool.deliver(*rows)
        if event:
            happened = Event(origin=origin, type=event, data_source="log", event_time=now - ago + 1)
            await asked.spool.deliver(happened)

    await send("crashed", 3.0, ago=500, event="training_failed")
    await send("hangs", 2.0, ago=500, event="stalled")
    await send("quiet", 1.0, ago=5000, namespace="b")
    await send("done", 0.5, ago=500, event="training_ended")
    await send("slows", 5.0, 4.0, event="slower")
    await send("diverged", 7.0, float("nan"))
    await send("fine", 9.0, 6.0, 0.25, namespace="b")


async def names(asked: QueryApp, **parameters: Any) -> list[str]:
    answer = await asked.json("/overview", **parameters)
    return [line["workload_uid"] for line in answer["workloads"]]


async def test_counters_and_filters_agree(asked: QueryApp) -> None:
    await fill(asked)
    found = await asked.json("/triage")
    expected = {"failed": 1, "stalled": 1, "running": 3, "ended": 1, "silent": 1, "slow": 1, "not_finite": 1}
    assert found["counts"] == expected
    assert found["namespaces"] == [{"name": "a", "count": 5}, {"name": "b", "count": 2}]
    for kind, count in expected.items():
        answer = await asked.json("/overview", state=kind)
        assert (len(answer["workloads"]), answer["total_count"]) == (count, count)
    assert set(await names(asked, state="failed,hung,not_finite")) == {"crashed", "hangs", "diverged"}
    assert set(await names(asked, namespace="b")) == {"quiet", "fine"}
    assert (await asked.json("/triage", search="fin"))["looked_at"] == 1


async def test_sorted_pages_follow_each_other(asked: QueryApp) -> None:
    await fill(asked)
    by_loss = await names(asked, sort="loss")
    assert by_loss == ["fine", "done", "quiet", "hangs", "crashed", "slows", "diverged"]  # NaN is behind all numbers
    assert await names(asked, sort="loss", order="desc") == [*by_loss[:-1][::-1], "diverged"]
    for sort in ("name", "namespace", "state", "seen", "started", "iteration", "progress", "throughput", "rows"):
        whole = await names(asked, sort=sort)
        assert len(set(whole)) == 7
        paged: list[str] = []
        cursor = ""
        while len(paged) < 8:
            answer = await asked.json("/overview", sort=sort, limit=3, cursor=cursor)
            paged += [line["workload_uid"] for line in answer["workloads"]]
            cursor = answer["next_cursor"] or ""
            if not cursor:
                break
        assert paged == whole


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"state": "broken"}, "state must be among failed"),
        ({"sort": "colour"}, "sort must be one of name"),
        ({"sort": "name", "cursor": "1:2:x"}, "cursor is none"),
        ({"order": "up"}, "order must be"),
    ],
)
async def test_what_nobody_knows_is_refused(asked: QueryApp, parameters: dict[str, str], words: str) -> None:
    response = await asked.get("/overview", **parameters)
    assert response.status_code == 400
    assert words in response.json()["message"]


async def test_groups_come_in_the_order_of_their_first_line_and_in_pages(asked: QueryApp) -> None:
    await fill(asked)
    configs = {
        "crashed": {"lr": 0.1, "opt": {"name": "a"}},
        "fine": {"lr": 0.1, "opt": {"name": "b"}},
        "done": {"lr": 1},
    }
    for uid, config in configs.items():
        facts = {"wandb": {"project": "p" if uid != "done" else "q", "config": config}}
        await asked.spool.deliver(Evidence(origin=Origin(workload_uid=uid), source="wandb", facts=facts))
    whole = await asked.json("/overview", group="config.lr", sort="name")
    assert [(one["value"], one["count"]) for one in whole["groups"]] == [(0.1, 2), (1, 1), (None, 4)]
    assert whole["groups"][0]["counts"] == {"failed": 1, "running": 1}
    placed = [(line["group"], line["workload_uid"]) for line in whole["workloads"]]
    assert placed[:3] == [(0.1, "crashed"), (0.1, "fine"), (1, "done")]
    paged: list[tuple[Any, str]] = []
    cursor = ""
    while len(paged) < 8:
        page = await asked.json("/overview", group="config.lr", sort="name", limit=2, cursor=cursor)
        assert page["groups"] == whole["groups"]
        paged += [(line["group"], line["workload_uid"]) for line in page["workloads"]]
        if not (cursor := page["next_cursor"] or ""):
            break
    assert paged == placed
    by_project = await asked.json("/overview", group="project", state="failed")
    assert [(one["value"], one["count"]) for one in by_project["groups"]] == [("p", 1)]
    by_namespace = await asked.json("/overview", group="namespace")
    assert {one["value"]: one["count"] for one in by_namespace["groups"]} == {"a": 5, "b": 2}
    assert (await asked.json("/triage", groups="true"))["groups"] == ["project", "config.lr"]
    assert "groups" not in await asked.json("/triage")
    for wrong in ("loss", "config.", "config"):
        assert (await asked.get("/overview", group=wrong)).status_code == 400
