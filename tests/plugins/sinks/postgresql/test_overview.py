"""The list for the page: attention first, then what was seen last; paging, search, pods under their workload."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lens_core import BadRequest, Event, Origin, Pod, WorkloadReference
from lens_core.overview import AnswersOverview, Overview
from tests.plugins.sinks.postgresql.support import Spool, row


def named(uid: str) -> Origin:
    return Origin(workload_uid=uid)


async def lines(store: Any, search: str = "", limit: int = 50, cursor: str = "") -> list[Overview]:
    page = await store.overview(search=search, limit=limit, cursor=cursor)
    return list(page.workloads)


async def test_what_failed_or_stalled_comes_first(spool: Spool, store: Any) -> None:
    assert isinstance(store, AnswersOverview)
    now = time.time()
    await spool.deliver(
        row(1, origin=named("quiet"), event_time=now - 50),
        row(1, origin=named("broken"), event_time=now - 900),
        row(1, origin=named("back"), event_time=now - 100),
        row(1, origin=named("old"), event_time=now - 90 * 86_400),
        Event(origin=named("broken"), type="out_of_memory", event_time=now - 899, iteration=1),
        Event(origin=named("broken"), type="checkpoint_saved", event_time=now - 10),
        Event(origin=named("back"), type="training_failed", event_time=now - 500),
        Event(origin=named("old"), type="stalled", event_time=now - 90 * 86_400),
    )
    found = await lines(store)
    assert found[0].summary.workload_uid == "broken"
    assert (found[0].event, found[0].event_iteration) == ("out_of_memory", 1)
    assert found[0].last_row == int((now - 900) * 1000) or abs((found[0].last_row or 0) - (now - 900) * 1000) < 2
    assert {line.summary.workload_uid for line in found[1:]} == {"quiet", "back", "old"}


async def test_pages_follow_each_other_without_gap_or_repeat(spool: Spool, store: Any) -> None:
    now = time.time()
    rows = [row(1, origin=named(f"w{number:02}"), event_time=now - number // 2) for number in range(25)]
    failed = [Event(origin=named(f"w{number:02}"), type="stalled", event_time=now) for number in (7, 20)]
    await spool.deliver(*rows, *failed)
    seen: list[str] = []
    cursor = ""
    while True:
        page = await store.overview(search="", limit=4, cursor=cursor)
        assert page.total == 25
        seen += [line.summary.workload_uid for line in page.workloads]
        cursor = page.next_cursor
        if not cursor:
            break
    assert sorted(seen) == [f"w{number:02}" for number in range(25)]
    assert set(seen[:2]) == {"w07", "w20"}


async def test_search_and_targets(spool: Spool, store: Any) -> None:
    values = {"loss": 1.0, "target_iteration": 500.0}
    await spool.deliver(row(9, origin=named("a%b"), data_source="log", values=values), row(1, origin=named("acb")))
    [found] = await lines(store, search="A%B")
    assert found.summary.workload_uid == "a%b"
    assert found.summary.last_iteration == 9
    assert await lines(store, search="nothing") == []


async def test_a_pod_is_shown_under_its_workload(spool: Spool, store: Any) -> None:
    pod = Pod(uid="u", name="p", namespace="n", workloads=[WorkloadReference(uid="job", name="my-job")])
    await spool.deliver(pod, row(3, origin=Origin(pod_uid="u", pod_name="p", namespace="n")))
    await spool.deliver(Event(origin=named("job"), type="stalled", event_time=time.time()))
    [found] = await lines(store)
    assert (found.summary.workload_uid, found.summary.name, found.event) == ("job", "my-job", "stalled")


async def test_a_cursor_of_somebody_elses_is_refused(store: Any) -> None:
    assert await lines(store) == []
    for cursor in ("nonsense", "1:x:y", "::"):
        with pytest.raises(BadRequest):
            await store.overview(search="", limit=4, cursor=cursor)
