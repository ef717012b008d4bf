"""The state of a job: stalls, ends that others report, and the origin of a failure."""

from __future__ import annotations

import pytest

from lens_core import Event, Origin
from tests.lens_core.detection.log_lines.stand import POD, Stand, events, megatron, of


def test_silence_of_a_running_job_is_a_stall_once_and_then_it_resumes(stand: Stand) -> None:
    stand.feed(*(megatron(step) for step in range(1, 6)))
    stand.now += 59
    assert events(stand.give([])) == []
    stand.now += 2
    stalled = stand.give([])
    assert events(stalled) == ["stalled"]
    assert of(Event, stalled)[0].details["usual_seconds"] == pytest.approx(1.0)
    assert events(stand.give([])) == []
    assert events(stand.feed(megatron(6))) == ["resumed"]


def test_the_limit_of_a_stall_follows_the_usual_pace(stand: Stand) -> None:
    for step in range(1, 6):
        stand.now += 99
        stand.feed(megatron(step))
    stand.now += 290
    assert events(stand.give([])) == []
    stand.now += 20
    assert events(stand.give([])) == ["stalled"]


def test_a_long_evaluation_is_no_stall_and_a_hang_in_one_is(stand: Stand) -> None:
    stand.feed(*(megatron(step) for step in range(1, 6)))
    assert events(stand.feed("Evaluating on 3200 samples")) == ["evaluation"]
    stand.now += 1500
    assert events(stand.give([])) == []
    assert events(stand.feed(megatron(6))) == []
    stand.feed(*(megatron(step) for step in range(7, 10)))
    stand.now += 2000  # one that nobody announces: others took 1500 seconds
    assert events(stand.give([])) == []
    stand.now += 400
    assert events(stand.give([])) == ["stalled"]


def test_a_hang_behind_an_evaluation_is_no_measure_of_evaluations(stand: Stand) -> None:
    stand.feed(*(megatron(step) for step in range(1, 6)))
    stand.feed(" validation loss at iteration 5 | lm loss value: 8.0E+00 | lm loss PPL: 3.0E+03 |")
    stand.now += 7200
    assert events(stand.give([])) == ["stalled"]
    assert events(stand.feed(megatron(6))) == ["resumed"]
    stand.now += 70
    assert events(stand.give([])) == ["stalled"]


def test_an_evaluation_that_never_ends_is_a_stall(stand: Stand) -> None:
    stand.feed(*(megatron(step) for step in range(1, 6)))
    stand.feed("***** Running Evaluation *****")
    stand.restart()
    stand.now += 1790
    assert events(stand.give([])) == []
    stand.now += 20
    assert events(stand.give([])) == ["stalled"]
    stand.feed("{'eval_loss': 2.1, 'eval_runtime': 30.5, 'epoch': 0.32}", megatron(6))
    stand.now += 70
    assert events(stand.give([])) == ["stalled"]


def test_a_finished_job_and_a_stopped_daemon_are_no_stall(stand: Stand) -> None:
    stand.feed(*(megatron(step) for step in range(1, 6)))
    stand.now += 1000
    stand.restart()
    assert events(stand.give([])) == []
    stand.feed("[after training is done] datetime: 2026-01-01 00:00:00")
    stand.now += 1000
    assert events(stand.give([])) == []


def test_an_end_that_others_tell_of_is_no_stall_and_is_remembered_over_a_restart(stand: Stand) -> None:
    pod = Origin(pod_name="trainer-0", namespace="ns")
    stand.feed(*(megatron(step) for step in range(1, 6)), origin=pod)
    stand.give([Event(origin=POD, type="training_ended", event_time=stand.now, data_source="wandb")])
    stand.restart()
    stand.now += 1000
    assert events(stand.give([])) == []
    stand.now += 1000
    assert events(stand.give([])) == []


def test_an_end_of_an_earlier_attempt_says_nothing_of_this_one(stand: Stand) -> None:
    stand.feed(*(megatron(step) for step in range(1, 6)))
    ended = stand.now
    stand.now += 100
    stand.feed(*(megatron(step) for step in range(1, 6)))
    stand.give([Event(origin=POD, type="training_ended", event_time=ended, data_source="wandb")])
    stand.now += 1000
    assert events(stand.give([])) == ["stalled"]


@pytest.mark.parametrize("line", ["Killed", "RuntimeError: CUDA error: an illegal memory access was encountered"])
def test_the_silence_after_a_failure_is_no_stall_until_it_goes_on(stand: Stand, line: str) -> None:
    stand.feed(*(megatron(step) for step in range(1, 6)), line)
    stand.now += 1000
    assert events(stand.give([])) == []
    stand.feed(megatron(6))
    stand.now += 10_000
    assert events(stand.give([])) == ["stalled"]


@pytest.mark.parametrize(
    "line",
    [
        "[PG 0 (default_pg) Rank 3] Process group watchdog thread terminated with exception: NCCL error: x",
        "[1,3]<stderr>:[compute-7:21766] Signal: Segmentation fault (11)",
        "[rank3]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    ],
)
def test_a_failure_carries_the_rank_that_its_line_names(stand: Stand, line: str) -> None:
    assert [item.origin.rank for item in of(Event, stand.feed(line))] == [3]
