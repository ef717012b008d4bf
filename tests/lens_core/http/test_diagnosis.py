"""The answer about a workload, from stored events, steps and reports."""

from __future__ import annotations

from typing import Any

import pytest

from lens_core import Diagnosis, EventRow
from lens_core.diagnosis import Progress, RankStack, StackReport, ThreadStack, encode_report
from lens_core.http.diagnosis import diagnosis_json

NOW = 1_800_000_000.0


def event(kind: str, ago: float, **details: Any) -> EventRow:
    return EventRow(
        type=kind,
        timestamp=int((NOW - ago) * 1000),
        iteration=None,
        run_id="",
        attempt=1,
        data_source="log",
        details=details,
    )


def report(ago: float, rank: int, *frames: str, node: int = 0) -> Diagnosis:
    stack = RankStack(rank=rank, pid=rank, threads=(ThreadStack("MainThread", frames),))
    content = encode_report(StackReport(ranks=(stack,)))
    return Diagnosis(
        data_type="STACK_TRACE",
        data_content=content,
        node_type="worker",
        node_rank=node,
        node_id=node,
        timestamp=NOW - ago,
    )


def test_nothing_is_known() -> None:
    found = diagnosis_json(NOW, [], [], None)
    assert (found["hang"]["verdict"], found["stacks"], found["nodes"], found["advice"]) == ("unknown", [], [], None)


def test_ranks_of_several_nodes_are_merged_and_old_stacks_are_left_out() -> None:
    waiting = ("all_reduce (torch/distributed/distributed_c10d.py:1)", "train (train.py:9)")
    reports = [
        report(400.0, 7, "gone (old.py:1)", node=3),
        report(9.0, 0, *waiting),
        report(8.0, 1, *waiting, node=1),
        report(7.0, 2, "read (data.py:3)", "train (train.py:5)", node=2),
    ]
    found = diagnosis_json(NOW, reports, [], None)
    assert [(group["ranks"], group["suspect"]) for group in found["stacks"]] == [(["2"], True), (["0", "1"], False)]
    assert [node["node_rank"] for node in found["nodes"]] == [0, 1, 2, 3]
    assert found["nodes"][2]["reports"] == {"STACK_TRACE": int((NOW - 7) * 1000)}


@pytest.mark.parametrize(
    ("events", "action"),
    [
        ([event("training_failed", 10, reason="ValueError: bad")], "RESTART_WORKER"),
        (
            [event("training_failed", 10, exit_code="-9"), event("training_failed", 9, reason="ChildFailedError")],
            "RESTART_WORKER",
        ),
        ([event("training_failed", 10, reason="CUDA error: uncorrectable ECC error encountered")], "RELAUNCH_WORKER"),
        ([event("training_failed", 10, xid=95.0, reason="pid=1, name=python3, Uncontained ECC")], "RELAUNCH_WORKER"),
        ([event("training_failed", 10, xid=31.0, reason="pid=1, name=python3, Ch 8")], "RESTART_WORKER"),
        ([event("process_terminated", 10, signal="SIGSEGV", pid=7.0)], "RESTART_WORKER"),
        ([event("out_of_memory", 10, wanted="2 GiB"), event("resumed", 60)], "JOB_ABORT"),
        ([event("resumed", 5), event("training_failed", 10, reason="ValueError: bad")], None),
        ([event("checkpoint_saved", 5)], None),
    ],
)
def test_advice(events: list[EventRow], action: str | None) -> None:
    found = diagnosis_json(NOW, [], events, None)["advice"]
    assert (found and found["action"]) == action


DLROVER = '{"3": {"local_rank": 3, "exitcode": -9, "message": "", "datetime": "2026-01-01 00:00:00"}}'


@pytest.mark.parametrize(
    ("restarts", "action", "words"),
    [(0, "RESTART_WORKER", "0 of 3"), ("2", "RESTART_WORKER", "2 of 3"), (5, "RELAUNCH_WORKER", "5 restarts are used")],
)
def test_dlrovers_report_is_read_and_its_restarts_count(restarts: object, action: str, words: str) -> None:
    found = diagnosis_json(NOW, [], [event("training_failed", 10, reason=DLROVER, restart_count=restarts)], None)[
        "advice"
    ]
    assert (found["action"], found["cause"], found["evidence"]) == (action, "killed", "exit code -9, SIGKILL")
    assert words in found["reason"]


def test_steps_and_a_stall() -> None:
    going = diagnosis_json(
        NOW, [], [], Progress(last_step_at=NOW - 1, usual_seconds=1.0, iteration=7, data_source="log")
    )
    assert going["hang"]["verdict"] == "no"
    assert going["progress"] == {
        "iteration": 7,
        "last_step": int((NOW - 1) * 1000),
        "seconds_ago": 1.0,
        "usual_seconds": 1.0,
        "data_source": "log",
    }
