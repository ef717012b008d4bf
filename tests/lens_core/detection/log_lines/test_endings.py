"""Ends that launchers and trainers print: each is told once, and a summary of an end is none of its own."""

from __future__ import annotations

import pytest

from lens_core import Event
from tests.lens_core.detection.log_lines.stand import Stand, events, megatron, of


def _summary(status: str) -> str:
    return (
        "[20260406 22:33:50][rank-0/8][INFO]     [------trainer.py:1587] : [TimeToTrain] status: "
        f"{status} | samples_count: 172032 | duration: 5877.2 sec -> 98.0 minutes | throughput: 29.27 samples/s"
    )


@pytest.mark.parametrize(
    ("status", "type"),
    [
        ("success", "training_ended"),
        ("aborted", "training_ended"),
        ("timeout", "training_ended"),
        ("failed", "training_failed"),
        ("failure", "training_failed"),
        ("error", "training_failed"),
    ],
)
def test_the_time_to_train_is_an_end_of_a_job_that_has_no_other(stand: Stand, status: str, type: str) -> None:
    stand.feed(megatron(1), megatron(2))
    (event,) = of(Event, stand.feed(_summary(status)))
    assert (event.type, event.details["duration_seconds"], event.details["samples_count"]) == (type, 5877.2, 172032.0)
    assert events(stand.feed(_summary(status))) == []


def test_the_time_to_train_behind_an_early_stop_says_nothing_new(stand: Stand) -> None:
    assert events(stand.feed(_summary("success"))) == []
    stand.feed(megatron(1), megatron(2))
    stop = "[EarlyStop] Reached target! Stopping training. eval_loss: 3.292395 (target: 3.3)"
    assert events(stand.feed(stop, _summary("success"))) == ["training_ended"]
