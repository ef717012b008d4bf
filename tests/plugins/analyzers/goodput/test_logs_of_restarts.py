"""Logs of jobs that fail and begin again, in words that no detector knows: the worked examples 4, 5, 7 and 12."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone

import pytest
from lens_plugins.analyzers.goodput.facts import Ledger
from lens_plugins.analyzers.goodput.log_file import ledger_of_log

BEGIN = datetime(2026, 3, 1, 8, 0, 0, tzinfo=timezone.utc)
Line = tuple[float, str]

# How a collector or a logger writes the time of each line: those of a traceback, too.
STAMPS: dict[str, Callable[[float], str]] = {
    "container": lambda at: f"{(BEGIN + timedelta(seconds=at)).strftime('%Y-%m-%dT%H:%M:%S.%f')}Z ",
    "short": lambda at: f"{(BEGIN + timedelta(seconds=at)).strftime('%Y-%m-%d %H:%M:%S')} ",
    "logger": lambda at: f"{(BEGIN + timedelta(seconds=at)).strftime('%Y-%m-%d %H:%M:%S,%f')[:-3]} - INFO - train - ",
    "brackets": lambda at: f"[{(BEGIN + timedelta(seconds=at)).strftime('%Y-%m-%d %H:%M:%S')}] [worker-3] ",
}


def steps(begin: float, seconds: float, numbers: Iterable[int]) -> list[Line]:
    return [(begin + index * seconds, f"step {step} loss {2 + 1 / step:.4f}") for index, step in enumerate(numbers)]


def failure(at: float, reason: str = "ValueError: the shapes do not fit") -> list[Line]:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 10, in <module>', "    main()", reason]
    return [(at, text) for text in lines]


def restart(at: float, said: str) -> list[Line]:
    return [(at, "starting up"), (at, said)]


def ledger(lines: Iterable[Line], stamp: Callable[[float], str]) -> Ledger:
    return ledger_of_log(lambda: [f"{stamp(at)}{text}\n".encode() for at, text in lines], "train.log")


def rounded(found: Ledger) -> dict[str, float]:
    return {name: round(seconds) for name, seconds in found.buckets.items() if round(seconds)}


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("said", ["Resuming from step 100", "Resumed from checkpoint at step 100", "beginning"])
def test_a_failure_and_a_restart(stamp: str, said: str) -> None:
    lines = [(0.0, "starting up"), *steps(60, 10, range(1, 181)), *failure(1855)]
    lines += [*restart(2155, said), *steps(2275, 10, range(101, 301))]
    found = ledger(lines, STAMPS[stamp])
    assert rounded(found) == {"productive": 3000, "startup": 160, "lost": 805, "down": 300}
    assert [(one.cause, round(one.seconds)) for one in found.interruptions] == [("training_failed", 1215)]


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_checkpoint_between_two_logged_steps(stamp: str) -> None:
    lines = [(0.0, "starting up"), *steps(80, 50, range(10, 201, 10)), *failure(1042)]
    lines += [*restart(1100, "Resuming training from step 195"), *steps(1150, 50, range(200, 301, 10))]
    found = ledger(lines, STAMPS[stamp])
    assert rounded(found) == {"productive": 1500, "startup": 55, "lost": 37, "down": 58}


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_start_that_fails(stamp: str) -> None:
    lines = [(0.0, "starting up"), *steps(105, 5, range(1, 51)), *failure(355)]
    lines += [(400, "starting up"), (402, "reading data"), *failure(460)]
    lines += [*restart(520, "Resumed from checkpoint out/step_40.pt"), *steps(625, 5, range(41, 101))]
    found = ledger(lines, STAMPS[stamp])
    assert rounded(found) == {"productive": 500, "startup": 260, "lost": 55, "down": 105}
    assert len(found.interruptions) == 2


def test_ranks_that_tell_of_a_failure_later_tell_of_the_same() -> None:
    lines = [(0.0, "starting up"), *steps(105, 5, range(1, 51)), *failure(355)]
    lines += failure(655, "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.")
    lines += failure(960, "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 5.")
    lines += [*restart(1000, "Resuming from step 40"), *steps(1105, 5, range(41, 101))]
    found = ledger(lines, STAMPS["container"])
    assert rounded(found) == {"productive": 500, "startup": 200, "lost": 55, "down": 645}
    assert len(found.interruptions) == 1


def test_a_checkpoint_that_is_loaded_while_steps_go_on_begins_nothing() -> None:
    lines = [(0.0, "starting up"), *steps(10, 10, range(1, 51)), (501.0, "Loaded checkpoint out/step_40.pt")]
    found = ledger([*lines, *steps(510, 10, range(51, 101))], STAMPS["container"])
    assert rounded(found) == {"productive": 1000}
    assert found.interruptions == []


BANNER = """***** Running training *****
  Num examples = 10,043
  Num Epochs = 3
  Total train batch size (w. parallel, distributed & accumulation) = 64
  Total optimization steps = 471"""


def of_trainer(begin: float, steps: range, every: int, banner: list[str]) -> list[Line]:
    """A Trainer of 157 steps an epoch without a progress bar; its rows give the share of the epochs alone."""
    lines = [(begin, "loading data"), *((begin + 50, text) for text in banner)]
    for index, step in enumerate(steps):
        at = begin + 62 + 2.0 * index
        if step % every == 0:
            lines.append((at, f"{{'loss': {2 - step / 1000:.4f}, 'epoch': {round(step / 157, 2)}}}"))
        if step == 200 and steps.start == 1 and banner:
            lines.append((at, "Saving model checkpoint to out/checkpoint-200"))
    return lines


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("every", [1, 10, 50])
@pytest.mark.parametrize("prefix", [None, "", "[INFO|trainer.py:2414] 2026-03-01 08:00:00,123 >> "])
def test_a_trainer_that_names_epochs_and_no_steps(stamp: str, every: int, prefix: str | None) -> None:
    banner = [] if prefix is None else [prefix + text for text in BANNER.splitlines()]
    resumed = [*banner, f"{prefix}  Continuing training from global step 200"] if banner else []
    lines = [*of_trainer(0, range(1, 306), every, banner), *failure(671, "RuntimeError: CUDA error: unspecified")]
    lines += of_trainer(971, range(201, 472), every, resumed)
    found = ledger(lines, STAMPS[stamp])
    buckets = rounded(found)
    assert buckets["down"] == 300
    assert buckets["lost"] == pytest.approx(211, abs=4)
    assert sum(buckets[name] for name in buckets if name in ("productive", "slow")) == pytest.approx(
        2 * (471 - 471 % every), abs=4
    )
    assert len(found.interruptions) == 1
