"""GET /workloads/{uid}/measurements: what collectors measured on the machines of a workload."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from lens_plugins.sinks.postgresql.retention import Policy, retain
from lens_plugins.sinks.postgresql.row_store import RowStore

from lens_core import Measurement, Origin, Pod, WorkloadReference
from lens_core.http.measurements import split_series
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row

AT = 1_700_000_000.0


def measured(name: str, value: float | None, at: float, node: str = "n1", **tags: str) -> Measurement:
    return Measurement(origin=Origin(node=node), name=name, value=value, event_time=AT + at, tags=tags)


async def fill(asked: QueryApp) -> None:
    """A job of two nodes across midnight, of which one is known by its pod alone, and a machine beside it."""
    await asked.spool.deliver(
        row(1, origin=Origin(workload_uid="job", rank=0, node="n1"), event_time=AT),
        row(2, origin=Origin(workload_uid="job", rank=0, node="n1"), event_time=AT + 90_000),
        Pod(uid="u2", name="p2", node="n2", workloads=[WorkloadReference(uid="job")]),
        *(measured("gpu.used_pct", 50.0 + index, 9000 * index, gpu="0", vendor="x") for index in range(11)),
        *(measured("host.memory.used_pct", 10.0, 9000 * index, node="n2") for index in range(11)),
        measured("gpu.used_pct", 7.0, 0, node="n3", gpu="0"),
        measured("gpu.used_pct", None, 0, gpu="1"),
        Measurement(origin=Origin(workload_uid="job"), name="system.power", value=math.nan, event_time=AT),
    )


async def series(asked: QueryApp, **parameters: Any) -> dict[tuple[str, str], list[tuple[int, Any]]]:
    found = await asked.json("/workloads/job/measurements", **parameters)
    return {
        (one["node"], one["name"]): list(zip(one["timestamps"], one["values"], strict=True)) for one in found["series"]
    }


async def test_the_measurements_of_the_nodes_of_a_workload(asked: QueryApp) -> None:
    await fill(asked)
    found = await series(asked)
    assert sorted(found) == [("job", "system.power"), ("n1", "gpu.used_pct"), ("n2", "host.memory.used_pct")]
    assert [value for _, value in found["n1", "gpu.used_pct"]] == [50.0 + index for index in range(11)]
    assert [value for _, value in found["job", "system.power"]] == ["NaN"]
    whole = await asked.json("/workloads/job/measurements", metrics="gpu.used_pct", max_points=2)
    (one,) = whole["series"]
    assert (one["tags"], whole["nodes"], one["place"]) == ({"gpu": "0"}, ["n1", "n2"], "node")
    assert (min(one["min"]), max(one["max"])) == (50.0, 60.0)
    assert 2 <= len(one["values"]) <= 3


async def test_parameters_choose_and_strangers_are_empty(asked: QueryApp) -> None:
    await fill(asked)
    assert list(await series(asked, node="n2")) == [("n2", "host.memory.used_pct")]
    assert list(await series(asked, metrics="gpu.used_pct{gpu=0}")) == [("n1", "gpu.used_pct")]
    start, end = int((AT + 9000) * 1000), int((AT + 18000) * 1000)
    narrow = await series(asked, node="n1", start=start, end=end)
    assert [value for _, value in narrow["n1", "gpu.used_pct"]] == [51.0, 52.0]
    assert await series(asked, cluster="elsewhere") == {}
    assert (await asked.json("/workloads/nobody/measurements"))["series"] == []
    assert (await asked.get("/workloads/job/measurements", max_points=1)).status_code == 400


async def test_machines_are_in_no_list_but_answer_by_their_uid(asked: QueryApp) -> None:
    await fill(asked)
    for search in ("", "n1", "lens-measured", "gpu"):
        listed = await asked.json("/workloads", search=search)
        assert [one["workload_uid"] for one in listed["workloads"]] == ([] if search else ["job"]), search
        listed = await asked.json("/overview", search=search)
        assert [one["workload_uid"] for one in listed["workloads"]] == ([] if search else ["job"]), search
    assert "lens-measured" not in repr(await asked.store.changed_workloads(""))
    points = await asked.data("lens-measured%2Fnode%2Fn1", metrics="all")
    assert {point["metric_name"] for point in points} == {"gpu.used_pct{gpu=0}"}
    assert len({point["run_id"] for point in points}) == 2, "a run for each day, which retention removes"


async def test_a_redelivery_changes_nothing_and_deleting_a_workload_removes_its_own(asked: QueryApp) -> None:
    await fill(asked)
    before = await series(asked)
    await fill(asked)
    assert await series(asked) == before
    await asked.store.delete_workload("job")
    assert await asked.data("lens-measured%2Fworkload%2Fjob", metrics="all") == []
    assert await asked.data("lens-measured%2Fnode%2Fn1", metrics="all") != []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.b", ("a.b", {})),
        ("a{gpu=0,mount=/x=y}", ("a", {"gpu": "0", "mount": "/x=y"})),
        ("a{", ("a{", {})),
        ("a{}", ("a", {})),
    ],
)
def test_the_name_of_a_series_is_taken_apart(name: str, found: tuple[str, dict[str, str]]) -> None:
    assert split_series(name) == found


async def test_retention_removes_the_days_of_machines_by_a_pattern(asked: QueryApp) -> None:
    await fill(asked)
    policy = Policy(patterns=[("lens-measured/*", 14.0)])
    async with asked.store.database.writing() as connection:
        await retain(connection, RowStore(16), policy, int((time.time() + 15 * 86_400) * 1e6))
    assert await asked.data("lens-measured%2Fnode%2Fn1", metrics="all") == []
    assert await asked.data("job", metrics="all") != []
