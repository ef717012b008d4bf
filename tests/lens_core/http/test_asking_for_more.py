"""Percentiles and aggregates across runs, the last points, descending answers, and what stands beside each point."""

from __future__ import annotations

import csv
import io
import math
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from lens_core import Event, Origin, Pod, WorkloadReference
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row

DATA = "/workloads/workload-1/metrics/data"


async def fill(asked: QueryApp, runs: int = 3, steps: int = 1000) -> dict[tuple[str, int], float]:
    """Runs of different values; the values by run and step."""
    values = {
        (f"run-{run}", step): math.sin(step * (run + 1)) * (run + 1) for run in range(runs) for step in range(steps)
    }
    await asked.spool.deliver(*(row(step, run_id=run, values={"loss": value}) for (run, step), value in values.items()))
    return values


async def compact(asked: QueryApp) -> None:
    assert (await asked.store.vacuum())["blocks_made"] > 0


@pytest.mark.parametrize("blocks", [False, True])
async def test_percentiles_of_iterations_across_runs(asked: QueryApp, blocks: bool) -> None:
    values = await fill(asked)
    if blocks:
        await compact(asked)
    found = await asked.data(metrics="loss", aggregate="p50,p95,max,count", interval="100it", across="runs")
    assert {(p["run_id"], p["attempt"], p["data_source"]) for p in found} == {("", 0, "wandb")}
    assert [p["iteration"] for p in found] == [*range(0, 1000, 100)] * 4
    for name, points in groupby(found, lambda p: p["aggregate"]):
        for point in points:
            inside = [v for (_, step), v in values.items() if step // 100 * 100 == point["iteration"]]
            expected = {"p50": np.percentile(inside, 50), "p95": np.percentile(inside, 95), "max": max(inside)}
            assert point["value"] == pytest.approx({**expected, "count": len(inside)}[name])
            assert point["timestamp"] == 1_700_000_000_000 + 1000 * (point["iteration"] + 99)


async def test_percentiles_of_each_run_by_time(asked: QueryApp) -> None:
    values = await fill(asked)
    found = await asked.data(aggregate="median", interval="250s")
    assert "aggregate" not in found[0]
    assert [(p["run_id"], p["timestamp"] // 1000 - 1_700_000_000) for p in found] == [
        (f"run-{run}", start) for run in range(3) for start in range(0, 1000, 250)
    ]
    for point in found:
        start = point["timestamp"] // 1000 - 1_700_000_000
        inside = [values[point["run_id"], step] for step in range(start, start + 250)]
        assert point["value"] == pytest.approx(float(np.median(inside)))


async def test_percentiles_of_values_that_are_no_numbers(asked: QueryApp) -> None:
    given = [math.nan, math.inf, 1.0, math.inf, -math.inf]
    await asked.spool.deliver(
        *(row(step, values={"x": value}) for step, value in enumerate(given)), row(100, values={"x": math.nan})
    )
    found = await asked.data(aggregate="p0,p25,p50,p100", interval="50it")
    shown = {(p["iteration"], p["aggregate"]): p["value"] if p["value"] is not None else p["special"] for p in found}
    # Of four numbers, in proportion between two of them; between infinities there is nothing in proportion.
    assert [shown[0, name] for name in ("p0", "p25", "p50", "p100")] == [
        "-Infinity",
        "-Infinity",
        "Infinity",
        "Infinity",
    ]
    assert [shown[100, name] for name in ("p0", "p25", "p50", "p100")] == ["NaN"] * 4


async def test_several_workloads_together(asked: QueryApp) -> None:
    for number in range(3):
        origin = Origin(workload_uid=f"job-{number}")
        await asked.spool.deliver(*(row(step, origin=origin, values={"loss": float(number)}) for step in range(10)))
    answer = await asked.json("/metrics/data", uid=["job-0", "job-2"], aggregate="mean,max", interval="100it")
    assert answer["workload_uids"] == ["job-0", "job-2"]
    assert [(p["aggregate"], p["value"]) for p in answer["data"]] == [("mean", 1.0), ("max", 2.0)]


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"aggregate": "p101", "interval": "1m"}, "aggregate"),
        ({"aggregate": "p50,best", "interval": "1m"}, "aggregate"),
        ({"aggregate": "p50"}, "interval"),
        ({"aggregate": ",".join(f"p{n}" for n in range(11)), "interval": "1m"}, "at most 10"),
        ({"aggregate": "mean,p5", "interval": "1ms", "start": 0, "end": 600_000}, "intervals"),
        ({"across": "runs"}, "aggregate"),
        ({"across": "all", "aggregate": "mean", "interval": "1m"}, "across"),
        ({"last": 0}, "last"),
        ({"last": 5, "max_points": 5}, "last"),
        ({"order": "down"}, "order"),
        ({"fields": "rank,host"}, "fields"),
        ({"fields": "rank", "aggregate": "mean", "interval": "1m"}, "fields"),
        ({"fields": "rank", "format": "arrow"}, "format"),
        ({"aggregate": "mean,max", "interval": "1m", "format": "arrow"}, "format"),
        ({"ordr": "desc"}, "did you mean order"),
    ],
)
async def test_mistakes_name_the_parameter(asked: QueryApp, parameters: dict[str, Any], named: str) -> None:
    answer = await asked.get(DATA, **parameters)
    assert answer.status_code == 400
    assert named in answer.json()["message"]


@pytest.mark.parametrize("path", ["/replay", "/exports"])
async def test_what_changes_something_refuses_unknown_parameters(asked: QueryApp, path: str) -> None:
    answer = await asked.client.post(f"/api/v1{path}", params={"sinkk": "x"}, json={"workload_uid": "w"})
    assert (answer.status_code, "sinkk" in answer.json()["message"]) == (400, True)


async def test_too_many_values_for_a_percentile_are_refused_before_they_are_read(
    asked: QueryApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lens_plugins.sinks.postgresql import points

    await fill(asked)
    monkeypatch.setattr(points, "_MOST_PERCENTILE_POINTS", 2999)
    answer = await asked.get(DATA, aggregate="p50", interval="10it", across="runs")
    assert answer.status_code == 400
    assert "2,999" in answer.json()["message"]
    assert (await asked.get(DATA, aggregate="p50", interval="10it", run_id="run-0")).status_code == 200
    monkeypatch.setattr(points, "_MOST_INTERVALS", 50)
    answer = await asked.get(DATA, aggregate="mean", interval="10it")
    assert answer.status_code == 400
    assert "more than 50 points" in answer.json()["message"]


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("last", [1, 7, 400, 5000])
async def test_the_last_points_of_each_run(asked: QueryApp, last: int, blocks: bool) -> None:
    await fill(asked)
    rare = [row(step, run_id="run-0", values={"eval": float(step)}, sequence=2**40) for step in (3, 500)]
    await asked.spool.deliver(*rare)
    if blocks:
        await compact(asked)
    whole = await asked.data()
    expected = []
    for _, points in groupby(whole, lambda p: (p["metric_name"], p["run_id"])):
        expected += [*points][-last:]
    assert await asked.data(last=last) == expected
    descending = []
    for _, points in groupby(expected, lambda p: p["metric_name"]):
        descending += [*points][::-1]
    assert await asked.data(last=last, order="desc") == descending


@pytest.mark.parametrize(
    "parameters",
    [{}, {"max_points": 50}, {"aggregate": "mean", "interval": "90s"}, {"aggregate": "min,p10", "interval": "70it"}],
)
@pytest.mark.parametrize("limit", [None, 37])
async def test_descending_answers(asked: QueryApp, parameters: dict[str, Any], limit: int | None) -> None:
    ranks = [
        row(
            step, origin=Origin(workload_uid="workload-1", rank=rank), run_id="ranks", values={"loss": step + rank / 10}
        )
        for rank in range(3)
        for step in range(0, 300, 2)
    ]
    await fill(asked, steps=200)
    await asked.spool.deliver(
        *ranks, row(4, values={"eval": 1.0}, sequence=2**40), row(8, values={"eval": 2.0}, sequence=2**40)
    )
    whole = await asked.data(**parameters)
    expected = []
    for _, points in groupby(whole, lambda p: p["metric_name"]):
        expected += [*points][::-1]
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        pages = {} if limit is None else {"limit": limit, "cursor": cursor}
        answer = await asked.json(DATA, order="desc", **parameters, **pages)
        found += answer["data"]
        assert answer["total_count"] == len(whole)
        cursor = answer.get("next_cursor", "")
        if not cursor:
            break
    assert found == expected


async def test_a_long_attempt_descends_in_ranges(asked: QueryApp, monkeypatch: pytest.MonkeyPatch) -> None:
    from lens_plugins.sinks.postgresql import points

    monkeypatch.setattr(points, "_BATCH_POINTS", 300)
    monkeypatch.setattr(points, "_MARK_POINTS", 100)
    await fill(asked, runs=1, steps=2000)
    await compact(asked)
    whole = await asked.data()
    assert await asked.data(order="desc") == whole[::-1]
    first = await asked.json(DATA, order="desc", limit=700)
    rest = await asked.json(DATA, order="desc", limit=2000, cursor=first["next_cursor"])
    assert [*first["data"], *rest["data"]] == whole[::-1]


async def test_events_in_the_order_of_time(asked: QueryApp) -> None:
    origin = Origin(workload_uid="workload-1")
    await asked.spool.deliver(*(Event(origin=origin, type="x", event_time=1000.0 + n, details={}) for n in range(5)))
    newest = await asked.json("/workloads/workload-1/events", limit=3)
    oldest_first = await asked.json("/workloads/workload-1/events", limit=3, order="asc")
    assert [e["timestamp"] for e in newest["events"]] == [1_004_000, 1_003_000, 1_002_000]
    assert oldest_first["events"] == newest["events"][::-1]


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
async def test_rank_pod_and_tags_beside_each_point(asked: QueryApp, blocks: bool, attached: bool) -> None:
    rows = []
    of = [WorkloadReference(uid="workload-1", name="job", kind="Job")]
    for rank in range(2):
        origin = Origin(workload_uid="workload-1", pod_uid=f"pod-{rank}", pod_name=f"trainer-{rank}", rank=rank)
        pod = Pod(origin=origin, uid=f"pod-{rank}", namespace="team", name=f"trainer-{rank}", workloads=of)
        if attached:  # as it is in a cluster; elsewhere only the rows say it
            await asked.spool.deliver(pod)
        for step in range(300):
            tags = {"loss": {"phase": f"p{rank}"}} if step % 2 else {}
            rows.append(row(step, origin=origin, values={"loss": float(step), "acc": 1.0}, tags=tags))
    await asked.spool.deliver(*rows)
    if blocks:
        await compact(asked)
    plain = await asked.data(metrics="loss")
    found = await asked.data(metrics="loss", fields="rank,pod_name,pod_uid,tags")
    added = {"rank", "pod_name", "pod_uid", "tags"}
    assert [{k: v for k, v in p.items() if k not in added} for p in found] == plain
    for number, point in enumerate(found):
        rank, step = number % 2, number // 2
        assert (point["iteration"], point["rank"]) == (step, rank)
        assert (point["pod_uid"], point["pod_name"]) == (f"pod-{rank}", f"trainer-{rank}")
        assert point["tags"] == ({"phase": f"p{rank}"} if step % 2 else {})
    few = await asked.data(metrics="loss", fields="tags,rank", max_points=20)
    assert all(p["tags"] == ({"phase": f"p{p['rank']}"} if p["iteration"] % 2 else {}) for p in few)
    text = (await asked.get(DATA, metrics="loss", fields="rank,tags", format="csv")).text
    lines = [*csv.DictReader(io.StringIO(text))]
    assert [line["rank"] for line in lines] == [str(p["rank"]) for p in found]
    assert lines[2]["tags"] == '{"phase":"p0"}'
    assert (await asked.data(metrics="acc", fields="tags"))[3]["tags"] == {}


async def test_points_that_ranks_share_have_neither_rank_nor_pod(asked: QueryApp) -> None:
    await asked.spool.deliver(row(1), row(1, data_source="log"))
    log, own = await asked.data(fields="rank,pod_name,pod_uid", data_source="log,wandb")
    assert (log["rank"], log["pod_name"], log["pod_uid"]) == (None, "", "")
    assert (own["rank"], own["pod_name"], own["pod_uid"]) == (None, "trainer-0", "pod-uid-1")


async def test_wide_rows_descend_and_have_no_fields(asked: QueryApp) -> None:
    await asked.spool.deliver(*(row(step) for step in range(5)))
    rows = await asked.json("/workloads/workload-1/metrics/rows")
    assert await asked.json("/workloads/workload-1/metrics/rows", order="desc") == rows[::-1]
    assert len(await asked.json("/workloads/workload-1/metrics/rows", last=2)) == 2
    assert (await asked.get("/workloads/workload-1/metrics/rows", fields="rank")).status_code == 400
