"""The hang verdict: the original's errors, silence, steps against stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from lens_core import Diagnosis
from lens_core.diagnosis import (
    Facts,
    HangVerdict,
    Happened,
    Progress,
    RankStack,
    StackReport,
    ThreadStack,
    decode_report,
    encode_report,
    judge_hang,
)

NOW = 1_800_000_000.0
LABELS = 'ip="10.0.0.1",job_name="j",local_rank="{rank}",pod_name="p",rank="{rank}"'


def flag(rank: int, value: str) -> str:
    return f"XPU_TIMER_COMMON_HANG{{{LABELS.format(rank=rank)}}} {value}"


def xpu(text: str, ago: float, node: int = 0) -> Diagnosis:
    return Diagnosis(
        data_type="XPU_TIMER_METRIC",
        data_content=text,
        node_id=node,
        node_type="worker",
        node_rank=node,
        timestamp=NOW - ago,
    )


def every_minute(text: str, minutes: int = 7, node: int = 0) -> list[Diagnosis]:
    return [xpu(text, 60.0 * ago, node) for ago in range(minutes, -1, -1)]


def verdict(diagnoses: Sequence[Diagnosis], progress: Progress | None = None, *events: Happened) -> HangVerdict:
    return judge_hang(Facts(now=NOW, diagnoses=diagnoses, progress=progress, events=events))


XPU_CASES = {
    "one node flagged for 7 minutes": (every_minute(flag(0, "1")), "yes"),
    "for 5 minutes": (every_minute(flag(0, "1"), 5), "yes"),
    "one sample alone proves nothing": ([xpu(flag(0, "1"), 0)], "unknown"),
    "two nodes, both": (every_minute(flag(0, "1")) + every_minute(flag(1, "1"), node=1), "yes"),
    "two nodes, one without a flag": (every_minute(flag(0, "1")) + every_minute(flag(1, "0"), node=1), "unknown"),
    "two nodes, the second is silent": ([*every_minute(flag(0, "1")), xpu(flag(1, "0"), 600.0, 1)], "unknown"),
    "one of two local ranks": (every_minute(f"{flag(0, '1')}\n{flag(1, '0')}"), "unknown"),
    "no HANG series at all": (every_minute("XPU_TIMER_COMMON_GC_COUNT 5"), "unknown"),
    "written 1.0": (every_minute(flag(0, "1.0")), "yes"),
    "written 1e0": (every_minute(flag(0, "1e0")), "yes"),
    "0 and a timestamp that ends in 1": (every_minute(flag(0, "0 1800000000001")), "no"),
    "a label that ends in 1": (every_minute(flag(0, "0").replace('pod_name="p"', 'pod_name="p} 1"')), "no"),
    "two samples 7 minutes apart": ([xpu(flag(0, "1"), 420), xpu(flag(0, "1"), 0)], "unknown"),
    "not a number": (every_minute(flag(0, "NaN")), "unknown"),
    "flagged, then free": ([*every_minute(flag(0, "1"))[:-1], xpu(flag(0, "0"), 0)], "no"),
    "all is old": ([xpu(flag(0, "1"), ago) for ago in (900.0, 840.0)], "unknown"),
    "nothing": ([], "unknown"),
}


@pytest.mark.parametrize("case", XPU_CASES)
def test_xpu_timer(case: str) -> None:
    diagnoses, expected = XPU_CASES[case]
    found = verdict(diagnoses)
    assert found.verdict == expected, found.reason


def test_it_says_since_when_and_which_ranks() -> None:
    found = verdict(every_minute(f"{flag(0, '1')}\n{flag(1, '1')}"))
    assert found.since == NOW - 420
    assert found.ranks == ["0", "1"]


def test_a_step_outweighs_everything() -> None:
    fresh = Progress(last_step_at=NOW - 5, usual_seconds=2.0)
    assert verdict(every_minute(flag(0, "1")), fresh).verdict == "no"


BARRIER = (
    "barrier (torch/distributed/distributed_c10d.py:4812)",
    "train (job/train.py:30)",
    "<module> (job/train.py:50)",
)
LOADER = ("read (job/data.py:12)", "train (job/train.py:20)", "<module> (job/train.py:50)")


def stacks(
    ago: float, frames: Mapping[int, tuple[str, ...]], mark: str = "m", world: int = 4, node: int = 0, cpu: float = 0.0
) -> Diagnosis:
    ranks = tuple(
        RankStack(
            rank=rank,
            world_size=world,
            pid=100 + rank,
            threads=(ThreadStack("MainThread", found),),
            mark=mark and f"{mark}{rank}",
            cpu_seconds=cpu,
        )
        for rank, found in frames.items()
    )
    return Diagnosis(
        data_type="STACK_TRACE",
        data_content=encode_report(StackReport(ranks=ranks)),
        node_id=node,
        node_type="worker",
        node_rank=node,
        timestamp=NOW - ago,
    )


STUCK = {0: BARRIER, 1: BARRIER, 2: LOADER, 3: BARRIER}


def standing(frames: Mapping[int, tuple[str, ...]], *, mark: str = "m", **more: int) -> list[Diagnosis]:
    return [stacks(ago, frames, mark, **more) for ago in (45.0, 30.0, 15.0, 0.0)]


def test_ranks_that_stand_still_name_the_guilty_one() -> None:
    found = verdict(standing(STUCK))
    assert (found.verdict, found.ranks, found.since) == ("yes", ["2"], NOW - 45)
    assert "rank 2 in read (job/data.py:12)" in found.reason
    assert "ranks 0, 1, 3 in barrier" in found.reason


def test_it_is_hung_since_the_last_step_or_since_the_node_says() -> None:
    overdue = Progress(last_step_at=NOW - 900, usual_seconds=1.0)
    assert verdict(standing(STUCK), overdue).since == NOW - 900
    report = decode_report(stacks(0.0, STUCK).data_content)
    text = encode_report(msgspec.structs.replace(report, still_since=NOW - 700))
    samples = standing(STUCK)
    samples[-1] = msgspec.structs.replace(samples[-1], data_content=text)
    assert verdict(samples).since == NOW - 700


def test_a_rank_that_cannot_be_read_is_said() -> None:
    samples = []
    for sample in standing(STUCK):
        ranks = [*decode_report(sample.data_content).ranks[:3], RankStack(rank=3, world_size=4, error="no permission")]
        samples.append(msgspec.structs.replace(sample, data_content=encode_report(StackReport(ranks=tuple(ranks)))))
    found = verdict(samples)
    assert (found.verdict, "rank 3: no permission" in found.reason) == ("unknown", True)


def test_two_samples_are_too_few() -> None:
    assert verdict(standing(STUCK)[2:]).verdict == "unknown"


def test_loops_that_go_round_at_one_place_move() -> None:
    samples = [stacks(ago, STUCK, mark=f"step {ago}") for ago in (45.0, 30.0, 15.0, 0.0)]
    assert verdict(samples).verdict == "no"


def test_without_local_variables_standing_still_needs_overdue_steps() -> None:
    alone = verdict(standing(STUCK, mark=""))
    overdue = Progress(last_step_at=NOW - 80, usual_seconds=1.0)
    together = verdict(standing(STUCK, mark=""), overdue)
    assert (alone.verdict, together.verdict) == ("unknown", "yes")
    assert together.ranks == ["2"]
    assert verdict([], overdue).verdict == "unknown"


def test_a_silent_node_and_missing_ranks_are_unknown() -> None:
    half = {rank: STUCK[rank] for rank in (0, 1)}
    assert verdict(standing(half)).verdict == "unknown"
    second = [stacks(200.0, {2: LOADER, 3: BARRIER}, node=1)]
    found = verdict(standing(half) + second)
    assert found.verdict == "unknown"
    assert "node 1 is silent" in found.reason


def test_two_nodes_together() -> None:
    first, second = ({0: BARRIER, 1: BARRIER}, {2: LOADER, 3: BARRIER})
    found = verdict(standing(first) + standing(second, node=1))
    assert (found.verdict, found.ranks) == ("yes", ["2"])


@pytest.mark.parametrize("frames", [dict.fromkeys(range(4), LOADER), STUCK])
def test_a_rank_that_computes_may_come_to_an_end(frames: Mapping[int, tuple[str, ...]]) -> None:
    samples = [stacks(ago, frames, cpu=100.0 - ago) for ago in (45.0, 30.0, 15.0, 0.0)]
    found = verdict(samples)
    assert found.verdict == "unknown"
    assert "compute" in found.reason
    # It becomes a hang by steps that are overdue for long, not for a minute.
    assert verdict(samples, Progress(last_step_at=NOW - 80, usual_seconds=1.0)).verdict == "unknown"
    assert verdict(samples, Progress(last_step_at=NOW - 400, usual_seconds=1.0)).verdict == "yes"


def test_collectives_that_spin_while_they_wait_do_not_compute() -> None:
    samples = [stacks(ago, dict.fromkeys(range(4), BARRIER), cpu=100.0 - ago) for ago in (45.0, 30.0, 15.0, 0.0)]
    found = verdict(samples)
    assert (found.verdict, found.ranks) == ("yes", [])


def test_steps_that_are_overdue_while_the_ranks_move_are_no_hang() -> None:
    samples = [stacks(ago, STUCK, mark=f"batch {ago}") for ago in (45.0, 30.0, 15.0, 0.0)]
    overdue = Progress(last_step_at=NOW - 400, usual_seconds=1.0)
    assert verdict(samples, overdue).verdict == "no"


def test_steps_alone() -> None:
    alive = [xpu(flag(0, "0"), ago) for ago in (60.0, 0.0)]
    assert verdict(alive, Progress(last_step_at=NOW - 400, usual_seconds=1.0)).verdict == "yes"
    assert verdict([], Progress(last_step_at=NOW - 400, usual_seconds=1.0)).verdict == "unknown"
    assert verdict([], Progress(last_step_at=NOW - 20, usual_seconds=1.0)).verdict == "no"
    assert verdict([], Progress(last_step_at=NOW - 500, usual_seconds=300.0)).verdict == "no"


def test_a_checkpoint_may_take_long() -> None:
    alive = [xpu(flag(0, "0"), 0.0)]
    overdue = Progress(last_step_at=NOW - 400, usual_seconds=1.0)
    saving = Happened("checkpoint_saving", NOW - 399)
    assert verdict(alive, overdue, saving).verdict == "no"
    assert verdict([], overdue, saving).verdict == "unknown"


@pytest.mark.parametrize("kind", ["training_ended", "training_failed"])
def test_a_job_that_ended_is_not_hung(kind: str) -> None:
    overdue = Progress(last_step_at=NOW - 400, usual_seconds=1.0)
    before = [xpu(flag(0, "1"), ago) for ago in (480.0, 420.0, 360.0)]
    assert verdict(before, overdue, Happened(kind, NOW - 350)).verdict == "no"
    log = Diagnosis(data_type="TRAINING_LOG", data_content="the end", timestamp=NOW)
    assert verdict([*before, log], overdue, Happened(kind, NOW - 350)).verdict == "no"
    again = verdict(every_minute(flag(0, "1")), overdue, Happened(kind, NOW - 350), Happened("resumed", NOW - 340))
    assert again.verdict == "yes"
    unsaid = verdict(every_minute(flag(0, "1")), overdue, Happened(kind, NOW - 350))
    assert unsaid.verdict == "yes"


def test_nodes_of_an_earlier_attempt_are_not_silent() -> None:
    gone = [xpu(flag(1, "0"), ago, node=9) for ago in (900.0, 840.0)]
    now = every_minute(flag(0, "1"))
    assert verdict([*gone, *now]).verdict == "unknown"
    assert verdict([*gone, *now], None, Happened("training_started", NOW - 500)).verdict == "yes"
    replaced = msgspec.structs.replace(xpu(flag(0, "0"), 600.0), node_id=7)
    assert verdict([replaced, *now]).verdict == "yes"


def test_the_collectives_own_watchdog() -> None:
    found = verdict([], Progress(last_step_at=NOW - 700, usual_seconds=1.0), Happened("collective_timeout", NOW - 60))
    assert (found.verdict, found.since) == ("yes", NOW - 700)


def test_foreign_stack_reports_prove_nothing() -> None:
    text = [
        Diagnosis(data_type="STACK_TRACE", data_content="Thread 1 …", node_rank=0, timestamp=NOW - ago)
        for ago in (45.0, 30.0, 15.0, 0.0)
    ]
    assert verdict(text).verdict == "unknown"
