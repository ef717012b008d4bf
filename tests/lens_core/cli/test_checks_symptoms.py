"""One check of `lens doctor` for each symptom, each against a daemon that has it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from lens_core import Answer, Batch, Collector, Delivered, Measurement, Sink
from lens_core.cli import checks_symptoms as checks
from lens_core.cli.checks import Finding
from lens_core.testing import HttpReceiver, LensFactory, RunningLens
from tests.plugins.sources.remote_write.wire import packed, request, series


class Nothing(Collector):
    """Finds nothing."""

    name = "finds_nothing"

    async def collect(self) -> list[Measurement]:
        return []


class RowsOnly(Sink):
    """Takes rows and nothing else."""

    name = "rows_only"

    async def send(self, batch: Batch) -> Answer:
        return Delivered()


async def send_series(running: RunningLens, name: str, value: float, *, status: int = 204) -> None:
    """One sample by remote write, answered with this status."""
    body = packed(request(series({"__name__": name, "node": "n"}, (value, 1_700_000_000_000))))
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
    async with httpx.AsyncClient(timeout=240) as client:
        answer = await client.post(f"{running.url}/api/v1/write", content=body, headers=headers)
    assert answer.status_code == status, answer.text


async def asked(running: RunningLens, check: Any, *arguments: Any) -> list[Finding]:
    """The findings of a check, in a thread: it asks with blocking requests as the command does."""
    return await asyncio.to_thread(lambda: list(check(running.url, {}, *arguments)))


@pytest.mark.parametrize(
    ("environ", "states"),
    [
        ({}, []),
        ({"PRIMUS_LENS_WANDB_API_REPORTING": "False"}, ["failed"]),
        ({"WANDB_MODE": "disabled"}, ["ok"]),
    ],
)
def test_reporting_that_is_switched_off(environ: Mapping[str, str], states: list[str]) -> None:
    assert [found.state for found in checks.reporting(environ)] == states


async def test_a_master_that_is_not_there() -> None:
    assert list(checks.master({})) == []
    async with HttpReceiver() as there:
        address = there.url.removeprefix("http://")
        (found,) = await asyncio.to_thread(lambda: list(checks.master({"DLROVER_MASTER_ADDR": address})))
    assert found.state == "ok"
    for gone in (address, "master", "master:x"):
        (found,) = checks.master({"DLROVER_MASTER_ADDR": gone})
        assert (found.state, found.text.partition(" ")[0]) == ("warning", gone)


async def test_a_pod_that_nobody_knows(lens: LensFactory) -> None:
    running = await lens()
    (found,) = await asked(running, checks.identity, {"POD_NAME": "train-0"})
    assert found.state == "warning"
    assert "does not know the pod train-0" in found.text
    (found,) = await asked(running, checks.identity, {})
    assert (found.state, "stored under the host's name" in found.text) == ("ok", True)
    (found,) = await asked(running, checks.identity, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert found.state == "warning"
    (found,) = await asked(running, checks.identity, {"WORKLOAD_UID": "job"})
    assert found.state == "ok"
    (found,) = await asked(running, checks.identity, {"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "llama"})
    assert (found.state, "belong to the workload slurm-17" in found.text) == ("ok", True)
    await put_pod(running)
    (found,) = await asked(running, checks.identity, {"POD_NAME": "train-0"})
    assert (found.state, found.text) == ("ok", "the pod train-0 belongs to llama")


async def put_pod(running: RunningLens, devices: list[dict[str, str]] | None = None) -> None:
    pod = {
        "uid": "u",
        "name": "train-0",
        "namespace": "ml",
        "node": "n",
        "phase": "Running",
        "workloads": [{"uid": "w", "name": "llama", "kind": "Job", "namespace": "ml"}],
        "devices": devices or [],
    }
    async with httpx.AsyncClient(timeout=240) as client:
        answer = await client.put(f"{running.url}/api/v1/directory", json={"pods": [pod]})
    assert answer.is_success, answer.text


async def test_what_stays_silent_and_what_is_filtered(lens: LensFactory) -> None:
    running = await lens(
        Nothing,
        RowsOnly,
        config={
            "collectors": {"finds_nothing": {}},
            "sinks": {"rows_only": {}},
            "pipelines": {"rows": {"to": ["rows_only"]}},
        },
    )
    await send_series(running, "up", 1.0, status=503)
    found = {finding.step: finding for finding in checks.silent(await running.get_json("/status"))}
    assert found["collector finds_nothing"].state == "warning"
    assert found["source logs"].state == "ok"
    assert "docs/logs.md" in found["source logs"].text
    assert found["source remote_write"].state == "warning"
    assert "no sink takes what it brings (SeriesBatch)" in found["source remote_write"].text


async def test_a_directory_without_pods_or_devices(lens: LensFactory) -> None:
    running = await lens()
    wanting = {"sources": [{"type": "remote_write", "received": 5}]}
    (found,) = await asked(running, checks.directory, wanting)
    assert "knows no pod, so remote_write get no workload" in found.text
    (found,) = await asked(running, checks.directory, {"sources": [{"type": "logs", "received": 5}]})
    assert found.state == "ok", "a laptop has no pods"
    await put_pod(running)
    (found,) = await asked(running, checks.directory, wanting)
    assert "no device" in found.text
    await put_pod(running, [{"kind": "gpu_id", "id": "0"}])
    (found,) = await asked(running, checks.directory, wanting)
    assert found.state == "ok"
    assert await asked(running, checks.directory, {"sources": [{"type": "logs", "received": 0}]}) == []


async def test_negative_samples_are_named(lens: LensFactory) -> None:
    running = await lens()
    await send_series(running, "gpu_power", -1.0)
    form, found = await asked(running, checks.drops, await running.get_json("/status"))
    assert (form.state, found.state) == ("ok", "warning")
    assert "gpu_power" in found.text


async def test_the_form_of_remote_write_is_told(lens: LensFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENS_REMOTE_WRITE_FORM", "interpreted")
    running = await lens()
    (found,) = await asked(running, checks.drops, await running.get_json("/status"))
    assert "runs interpreted" in found.text


def test_a_slow_store_is_said_only_when_it_answered() -> None:
    answered, away = Finding("store", "ok", "answers"), Finding("store", "failed", "503")
    assert [found.state for found in checks.latency([answered], 3.0)] == ["warning"]
    assert list(checks.latency([answered], 0.1)) == []
    assert list(checks.latency([away], 30.0)) == []
