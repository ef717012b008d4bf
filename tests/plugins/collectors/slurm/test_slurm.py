"""Answers of a real Slurm on its jobs; tests/docs/test_slurm_page.py tests that jobs are seen."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from lens_plugins.collectors.slurm import Slurm, SlurmSettings, jobs_of

from lens_core import LensError, Pod
from lens_core.testing.hosts import make_context
from tests.end_to_end.running_lens import wait_for
from tests.plugins.collectors.slurm.running_slurm import RunningSlurm, is_missing, slurm_in

pytestmark = pytest.mark.skipif(bool(is_missing()), reason=is_missing() or "nothing is missing")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSlurm]:
    with slurm_in(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.mark.slow("waits for the turns of a real Slurm, to start jobs and to take their nodes back")
async def test_jobs_become_workloads_with_their_gpus(
    slurm: RunningSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.environ["SLURM_CONF"])
    job = slurm.submit("exec sleep 600", "--job-name=llama 7b", "--gres=gpu:2")
    array = slurm.submit("exec sleep 600", "--job-name=sweep", "--array=3", "--gres=gpu:1")
    for number in (job, array):
        wait_for(lambda number=number: slurm.states(number) == ["RUNNING"], 240, "the job to run")  # type: ignore[misc]
    collector = Slurm(SlurmSettings(), make_context("slurm", tmp_path))
    pods = {pod.uid: pod for pod in await collector.collect() if isinstance(pod, Pod)}
    node = socket.gethostname()
    assert set(pods) == {f"slurm-{job}/{node}", f"slurm-{array}_3/{node}"}
    found = pods[f"slurm-{job}/{node}"]
    assert [(workload.uid, workload.name) for workload in found.workloads] == [(f"slurm-{job}", "llama 7b")]
    assert (found.node, found.namespace, found.labels) == (node, "train", {"user": "root"})
    held = [device.id for pod in pods.values() for device in pod.devices]
    assert (len(found.devices), sorted(held)) == (2, ["0", "1", "2"])
    assert len(await collector.collect()) == 2  # not stored yet
    await collector.stored()
    assert await collector.collect() == []
    slurm.run("scancel", job, array)
    shown = ("scontrol", "--oneliner", "--details", "show", "jobs")
    wait_for(lambda: [*jobs_of(slurm.run(*shown))] == [], 240, "both jobs to give their node back")
    gone = [pod for pod in await collector.collect() if isinstance(pod, Pod)]
    assert {(pod.uid, pod.phase) for pod in gone} == {(uid, "Deleted") for uid in pods}
    await collector.stored()
    assert await collector.collect() == []


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/nowhere", "/nowhere cannot be run: No such file"),
        ("echo lost >&2; exit 3", "scontrol ended with 3: lost"),
        ("exec sleep 600", "no answer in 0.2 s"),
    ],
)
async def test_why_slurm_gives_no_answer(tmp_path: Path, program: str, reason: str) -> None:
    if not program.startswith("/"):
        script = tmp_path / "scontrol"
        script.write_text(f"#!/bin/sh\n{program}\n")
        script.chmod(0o755)
        program = str(script)
    collector = Slurm(SlurmSettings(scontrol=program, command_timeout_seconds=0.2), make_context("slurm", tmp_path))
    with pytest.raises(LensError, match=reason):
        await collector.check()
