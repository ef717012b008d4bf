"""The list for the page: attention first, then what was seen last; paging, search, pods under their workload."""

from __future__ import annotations

import time
from typing import Any

import pytest
from lens_plugins.sinks.postgresql import shown

from lens_core import BadRequest, Event, Origin, Pod, WorkloadReference
from lens_core.plugin_api.overview import AnswersOverview, Overview
from tests.plugins.sinks.postgresql.support import Spool, row


def named(uid: str) -> Origin:
    return Origin(workload_uid=uid)


async def lines(store: Any, search: str = "", limit: int = 50, cursor: str = "") -> list[Overview]:
    page = await store.overview(search=search, limit=limit, cursor=cursor)
    return list(page.workloads)


async def uids_by_pages(store: Any, limit: int, search: str = "") -> list[str]:
    found: list[str] = []
    cursor = ""
    while True:
        page = await store.overview(search=search, limit=limit, cursor=cursor)
        found += [line.summary.workload_uid for line in page.workloads]
        cursor = page.next_cursor
        if not cursor:
            return found


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
    assert found[0].row_ms is None
    await spool.deliver(*(row(step, origin=named("slow"), event_time=now - 900 + 90 * step) for step in range(10)))
    assert {line.summary.workload_uid: line.row_ms for line in await lines(store)}["slow"] == 90_000


async def test_pages_follow_each_other_without_gap_or_repeat(spool: Spool, store: Any) -> None:
    now = time.time()
    rows = [row(1, origin=named(f"w{number:02}"), event_time=now - number // 2) for number in range(25)]
    failed = [Event(origin=named(f"w{number:02}"), type="stalled", event_time=now) for number in (7, 20)]
    await spool.deliver(*rows, *failed)
    assert (await store.overview(search="", limit=4, cursor="")).total == 25
    seen = await uids_by_pages(store, 4)
    assert sorted(seen) == [f"w{number:02}" for number in range(25)]
    assert set(seen[:2]) == {"w07", "w20"}


async def test_a_job_of_many_pods_hides_none_of_those_seen_before_it(spool: Spool, store: Any) -> None:
    now = time.time()
    job = [WorkloadReference(uid="big", name="big-job")]
    pods = [Pod(uid=f"u{number}", name=f"p{number}", namespace="n", workloads=job) for number in range(60)]
    of_pods = [
        row(1, origin=Origin(pod_uid=pod.uid, pod_name=pod.name, namespace="n"), event_time=now - number)
        for number, pod in enumerate(pods)
    ]
    single = [row(1, origin=named(f"w{number:02}"), event_time=now - 100 - number) for number in range(9)]
    await spool.deliver(*pods, *of_pods, *single)
    assert await uids_by_pages(store, 2) == ["big", *(f"w{number:02}" for number in range(9))]
    [big] = (await store.overview(search="", limit=1, cursor="")).workloads
    assert (big.summary.name, big.summary.rows) == ("big-job", 60)


@pytest.mark.parametrize("text", ["", "n"])
async def test_where_there_are_very_many_nothing_is_counted_and_nothing_left_out(
    spool: Spool, store: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "COUNTED_SUBJECTS", 7)
    now = time.time()
    rows = [row(1, origin=named(f"n{number:02}"), event_time=now - number % 3) for number in range(20)]
    await spool.deliver(*rows, Event(origin=named("n11"), type="stalled", event_time=now))
    assert (await store.overview(search=text, limit=3, cursor="")).total is None
    pages = await uids_by_pages(store, 3, text)
    assert (pages[0], sorted(pages)) == ("n11", [f"n{number:02}" for number in range(20)])
    assert [line.summary.workload_uid for line in await lines(store, search="N05")] == ["n05"]


async def test_a_workload_is_found_by_its_names_and_by_its_pods(spool: Spool, store: Any) -> None:
    pod = Pod(uid="u", name="pod-0", namespace="team", workloads=[WorkloadReference(uid="job", name="my-job")])
    await spool.deliver(pod, row(3, origin=Origin(pod_uid="u", pod_name="pod-0", namespace="team")))
    assert [len(await lines(store, search=text)) for text in ("MY-JOB", "job", "team", "pod-0", "x")] == [1, 1, 1, 1, 0]


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
