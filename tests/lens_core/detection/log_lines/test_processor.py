"""Streams of lines: attempts, ranks, neighbours, events, and what survives a failure."""

from __future__ import annotations

from lens_core import Detection, Event, Evidence, LogLine, Origin, StepMetrics
from tests.lens_core.detection.log_lines.stand import POD, Stand, attempts, events, megatron, of


def test_a_line_stays_and_its_row_comes_behind_it(stand: Stand) -> None:
    done = stand.feed("nothing", megatron(7))
    assert [type(record) for record in done.records[:2]] == [LogLine, LogLine]
    (row,) = of(StepMetrics, done)
    assert (row.data_source, row.row_step, row.iteration, row.attempt) == ("log", 7, None, 1)
    assert row.values["current_iteration"] == 7.0
    assert row.values["target_iteration"] == 1000.0
    assert row.origin.workload_uid == "w"
    assert done.derived == len(done.records) - 2


def test_steps_that_go_back_later_are_a_new_attempt(stand: Stand) -> None:
    assert attempts(stand.feed(megatron(100), megatron(101))) == [(1, 100), (1, 101)]
    assert attempts(stand.feed(megatron(90), megatron(91))) == [(2, 90), (2, 91)]


def test_old_lines_go_to_the_attempt_of_their_time_and_open_none(stand: Stand) -> None:
    stand.feed(megatron(100))
    first = stand.now
    stand.feed(megatron(50))
    late = stand.feed(megatron(101), at=first + 0.5)
    assert attempts(late) == [(1, 101)]
    again = stand.feed(megatron(100), at=first)
    assert attempts(again) == []
    assert again.merged == 1
    assert attempts(stand.feed(megatron(51))) == [(2, 51)]


def test_a_start_marker_opens_an_attempt_once_for_all_ranks(stand: Stand) -> None:
    marker = "[before the start of training step] datetime: 2026-01-01 00:00:00"
    other = Origin(workload_uid="w", pod_name="trainer-1", namespace="ns")
    assert events(stand.feed(marker)) == ["training_started"]
    assert events(stand.feed(marker, origin=other)) == []
    assert attempts(stand.feed(megatron(1), megatron(2), origin=other)) == [(1, 1), (1, 2)]
    stand.now += 60
    again = stand.feed(marker)
    assert events(again) == ["training_started"]
    assert of(Event, again)[0].attempt == 2
    assert attempts(stand.feed(megatron(2), origin=other)) == [(2, 2)]


def test_other_ranks_join_the_newest_attempt(stand: Stand) -> None:
    lines = ["[rank0]: " + megatron(10), "[rank1]: " + megatron(10)]
    stand.feed(*lines)
    stand.feed("[rank0]: " + megatron(5))
    assert attempts(stand.feed("[rank1]: " + megatron(5, "lm loss: 9.0 | grad norm: 1.0 |"))) == [(2, 5)]


TITAN = (
    "[rank{rank}]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.2  memory:  {memory}GiB(64.99%)"
)


def test_one_step_of_many_ranks_is_one_row_of_the_lowest(stand: Stand) -> None:
    done = stand.feed(*(TITAN.format(rank=rank, memory=rank + 1) for rank in (3, 0, 7)), at=5.0)
    (row,) = of(StepMetrics, done)
    assert (row.origin.rank, row.values["mem_usage"]) == (0, 1.0)
    assert done.merged == 2
    later = stand.feed(TITAN.format(rank=5, memory=9), at=5.0)
    assert (attempts(later), later.merged) == ([], 1)


def test_two_layers_of_one_step_are_one_row(stand: Stand) -> None:
    done = stand.feed(
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[0.9]",
        "[INFO] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=17.4,"
        " CurrSamplesPerSec=17.1, MemAllocated=3.96GB, MaxMemAllocated=22.95GB",
        megatron(10),
    )
    (row,) = of(StepMetrics, done)
    assert {"learning_rate", "samples_per_second", "lm_loss"} <= row.values.keys()


def test_a_dictionary_takes_its_step_from_the_bar_before_it(stand: Stand) -> None:
    stand.feed(" 56%|█████▌    | 10/18 [04:14<03:22, 25.27s/it]")
    (row,) = of(StepMetrics, stand.feed("{'loss': 8.7, 'learning_rate': 0.0001, 'epoch': 1.6}"))
    assert (row.row_step, row.values["target_iteration"]) == (10, 18.0)


def test_a_dictionary_without_a_bar_takes_its_step_from_the_epochs(stand: Stand) -> None:
    stand.feed("  Num Epochs = 2", "  Total optimization steps = 1,000")
    (row,) = of(StepMetrics, stand.feed("{'loss': 8.7, 'learning_rate': 0.0001, 'epoch': 0.5}"))
    assert row.row_step == 250


def test_a_dictionary_of_which_nothing_is_known_is_counted(stand: Stand) -> None:
    line = "{{'loss': {loss}, 'learning_rate': 0.0001, 'epoch': 0.5}}"
    done = stand.feed(line.format(loss=1.0), line.format(loss=2.0))
    assert [row.row_step for row in of(StepMetrics, done)] == [1, 2]


def test_a_half_line_waits_for_its_step(stand: Stand) -> None:
    assert not of(StepMetrics, stand.feed("Step Time : 0.79s GPU utilization: 62.4MODEL_TFLOP/s/GPU"))
    stand.restart()
    (row,) = of(StepMetrics, stand.feed(" [2026-09-16 15:26:14] iteration  20/ 200 | lm loss: 3.5E+00 |"))
    assert (row.row_step, row.values["tflops"]) == (20, 62.4)


def test_rows_below_a_header_survive_a_restart(stand: Stand) -> None:
    stand.feed("epoch,step,train_loss,val_loss")
    assert [row.row_step for row in of(StepMetrics, stand.feed("0,49,2.5,"))] == [49]
    stand.restart()
    (row,) = of(StepMetrics, stand.feed("0,99,2.25,"))
    assert (row.row_step, row.values["lm_loss"]) == (99, 2.25)
    assert not of(StepMetrics, stand.feed("0,99,,1.5"))


def test_a_loss_that_is_no_number_is_an_event_once_in_a_row(stand: Stand) -> None:
    nan = "lm loss: NAN | grad norm: nan |"
    done = stand.feed(megatron(1), megatron(2, nan), megatron(3, nan), megatron(4), megatron(5, nan))
    assert [(event.type, event.iteration) for event in of(Event, done)] == [
        ("loss_not_finite", 2),
        ("loss_not_finite", 5),
    ]
    assert len(of(StepMetrics, done)) == 5


def test_an_overflow_is_a_skipped_step_and_no_nan(stand: Stand) -> None:
    rest = "learning rate: 0.0 | loss scale: 2.0 | number of skipped iterations: 5 | number of nan iterations: 0 |"
    assert events(stand.feed(megatron(5, rest))) == ["step_skipped"]


def test_a_checkpoint_has_its_duration_and_path(stand: Stand) -> None:
    stand.feed("saving checkpoint at iteration     845 to /ckpt/run")
    stand.now += 11
    (event,) = of(Event, stand.feed("  successfully saved checkpoint from iteration     845"))
    assert (event.type, event.iteration) == ("checkpoint_saved", 845)
    assert event.details["duration_seconds"] == 12.0
    assert event.details["path"] == "/ckpt/run"


def test_what_every_rank_prints_is_one_event(stand: Stand) -> None:
    oom = "[rank{}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.12 GiB."
    timeout = (
        "[rank{}]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:607] [Rank {}] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600061 milliseconds"
    )
    done = stand.feed(*(oom.format(rank) for rank in range(4)), *(timeout.format(rank, rank) for rank in range(4)))
    assert events(done) == ["out_of_memory", "collective_timeout"]


def test_each_framework_is_told_once(stand: Stand) -> None:
    line = megatron(1, "hip mem usage/free/total/usage_ratio: 1.0GB/2.0GB/3.0GB/33.3% | lm loss: 1.0 |")
    found = of(Detection, stand.feed(line))
    assert {(item.framework, item.layer, item.source) for item in found} == {
        ("megatron", "base", "log"),
        ("primus", "wrapper", "log"),
    }
    assert not of(Detection, stand.feed(line.replace("1/", "2/")))


def test_evidence_gives_opinions_beside_it(stand: Stand) -> None:
    evidence = Evidence(origin=POD, source="wandb", facts={"modules": {"deepspeed": "0.15"}})
    done = stand.give([evidence])
    assert done.records[0] is evidence
    assert [(item.framework, item.workload_uid) for item in of(Detection, done)] == [("deepspeed", "w")]


def test_what_was_not_stored_is_forgotten_and_comes_again(stand: Stand) -> None:
    stand.feed(megatron(1))
    lines = [megatron(2), "saving checkpoint at iteration 2 to /x", megatron(1)]
    before = stand.now
    first = stand.feed(*lines, commit=False)
    stand.now = before
    second = stand.feed(*lines)
    assert list(first.records) == list(second.records)
    assert attempts(second) == [(1, 2), (2, 1)]


def test_attempts_and_reported_events_survive_a_restart(stand: Stand) -> None:
    stand.feed(megatron(10), "saving checkpoint at iteration 10 to /x")
    at = stand.now
    stand.restart()
    assert events(stand.feed("saving checkpoint at iteration 10 to /x", at=at)) == []
    assert attempts(stand.feed(megatron(3))) == [(2, 3)]


def test_pods_without_a_workload_are_jobs_of_their_own(stand: Stand) -> None:
    one, two = Origin(pod_name="a", namespace="ns"), Origin(pod_name="b", namespace="ns")
    stand.feed(megatron(10), origin=one)
    stand.feed(megatron(10), origin=two)
    assert attempts(stand.feed(megatron(1), origin=one)) == [(2, 1)]
    assert attempts(stand.feed(megatron(11), origin=two)) == [(1, 11)]


def test_what_nobody_has_heard_of_for_long_is_forgotten(stand: Stand) -> None:
    stand.feed(megatron(1))
    assert stand.stored
    stand.now += 8 * 24 * 3600
    stand.give([])
    stand.give([])
    assert not stand.stored


def test_parts_of_a_line_are_joined_across_requests_and_restarts(stand: Stand) -> None:
    whole = megatron(7)
    one, two = (
        LogLine(origin=POD, text=text, event_time=5.0, stream="stdout", source="log_partial")
        for text in (whole[:20], whole[20:40])
    )
    other = LogLine(origin=POD, text="from stderr", event_time=5.0, stream="stderr")
    assert list(stand.give([one, other]).records) == [other]
    stand.restart()
    done = stand.give([two, LogLine(origin=POD, text=whole[40:], event_time=5.0, stream="stdout")])
    assert attempts(done) == [(1, 7)]
    assert [line.text for line in of(LogLine, done)] == [whole]
    assert done.merged == 1


def test_a_job_without_steps_yet_is_remembered_over_a_tick_and_a_restart(stand: Stand) -> None:
    stand.feed("[before the start of training step] datetime: 2026-01-01 00:00:00")
    assert stand.give([]).state_changes == {}
    stand.restart()
    stand.give([])
    assert events(stand.feed("[before the start of training step] datetime: 2026-01-01 00:00:00")) == []
    assert attempts(stand.feed(megatron(1))) == [(1, 1)]
