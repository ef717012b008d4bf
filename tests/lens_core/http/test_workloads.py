"""The list of workloads and one workload: framework, progress, time left, last values; paging and search."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from lens_core import Detection, Event, Origin
from lens_core.http import query_workloads
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row


async def fill(asked: QueryApp) -> None:
    """A run at 2 iterations per second of which a log knows the target, with what it runs on."""
    rows = [row(n, iteration=n * 10, event_time=1000.0 + n * 5, values={"loss": 1.0 / (n + 1)}) for n in range(50)]
    log = row(400, data_source="log", event_time=1100.0, values={"target_iteration": 1000.0})
    opinion = Detection(
        workload_uid="workload-1", source="log", framework="megatron", layer="base", confidence=0.8, method="log"
    )
    await asked.spool.deliver(*rows, log, opinion, row(50, iteration=500, event_time=1250.0, values={"x": math.nan}))


async def test_a_line_says_how_far_and_how_long(asked: QueryApp) -> None:
    await fill(asked)
    (line,) = (await asked.json("/workloads"))["workloads"]
    detail = await asked.json("/workloads/workload-1")
    for found in (line, detail):
        assert (found["iteration"], found["target_iteration"], found["progress"]) == (500, 1000, 0.5)
        assert found["iterations_per_second"] == pytest.approx(2.0)
        assert found["remaining_seconds"] == pytest.approx(250.0)
        assert found["eta"] == 1_250_000 + 250_000
        assert found["last_values"] == {"loss": pytest.approx(1 / 50), "x": "NaN"}
        assert (found["frameworks"], found["base_framework"]) == (["megatron"], "megatron")
    assert {run["data_source"] for run in detail["runs"]} == {"wandb", "log"}


async def test_values_of_several_ranks_are_those_of_the_lowest(asked: QueryApp) -> None:
    """Whichever route is asked, and whichever rank logged last; what only a higher rank logs is that rank's."""
    for rank in (5, 2, 9):
        origin = Origin(workload_uid="workload-1", rank=rank)
        values = {"loss": float(rank), "tokens_per_second": 100.0 + rank} | ({"mem_usage": 7.0} if rank == 9 else {})
        rows = [row(n, origin=origin, event_time=1000.0 + n + rank / 100, values=values) for n in range(80)]
        await asked.spool.deliver(*rows)
    (glance,) = (await asked.json("/glance", uid="workload-1"))["glances"]
    assert (glance["loss"], glance["throughput"], glance["memory"]) == (2.0, 102.0, 7.0)
    assert set(glance["spark"]) == {2.0}
    assert (await asked.json("/workloads/workload-1/verdict"))["loss"] == 2.0
    (run,) = (await asked.json("/runs", uid="workload-1"))["runs"]
    assert (run["last"]["loss"], run["last"]["tokens_per_second"]) == (2.0, 102.0)
    assert (await asked.json("/workloads/workload-1"))["last_values"]["loss"] == 2.0


async def test_iteration_times_have_rates_and_eta(asked: QueryApp) -> None:
    await fill(asked)
    answer = await asked.json("/workloads/workload-1/metrics/iteration-times")
    assert [p["metric_name"] for p in answer["data"]].count("iteration") == 52
    runs = {run["data_source"]: run for run in answer["runs"]}
    assert runs["wandb"]["seconds_per_iteration"] == pytest.approx(0.5)
    assert runs["log"]["eta"] is None
    assert runs["log"]["progress"] == 0.4


@pytest.mark.parametrize("apart", [0.0, 0.000_003_25, 0.002])
async def test_rows_that_were_written_at_once_have_no_speed(asked: QueryApp, apart: float) -> None:
    rows = [row(n, event_time=1000.0 + n * apart) for n in range(5)]
    target = row(400, data_source="log", event_time=900.0, values={"target_iteration": 1000.0})
    await asked.spool.deliver(*rows, target)
    (line,) = (await asked.json("/workloads"))["workloads"]
    runs = (await asked.json("/workloads/workload-1/metrics/iteration-times"))["runs"]
    for found in (line, *runs):
        names = ("iterations_per_second", "seconds_per_iteration", "remaining_seconds", "eta")
        assert [found[name] for name in names] == [None] * 4
    (glance,) = (await asked.json("/glance", uid="workload-1"))["glances"]
    assert (glance["iterations_per_second"], glance["eta_seconds"]) == (None, None)


async def test_rows_that_share_times_have_the_speed_of_the_whole_attempt(asked: QueryApp) -> None:
    """A clock of minutes, 120 rows in each: the last hundred rows have one time."""
    await asked.spool.deliver(*(row(n, event_time=60.0 * (n // 120)) for n in range(1200)))
    (line,) = (await asked.json("/workloads"))["workloads"]
    assert line["iterations_per_second"] == pytest.approx(1199 / 540)


async def test_nothing_is_invented(asked: QueryApp) -> None:
    await asked.spool.deliver(row(5))
    (line,) = (await asked.json("/workloads"))["workloads"]
    assert (line["progress"], line["iterations_per_second"], line["eta"], line["frameworks"]) == (None, None, None, [])


async def test_pages_and_search(asked: QueryApp) -> None:
    for number in range(5):
        origin = Origin(workload_uid=f"uid-{number}", pod_name=f"train-{number}")
        await asked.spool.deliver(row(0, origin=origin, event_time=1000.0 + number))
    first = await asked.json("/workloads", limit=3)
    rest = await asked.json("/workloads", limit=3, cursor=first["next_cursor"])
    assert [line["workload_uid"] for page in (first, rest) for line in page["workloads"]] == [
        f"uid-{number}" for number in range(4, -1, -1)
    ]
    assert rest["next_cursor"] is None
    assert first["total_count"] == rest["total_count"] == 5
    assert [w["workload_uid"] for w in (await asked.json("/workloads", search="TRAIN-2"))["workloads"]] == ["uid-2"]
    assert (await asked.get("/workloads/nobody")).status_code == 404


async def test_each_line_has_its_own_verdict(asked: QueryApp) -> None:
    names = {"a": "megatron", "b": "deepspeed", "c": ""}
    await asked.spool.deliver(*(row(0, origin=Origin(workload_uid=uid)) for uid in names))
    said = [
        Detection(workload_uid=uid, source="log", framework=name, layer="base", confidence=0.8, method="log")
        for uid, name in names.items()
        if name
    ]
    await asked.spool.deliver(*said)
    for _ in range(2):  # the second time they are remembered
        lines = (await asked.json("/workloads"))["workloads"]
        assert {line["workload_uid"]: line["framework"] or "" for line in lines} == names


async def various(asked: QueryApp) -> None:
    """Ten workloads that ended, failed or run, on two frameworks."""
    now = time.time()
    for number in range(10):
        origin = Origin(workload_uid=f"job-{number}")
        framework = "megatron" if number % 2 else "nemo"
        opinion = Detection(
            workload_uid=f"job-{number}", source="log", framework=framework, layer="base", confidence=0.8, method="log"
        )
        await asked.spool.deliver(row(0, origin=origin, event_time=now - number), opinion)
        if number in (2, 3, 4, 9):
            kind = "training_failed" if number < 9 else "training_ended"
            await asked.spool.deliver(Event(origin=origin, type=kind, event_time=now - number, details={}))


@pytest.mark.parametrize(
    ("parameters", "numbers"),
    [
        ({"framework": "megatron"}, {1, 3, 5, 7, 9}),
        ({"framework": "Megatron, nemo"}, set(range(10))),
        ({"framework": "primus"}, set()),
        ({"state": "failed"}, {2, 3, 4}),
        ({"state": "failed,ended"}, {2, 3, 4, 9}),
        ({"state": "running", "framework": "nemo"}, {0, 6, 8}),
        ({"state": "failed", "search": "job-3"}, {3}),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_workloads_by_framework_and_state(
    asked: QueryApp, parameters: dict[str, str], numbers: set[int], limit: int
) -> None:
    await various(asked)
    whole = (await asked.json("/workloads"))["workloads"]
    found: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = await asked.json("/workloads", limit=limit, cursor=cursor, **parameters)
        assert len(page["workloads"]) <= limit
        found += page["workloads"]
        cursor = page["next_cursor"]
    wanted = {f"job-{number}" for number in numbers}
    assert [line["workload_uid"] for line in found] == [u for line in whole if (u := line["workload_uid"]) in wanted]
    if "state" in parameters:
        assert {line["state"] for line in found} <= set(parameters["state"].split(","))


async def test_a_filter_looks_at_so_many_workloads_for_one_answer(
    asked: QueryApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_workloads, "_LOOKED_AT_ONCE", 2)
    monkeypatch.setattr(query_workloads, "MOST_LOOKED_AT", 4)
    await various(asked)
    answer = await asked.json("/workloads", state="stalled", limit=1)
    assert answer["workloads"] == []
    assert answer["next_cursor"]


async def test_a_state_that_there_is_not_is_refused(asked: QueryApp) -> None:
    answer = await asked.get("/workloads", state="failed,dead")
    assert answer.status_code == 400
    assert "state must be among failed, stalled, running, ended, silent, not 'dead'" in answer.json()["message"]


async def test_a_wrong_path_below_a_workload_names_the_route_that_was_meant(asked: QueryApp) -> None:
    answer = await asked.get("/workloads/workload-1/metric/data")
    assert answer.status_code == 404
    assert "did you mean /api/v1/workloads/workload-1/metrics/data?" in answer.json()["message"]
    assert "did you mean" not in (await asked.get("/workloads/namespace/pod-0")).json()["message"]


async def test_a_job_of_many_pods_is_not_called_by_one_of_them(asked: QueryApp) -> None:
    pods = {
        "uid-1": ["boom-0", "boom-1"],
        "uid-2": ["train-x7f", "train-q2z"],
        "uid-3": ["alone-0"],
        "uid-4": ["0", "1"],
    }
    for uid, names in pods.items():
        for rank, name in enumerate(names):
            await asked.spool.deliver(row(1, origin=Origin(workload_uid=uid, pod_name=name, rank=rank)))
    expected = {"uid-1": "boom", "uid-2": "uid-2", "uid-3": "alone-0", "uid-4": "uid-4"}
    for path in ("/workloads", "/overview"):
        listed = (await asked.json(path))["workloads"]
        assert {one["workload_uid"]: one["name"] for one in listed} == expected
    for uid, name in expected.items():
        assert (await asked.json(f"/workloads/{uid}"))["name"] == name
    assert [one["workload_uid"] for one in (await asked.json("/workloads", search="boom-0"))["workloads"]] == ["uid-1"]
