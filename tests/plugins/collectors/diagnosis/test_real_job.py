"""A real torch job of four ranks: three in a collective, one whose data never comes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lens_plugins.collectors.diagnosis import StackCollector
from lens_plugins.collectors.stacks import Stacks, StacksSettings

from lens_core import Diagnosis
from lens_core.diagnosis import Facts, Limits, decode_report, judge_hang, merge_stacks, suspects_of
from lens_core.testing.hosts import make_context
from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.plugins.collectors.diagnosis.clients import RecordingClient
from tests.plugins.collectors.diagnosis.real_job import RealJob, real_job

# The rules on a shorter time; the daemon's own are in the slow test below.
QUICK = Limits(stack_confirm_seconds=2.0)


def standing(job: RealJob) -> bool:
    steps = job.steps()
    return len(steps) >= 5 and time.time() - steps[-1] > 2.0


async def samples(pids: list[int], pause_seconds: float) -> list[Diagnosis]:
    found: list[Diagnosis] = []
    context = make_context("stacks", Path("/tmp"))
    for _ in range(3):
        # Each one is new, so that it looks at all ranks.
        found += await Stacks(StacksSettings(pids=tuple(pids)), context).collect()
        await asyncio.sleep(pause_seconds)
    return found


async def test_the_rank_that_the_others_wait_for_is_named(tmp_path: Path) -> None:
    with real_job(tmp_path, hang_at=5, guilty=2) as job:
        await asyncio.to_thread(wait_for, lambda: standing(job), 90, "the hang")
        found = await samples(job.pids, 1.5)
        verdict = judge_hang(Facts(now=time.time(), diagnoses=found), QUICK)
        assert (verdict.verdict, verdict.ranks) == ("yes", ["2"]), verdict.reason
        assert "ranks 0, 1, 3 in all_reduce" in verdict.reason
        ranks = decode_report(found[-1].data_content).ranks
        assert [rank.rank for rank in ranks] == [0, 1, 2, 3]
        assert not [rank.error for rank in ranks if rank.error]
        groups = merge_stacks(ranks)
        assert suspects_of(groups) == groups[0].ranks == ["2"]
        assert any("dataloader.py" in frame for frame in groups[0].frames)


async def test_a_job_that_goes_on_is_not_hung(tmp_path: Path) -> None:
    with real_job(tmp_path) as job:
        await asyncio.to_thread(wait_for, lambda: len(job.steps()) > 5, 90, "the first steps")
        found = await samples(job.pids, 1.0)
        verdict = judge_hang(Facts(now=time.time(), diagnoses=found), QUICK)
        assert verdict.verdict == "no", verdict.reason


def test_one_rank_is_watched_and_all_are_looked_at_when_it_stands(tmp_path: Path) -> None:
    with real_job(tmp_path, hang_at=100) as job:
        wait_for(lambda: len(job.steps()) > 2, 240, "the first steps")
        collector = StackCollector(pids=job.pids)
        client = RecordingClient()
        collector.set_client(client)
        assert collector.is_enabled()
        assert set(collector.collect_data()) == {"0", "1", "2", "3"}
        # Two looks within one step see no movement.
        wait_for(lambda: set(collector.collect_data()) == {"0"}, 240, "a movement")
        wait_for(lambda: standing(job), 240, "the hang")
        collector.collect_data()
        data = collector.collect_data()
        assert set(data) == {"0", "1", "2", "3"}
        natives = [collector.collect_data() for _ in range(4)]
        assert any(stack.is_native for found in natives for stack in found.values())
        collector.store_data(data)
        [report] = client.reports
        assert decode_report(report.data_content).ranks[2].command.endswith(".py")


async def test_a_rank_that_died_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import time\ndef all_reduce(step):\n    print(flush=True)\n    time.sleep(1000)\nall_reduce(5)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, str(script)], env={"RANK": str(rank), "WORLD_SIZE": "3"}, stdout=subprocess.PIPE
        )
        for rank in range(3)
    ]
    try:
        pids = tuple(process.pid for process in processes)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline()
        collector = Stacks(StacksSettings(pids=pids), make_context("stacks", tmp_path))
        found = list(await collector.collect())
        processes[1].kill()
        processes[1].wait()
        for _ in range(4):
            await asyncio.sleep(1.0)
            found += await collector.collect()
        diagnoses = [record for record in found if isinstance(record, Diagnosis)]
        verdict = judge_hang(Facts(now=time.time(), diagnoses=diagnoses), QUICK)
        assert (verdict.verdict, verdict.ranks) == ("yes", ["1"]), verdict.reason
        assert "the process of rank 1 is gone" in verdict.reason
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_processes_that_are_gone_or_are_not_python_are_said() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        [stack] = StackCollector(pids=[sleeper.pid]).collect_data().values()
        assert stack.error
        assert not stack.frames
    finally:
        sleeper.kill()
        sleeper.wait()
    assert StackCollector(pids=[sleeper.pid]).collect_data() == {}


CONFIG = """
collectors:
  stacks: {}
sinks:
  store: {type: postgresql}
pipelines:
  all: {from: [stacks], to: [store]}
"""


@pytest.mark.slow("waits for the age at which a job counts as hung")
def test_the_daemon_names_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    lens = RunningLens(tmp_path / "lens", CONFIG)
    with real_job(tmp_path, hang_at=150, workload="hung-job") as job:
        try:
            lens.start()
            wait_for(lambda: standing(job), 240, "the hang")

            def answer() -> dict[str, object] | None:
                hang: dict[str, object] = lens.get("/workloads/hung-job/diagnosis")["hang"]
                return hang if hang["verdict"] == "yes" else None

            hang = wait_for(answer, 240, "the verdict")
            assert hang["ranks"] == ["2"]
        finally:
            lens.end()
