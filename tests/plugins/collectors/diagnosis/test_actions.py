"""Failures as callers have them, and the actions that come of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.collectors.diagnosis import DiagnosisActionType, DiagnosisAgent

from lens_core.diagnosis import failures_of


@dataclass
class ProcessFailure:
    """As torch elastic has it."""

    local_rank: int
    exitcode: int
    message: Any
    timestamp: int


ELASTIC_MESSAGE = {
    "message": "IndexError: list index out of range",
    "extraInfo": {"py_callstack": "Traceback (most recent call last):\nIndexError: list index out of range"},
}
CASES: dict[str, tuple[Any, str, str]] = {
    "the seed's": ({"error": "division by zero"}, "RESTART_WORKER", "user_exception"),
    "an exception": ({"error": MemoryError("no")}, "RELAUNCH_WORKER", "host_memory"),
    "an exception itself": (KeyError("x"), "RESTART_WORKER", "user_exception"),
    "DLRover's": (
        {0: {"local_rank": 0, "exitcode": -9, "message": "", "datetime": "2026-11-27 10:00:00"}},
        "RESTART_WORKER",
        "killed",
    ),
    "DLRover's with keys of text": ({"3": {"exitcode": "139"}}, "RESTART_WORKER", "native_crash"),
    "torch elastic's": ({5: ProcessFailure(0, 1, ELASTIC_MESSAGE, 1_800_000_000)}, "RESTART_WORKER", "user_exception"),
    "one failure alone": ({"exitcode": 2, "message": "usage"}, "JOB_ABORT", "mistake"),
    "a text": ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "RELAUNCH_WORKER", "hardware"),
    "texts by rank": ({0: "CUDA out of memory"}, "RESTART_WORKER", "device_memory"),
    "nothing": (None, "NONE", "unknown"),
    "nothing in it": ({}, "NONE", "unknown"),
}


@pytest.mark.parametrize("case", CASES)
def test_failures_of_every_shape(case: str) -> None:
    given_failures, name, cause = CASES[case]
    action = DiagnosisAgent().diagnose_training_failure(failures=given_failures, restart_count=0)
    assert (action.action_type.name, action.cause) == (name, cause), action.reason
    assert action.reason


def test_an_exception_that_is_being_handled_tells_its_type() -> None:
    try:
        raise ImportError("flash_attn")
    except ImportError as error:
        [failure] = failures_of({"error": str(error)})
    assert failure.message == "ImportError: flash_attn"


def test_the_end_of_the_log_tells_more_than_an_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "training.log"
    log.write_text("iteration 1\n" * 1000 + "NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus\n")
    agent = DiagnosisAgent(training_log_file=str(log))
    action = agent.diagnose_training_failure({0: {"exitcode": 1}})
    assert action.action_type is DiagnosisActionType.RELAUNCH_WORKER
    assert "fallen off the bus" in action.evidence


def test_the_budget_is_the_callers() -> None:
    agent = DiagnosisAgent(max_restarts=1)
    failure = {"error": "ValueError: x"}
    names = [agent.diagnose_training_failure(failure, count).action_type.name for count in (0, 1, 2)]
    assert names == ["RESTART_WORKER", "JOB_ABORT", "JOB_ABORT"]


def test_types_compare_with_dlrovers_strings() -> None:
    assert DiagnosisActionType.RESTART_WORKER == "restart_worker"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=20) | st.floats(),
        lambda inner: st.dictionaries(st.text(max_size=8) | st.integers(0, 9), inner, max_size=4) | st.lists(inner),
        max_leaves=8,
    )
)
def test_odd_input_raises_nothing(odd: Any) -> None:
    failures_of(odd)


@pytest.mark.parametrize("count", [None, "2", 2.9, float("nan"), float("inf"), -1, object(), 10**400, [], True])
def test_any_number_of_restarts_is_understood(count: object) -> None:
    assert DiagnosisAgent().diagnose_training_failure({"error": "x"}, count).reason


class Hostile:
    """Raises whatever is asked."""

    def __str__(self) -> str:
        raise OSError("no")

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_objects_that_raise_are_failures_too() -> None:
    odd: list[Any] = [
        Hostile(),
        {0: Hostile()},
        {"error": Hostile()},
        {Hostile(): 1},
        {0: {"message": {"extraInfo": 5}}},
    ]
    for failures in odd:
        assert DiagnosisAgent(training_log_file="\0").diagnose_training_failure(failures, 0).reason


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("NCCL timeout", "collective_timeout"),
        ("RCCL operation timed out after 600 s", "collective_timeout"),
        ("all_reduce timed out", "collective_timeout"),
        ("allgather timeout while waiting", "collective_timeout"),
        ("NCCL collective has timed out", "collective_timeout"),
        ("GPU OOM", "device_memory"),
        ("boom", "user_exception"),
        ("timeout is 5", "user_exception"),
    ],
)
def test_errors_in_somebodys_own_words(text: str, cause: str) -> None:
    assert DiagnosisAgent().diagnose_training_failure({"error": text}, None).cause == cause


def test_dlrovers_json_is_read() -> None:
    text = json.dumps({"3": {"local_rank": 3, "exitcode": -9, "message": "", "datetime": "2026-01-01 00:00:00"}})
    [failure] = failures_of(text)
    assert (failure.rank, failure.exit_code) == (3, -9)
    assert [failure.message for failure in failures_of("{not json")] == ["{not json"]
