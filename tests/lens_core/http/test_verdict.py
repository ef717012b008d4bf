"""The verdict on a workload: what failed first, where, and what is lost."""

from __future__ import annotations

from typing import Any

import pytest

from lens_core import Event, EventRow, RunSummary, WorkloadSummary
from lens_core.http.verdict import VerdictFacts, WorkloadVerdict
from lens_core.model.records import Origin
from lens_core.plugin_api.overview import line_of
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row

NOW = 1_800_000_000_000


def event(kind: str, ago: float, **fields: Any) -> EventRow:
    described = {"iteration": None, "run_id": "", "attempt": 1, "data_source": "log", "details": {}, **fields}
    return EventRow(type=kind, timestamp=NOW - int(ago * 1000), **described)


def verdict(events: list[EventRow], *, last: int | None = 1839, ago: float = 100, **more: Any) -> WorkloadVerdict:
    runs = [
        RunSummary(
            run_id="r",
            attempt=1,
            data_source="log",
            rank=rank,
            rows=100,
            first_iteration=0,
            last_iteration=last,
            target_iteration=None,
            first_seen=NOW - 1_000_000,
            last_seen=NOW - int(ago * 1000),
        )
        for rank in (0, 11)
    ]
    summary = WorkloadSummary(
        workload_uid="w",
        name="w",
        namespace="",
        cluster="",
        rows=200,
        last_iteration=last,
        first_seen=NOW - 1_000_000,
        last_seen=NOW,
    )
    events.sort(key=lambda one: -one.timestamp)
    return VerdictFacts(line=line_of(summary, runs, events), runs=runs, events=events, **more).verdict(NOW)


def test_the_first_cause_is_named_with_its_rank_and_node() -> None:
    others = [
        event(
            "training_failed",
            80 - rank,
            rank=rank,
            node=f"n{rank}",
            details={"reason": "DistBackendError: connection closed by peer"},
        )
        for rank in range(8)
    ]
    root = event(
        "training_failed",
        89,
        rank=11,
        node="gpu-node-18",
        details={"reason": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"},
    )
    saved = event("checkpoint_saved", 300, iteration=1500)
    found = verdict([*others, root, saved], loss_name="loss", loss=1.38)
    assert found.summary == "Out of device memory on rank 11, gpu-node-18; loss 1.38; checkpoint 1,500; 339 steps lost"
    assert found.cause is not None
    assert (found.cause.rank, found.cause.node, found.cause.at) == (11, "gpu-node-18", NOW - 89_000)
    assert (found.state, found.steps_lost, found.action) == ("failed", 339, "RESTART_WORKER")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "Silent at iteration 1,839"),
        ([event("training_ended", 90)], "Ended at iteration 1,839"),
        ([event("stalled", 90, iteration=1839)], "Stalled at iteration 1,839"),
        ([event("out_of_memory", 90, rank=3)], "Out of device memory on rank 3"),
        ([event("training_failed", 90, details={"reason": "ValueError: bad"})], "ValueError: bad"),
        ([event("training_failed", 90, details={"exit_code": -9})], "Killed from outside"),
        ([event("training_failed", 90)], "Training failed"),
        ([event("out_of_memory", 95), event("resumed", 90)], "Silent at iteration 1,839"),
        # A checkpoint of later iterations is another attempt's.
        ([event("process_terminated", 9), event("checkpoint_saved", 400, iteration=5000)], "Process terminated"),
        (
            [event("process_terminated", 9), event("checkpoint_saved", 400, iteration=1838)],
            "Process terminated; checkpoint 1,838; 1 step lost",
        ),
    ],
)
def test_a_line_for_each_state(events: list[EventRow], expected: str) -> None:
    assert verdict(events).summary == expected


def test_rows_behind_a_failure_are_a_job_that_goes_on() -> None:
    found = verdict([event("out_of_memory", 90)], ago=1)
    assert (found.state, found.cause, found.summary) == ("running", None, "Running at iteration 1,839")


def test_a_stalled_job_was_last_seen_when_it_logged() -> None:
    found = verdict([event("stalled", 5)], ago=900)
    assert found.state == "stalled"
    assert found.last_logged == verdict([], ago=900).last_logged


def test_a_loss_that_is_no_number_is_named() -> None:
    assert verdict([], ago=1, loss_name="loss", loss="NaN").summary == "Running at iteration 1,839; loss NaN"


async def test_every_route_has_the_same_verdict(asked: QueryApp) -> None:
    await asked.spool.deliver(*[row(step, values={"loss": 2.0}) for step in range(50)])
    origin = Origin(workload_uid="workload-1", rank=3, node="gpu-7", pod_name="trainer-0", pod_uid="pod-uid-1")
    await asked.spool.deliver(
        Event(origin=origin, type="checkpoint_saved", data_source="log", iteration=30, event_time=1_700_000_030.0),
        Event(origin=origin, type="out_of_memory", data_source="log", iteration=49, event_time=1_700_000_060.0),
    )
    found = await asked.json("/workloads/workload-1/verdict")
    assert found["summary"] == (
        "Out of device memory on rank 3, gpu-7 at iteration 49; loss 2; checkpoint 30; 19 steps lost"
    )
    (glance,) = (await asked.json("/glance", uid="workload-1"))["glances"]
    assert {"workload_uid": "workload-1", **glance["verdict"]} == found
    assert found["last_logged"] == 1_700_000_060_000
    missing = await asked.get("/workloads/nobody/verdict")
    assert missing.status_code == 404
