"""The whole road of log lines: posted, killed in between, sent twice, restarted; asked for at the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.end_to_end.running_lens import PLAIN, RunningLens, ledgers_add_up, wait_for
from tests.forked import forked_command

BEGIN = 1_760_000_000.0
KUBERNETES = {"pod_name": "trainer-0", "namespace_name": "team", "pod_id": "uid-0", "host": "n", "container_name": "c"}


def step(number: int, rank: int | None = None, loss: str | None = None) -> str:
    prefix = "" if rank is None else f"[rank{rank}]: "
    loss = f"{number / 1000 + 1:.6E}" if loss is None else loss
    return (
        f"{prefix} iteration {number:8d}/    1000 | consumed samples: {number * 8:12d} | elapsed time per iteration"
        f" (ms): 1000.0 | learning rate: 1.0E-05 | lm loss: {loss} | grad norm: 0.5 | number of skipped"
        " iterations:   0 | number of nan iterations:   0 |"
    )


def post(lens: RunningLens, lines: list[tuple[float, str]], **kubernetes: str) -> bool:
    """Whether the daemon has acknowledged the lines."""
    entries = [{"date": BEGIN + at, "message": line, "kubernetes": {**KUBERNETES, **kubernetes}} for at, line in lines]
    try:
        return httpx.post(f"{lens.url}/logs", json=entries, timeout=240, verify=PLAIN).status_code == 200
    except httpx.HTTPError:
        return False


def losses(lens: RunningLens, uid: str) -> list[tuple[int, int, float]]:
    points = lens.points(uid, metrics="lm_loss")
    return [(point["attempt"], point["iteration"], point["value"]) for point in points]


def has_points(lens: RunningLens, uid: str, number: int) -> bool:
    return len(losses(lens, uid)) == number


def events(lens: RunningLens, uid: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lens.get(f"/workloads/{uid}/events")["events"]
    return sorted(found, key=lambda event: (event["timestamp"], event["type"]))


def test_a_job_that_restarts_while_the_daemon_is_killed(lens: RunningLens) -> None:
    first = [(float(number), step(number)) for number in range(1, 41)]
    first.insert(0, (0.0, "[before the start of training step] datetime: 2025-10-09 00:00:00"))
    first.append((40.1, "saving checkpoint at iteration      40 to /ckpt"))
    first.append((42.1, "  successfully saved checkpoint from iteration      40 to /ckpt"))
    assert post(lens, first[:25])
    lens.kill()
    lens.start()
    assert post(lens, first[10:])  # the shipper was not sure and sends more again
    second = [(100.0 + number, step(number)) for number in range(31, 61)]
    assert post(lens, [(99.0, "[before the start of training step] datetime: 2025-10-09 00:01:40"), *second])
    lens.kill()
    lens.start()
    assert post(lens, first[30:35])  # late ones of the first attempt
    assert post(lens, second)
    status = lens.drained()
    ledgers_add_up(status)
    expected = [(1, number, round(number / 1000 + 1, 6)) for number in range(1, 41)]
    expected += [(2, number, round(number / 1000 + 1, 6)) for number in range(31, 61)]
    assert sorted(losses(lens, "uid-0")) == expected
    told = [(event["type"], event["attempt"]) for event in events(lens, "uid-0")]
    assert told == [
        ("training_started", 1),
        ("checkpoint_saving", 1),
        ("checkpoint_saved", 1),
        ("training_started", 2),
    ]
    (saved,) = (event for event in events(lens, "uid-0") if event["type"] == "checkpoint_saved")
    assert (saved["iteration"], saved["details"]["duration_seconds"], saved["details"]["path"]) == (40, 2.0, "/ckpt")


def test_ranks_of_one_step_are_one_point_and_nan_is_kept(lens: RunningLens) -> None:
    lines = [(1.0, step(1, rank, loss)) for rank, loss in ((3, "3.0"), (0, "1.0"), (2, "2.0"))]
    lines += [(2.0, step(2, rank, "NAN")) for rank in (3, 0)]
    assert post(lens, lines, pod_id="uid-1", pod_name="trainer-1")
    lens.drained()
    points = lens.points("uid-1", metrics="lm_loss")
    assert [(point["iteration"], point["value"], point.get("special")) for point in points] == [
        (1, 1.0, None),
        (2, None, "NaN"),
    ]
    assert [(event["type"], event["iteration"]) for event in events(lens, "uid-1")] == [("loss_not_finite", 2)]


def test_files_that_are_followed_over_a_kill(make_lens: Callable[..., RunningLens], tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    lens = make_lens(
        f"collectors:\n  run: {{type: training_log, paths: ['{log}'], workload_uid: file-1, interval_seconds: 0.05}}\n"
    )
    lens.start()
    with log.open("a") as file:
        for number in range(1, 41):
            print(step(number), file=file, flush=True)
            if number % 10 == 0:
                wait_for(partial(has_points, lens, "file-1", number), what=f"{number} points")
                lens.kill()
                lens.start()
    lens.drained()
    assert [(attempt, iteration) for attempt, iteration, _ in losses(lens, "file-1")] == [
        (1, number) for number in range(1, 41)
    ]


def test_a_command_that_is_run_with_log(lens: RunningLens) -> None:
    script = f"print({step(5)!r}); print('[after training is done] datetime: 2025-10-09 00:00:00')"
    command = [*forked_command(), "run", "--log", "--url", lens.url, "--workload", "run-1", "--"]
    subprocess.run([*command, sys.executable, "-c", script], check=True, capture_output=True, timeout=240)
    lens.drained()
    assert [(iteration, value) for _, iteration, value in losses(lens, "run-1")] == [(5, 1.005)]
    assert [event["type"] for event in events(lens, "run-1")] == ["training_ended"]


def test_a_command_that_fails_is_one_failure_with_what_log_hook_and_command_know(lens: RunningLens) -> None:
    script = (
        f"print({step(5)!r}, flush=True); import wandb; run = wandb.init(mode='disabled'); raise KeyError('weights')"
    )
    command = [*forked_command(), "run", "--log", "--url", lens.url, "--workload", "run-2", "--"]
    failed = subprocess.run([*command, sys.executable, "-c", script], check=False, capture_output=True, timeout=240)
    assert failed.returncode == 1
    lens.drained()
    assert [(iteration, value) for _, iteration, value in losses(lens, "run-2")] == [(5, 1.005)]
    (failure,) = [event for event in events(lens, "run-2") if event["type"] == "training_failed"]
    assert (failure["details"]["exit_code"], failure["details"]["reason"]) == (1, "KeyError: 'weights'")
    assert failure["details"]["lines"]
    diagnosis = lens.get("/workloads/run-2/diagnosis")
    assert [event["type"] for event in diagnosis["events"]].count("training_failed") == 1
