"""One end that several reporters tell of is one event, with everything that any of them knew."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import EventRow
from lens_core.model.ends import MERGED_TYPES, merge_ends

ERROR = "ValueError: bad shape (3, 4)"
LOG: dict[str, Any] = {"data_source": "log", "details": {"reason": ERROR}, "iteration": None}
HOOK: dict[str, Any] = {
    "data_source": "wandb",
    "run_id": "r",
    "rank": 0,
    "details": {"exit_code": 1, "exception": "ValueError", "reason": ERROR},
}
RUN: dict[str, Any] = {
    "data_source": "log",
    "details": {"exit_code": 1, "reason": "exit code 1", "lines": ["Traceback", ERROR]},
}
SCHEDULER: dict[str, Any] = {
    "data_source": "slurm",
    "node": "n7",
    "details": {"reason": "exit code 1", "state": "FAILED"},
}


def event(at: int, type: str = "training_failed", **fields: Any) -> EventRow:
    known: dict[str, Any] = {"iteration": None, "run_id": "", "attempt": 1, "data_source": "log", "details": {}}
    return EventRow(type=type, timestamp=at, **{**known, **fields})


def test_reports_of_an_end_are_one_beside_a_failure_of_the_same_moment() -> None:
    ended = [event(1000, "training_ended"), event(1040, "training_ended", rank=0, details={"exit_code": 0})]
    (one, failed) = merge_ends([*reversed(ended), event(990, details={"exit_code": 1})])
    assert (one.type, one.timestamp, one.rank, one.details) == ("training_ended", 1000, 0, {"exit_code": 0})
    assert failed.type == "training_failed"
    ranks = [event(1000 + rank, "training_ended", rank=rank) for rank in range(3)]
    assert merge_ends(reversed(ranks)) == [*reversed(ranks)]


@pytest.mark.parametrize("order", [*permutations((LOG, HOOK, RUN, SCHEDULER))])
def test_all_reporters_of_one_end_are_one_event_that_knows_everything(order: tuple[dict[str, Any], ...]) -> None:
    told = [event(1000 + 500 * place, **reporter) for place, reporter in enumerate(order)]
    started = event(10, "training_started")
    (one, first) = merge_ends([*reversed(told), started])
    assert first is started
    assert (one.timestamp, one.run_id, one.rank, one.node) == (1000, "r", 0, "n7")
    assert one.details == {
        "exit_code": 1,
        "exception": "ValueError",
        "reason": ERROR,
        "lines": ["Traceback", ERROR],
        "state": "FAILED",
    }


def test_the_code_of_the_process_stands_before_that_of_its_launcher() -> None:
    process = event(1000, rank=3, details={"exit_code": 143, "signal": "SIGTERM"})
    (one,) = merge_ends([event(3000, details={"exit_code": 1}), process])
    assert (one.rank, one.details) == (3, {"exit_code": 143, "signal": "SIGTERM"})
    (one,) = merge_ends([event(3000, details={"exit_code": -15}), event(1000, details={"exit_code": 143})])
    assert one.timestamp == 1000


@pytest.mark.parametrize(
    "events",
    [
        [event(70_001), event(10_000)],
        [event(2000), event(1500, "training_started"), event(1000)],
        [event(2000, rank=1), event(1000, rank=0)],
        [event(2000, run_id="a"), event(1000, run_id="b")],
        [event(2000, pod_name="a"), event(1000, pod_name="b")],
        [event(2000, details={"exit_code": 1}), event(1000, details={"exit_code": 137})],
        [event(2000, "process_terminated"), event(1000, "out_of_memory")],
    ],
)
def test_other_failures_stay(events: list[EventRow]) -> None:
    assert merge_ends(events) == events


TOLD = st.builds(
    event,
    st.integers(0, 200_000),
    st.sampled_from(["training_failed", "training_failed", "training_started", "stalled", "training_ended"]),
    rank=st.none() | st.integers(0, 1),
    run_id=st.sampled_from(["", "r"]),
    details=st.dictionaries(st.sampled_from(["exit_code", "reason", "lines"]), st.sampled_from(["1", "2"])),
)


@given(st.lists(TOLD, max_size=12))
def test_only_ends_become_fewer_and_the_order_stays(events: list[EventRow]) -> None:
    events.sort(key=lambda one: -one.timestamp)
    merged = merge_ends(events)
    assert [one for one in merged if one.type not in MERGED_TYPES] == [
        one for one in events if one.type not in MERGED_TYPES
    ]
    assert [one.timestamp for one in merged] == sorted((one.timestamp for one in merged), reverse=True)
    assert {key for one in merged for key in one.details} == {key for one in events for key in one.details}
    for kind in MERGED_TYPES:
        ended = {one.rank for one in events if one.type == kind} - {None}
        assert ended == {one.rank for one in merged if one.type == kind} - {None}
