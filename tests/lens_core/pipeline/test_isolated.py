"""Sinks and sources with `isolate: true`: the same promise as in the daemon, whatever happens to their processes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lens_core import Origin, Secret, Sink, StepMetrics
from lens_core.config.problems import InvalidConfiguration
from lens_core.pipeline import isolated as isolated_module
from lens_core.pipeline.isolated import IsolatedSink
from lens_core.testing import SINK_CHECKS, LensFactory, RunningLens, SinkHarness, make_context, until
from lens_core.testing.sinks import SinkCheck
from tests.isolated_plugins import ApartSettings, ApartSink, ApartSource


def row(step: int, **values: float) -> StepMetrics:
    return StepMetrics(
        origin=Origin(workload_uid="w"), data_source="wandb", run_id="r", row_step=step, values=values or {"loss": 1.0}
    )


def apart(folder: Path, **more: Any) -> dict[str, Any]:
    settings = {"type": "apart_sink", "isolate": True, "folder": str(folder), "key": "s3cret-of-apart", **more}
    return {"sinks": {"apart": settings}, "delivery": {"retry_base_seconds": 0.01, "retry_cap_seconds": 0.05}}


def stored(folder: Path) -> list[dict[str, Any]]:
    file = folder / "stored"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def steps(folder: Path) -> list[int]:
    return [step for batch in stored(folder) for step in batch["steps"]]


async def sink_status(running: RunningLens) -> dict[str, Any]:
    status = await running.get_json("/status")
    return next(sink for pipeline in status["pipelines"] for sink in pipeline["sinks"] if sink["name"] == "apart")


async def process_status(running: RunningLens) -> dict[str, Any]:
    (process,) = (await running.get_json("/status"))["processes"]
    found: dict[str, Any] = process
    return found


async def exposed(running: RunningLens) -> str:
    async with httpx.AsyncClient(timeout=30) as client:
        return (await client.get(f"{running.url}/metrics")).text


async def test_a_batch_is_stored_by_another_process(lens: LensFactory, tmp_path: Path) -> None:
    running = await lens(ApartSink, config=apart(tmp_path))
    await running.send([row(1), row(2), row(3)])
    await until(lambda: steps(tmp_path) == [1, 2, 3], "the rows are stored")
    process = await process_status(running)
    assert process["pid"] == stored(tmp_path)[0]["pid"] != os.getpid()
    assert process["memory_bytes"] > 1_000_000
    metrics = await exposed(running)
    assert 'apart_batches_total{component="apart"} 1.0' in metrics
    assert 'apart_rows{component="apart"} 3.0' in metrics
    assert 'lens_component_memory_bytes{component="apart"}' in metrics
    assert (await running.get_json("/status"))["problems"] == {"apart": "the licence ends tomorrow"}
    await running.send([row(4)])
    await until(lambda: steps(tmp_path) == [1, 2, 3, 4], "the row is stored")
    assert 'apart_batches_total{component="apart"} 2.0' in await exposed(running)
    pid = process["pid"]
    await running.stop()
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ("die", "its process ended with code 9"),
        ("exit", "called sys.exit(3)"),
        ("raise", "ValueError: it broke with ***"),
        ("retry", "later"),
        ("nonsense", "it must be Delivered, Retry, Rejected or Poisoned"),
        ("sleep", "no answer within"),
    ],
)
async def test_no_trouble_of_the_process_loses_or_doubles_anything(
    lens: LensFactory, tmp_path: Path, trouble: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = {"send_timeout_seconds": 2.0, "retry_base_seconds": 0.01, "retry_cap_seconds": 0.05}
    running = await lens(ApartSink, config=apart(tmp_path, delivery=delivery))
    (tmp_path / trouble).touch()
    await running.send([row(step) for step in range(20)])
    await until(lambda: steps(tmp_path) == [*range(20)], "the rows are stored", seconds=60)
    status = await sink_status(running)
    assert error in status["last_error"]
    assert "s3cret" not in json.dumps(await running.get_json("/status"))
    starts = (tmp_path / "starts").read_text().splitlines()
    assert len(starts) == (2 if trouble in ("die", "sleep") else 1)
    assert (await process_status(running))["restarts"] == len(starts) - 1
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_refused_records_keep_their_places(lens: LensFactory, tmp_path: Path) -> None:
    running = await lens(ApartSink, config=apart(tmp_path))
    await running.send([row(step, odd=1.0) for step in range(10)])
    await until(lambda: len(steps(tmp_path)) >= 5, "the rows are stored")
    await running.send([row(step, loss=-1.0 if step == 13 else 1.0) for step in range(10, 18)])
    await until(lambda: 17 in steps(tmp_path), "the others are stored")
    assert sorted(steps(tmp_path)) == [0, 2, 4, 6, 8, *(step for step in range(10, 18) if step != 13)]
    assert (await sink_status(running))["dead_letters"] == 6


async def test_a_killed_process_is_replaced(lens: LensFactory, tmp_path: Path) -> None:
    running = await lens(ApartSink, config=apart(tmp_path))
    os.kill((await process_status(running))["pid"], signal.SIGKILL)
    await running.send([row(1)])
    await until(lambda: steps(tmp_path) == [1], "the row is stored")
    assert (await process_status(running))["restarts"] == 1


async def test_a_source_in_a_process_of_its_own(lens: LensFactory, tmp_path: Path) -> None:
    settings = {"type": "apart_source", "isolate": True, "folder": str(tmp_path)}
    running = await lens(ApartSource, config={"sources": {"apart": settings}})
    async with httpx.AsyncClient(timeout=30) as client:
        url = f"{running.url}/api/v1/apart?job=j"
        answer = await client.post(url, json={"loss": 0.5}, headers={"x-odd": "yes"})
        assert (answer.status_code, answer.json()["header"]) == (202, "yes")
        assert answer.json()["pid"] != os.getpid()
        bad = await client.post(url, content=b"[")
        assert (bad.status_code, "not a row" in bad.text) == (400, True)
        (tmp_path / "die").touch()
        died = await client.post(url, json={"loss": 0.25})
        assert died.status_code == 503, died.text
        again = await client.post(url, json={"loss": 0.25})
        assert again.status_code == 202, again.text
    rows = await running.wait_for_records(2)
    assert [found.values["loss"] for found in rows] == [0.5, 0.25]
    (source,) = [one for one in (await running.get_json("/status"))["sources"] if one["name"] == "apart"]
    assert (source["received"], source["accepted"], source["rejected"]["odd"]) == (4, 2, 2)


async def test_a_source_whose_loop_does_not_turn_is_replaced(
    lens: LensFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_module, "PING_SECONDS", 0.1)
    monkeypatch.setattr(isolated_module, "HUNG_SECONDS", 0.5)
    monkeypatch.setattr("lens_core.pipeline.isolation_channel.OBEY_SECONDS", 0.2)
    settings = {"type": "apart_source", "isolate": True, "folder": str(tmp_path)}
    running = await lens(ApartSource, config={"sources": {"apart": settings}})
    pid = (await process_status(running))["pid"]
    os.kill(pid, signal.SIGSTOP)
    while not (await process_status(running))["restarts"]:
        await asyncio.sleep(0.05)
    async with httpx.AsyncClient(timeout=30) as client:
        while (answer := await client.post(f"{running.url}/api/v1/apart?job=j", json={"loss": 1})).status_code != 202:
            assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.05)
    assert not psutil.pid_exists(pid)


async def test_what_answers_from_memory_cannot_be_isolated(lens: LensFactory, tmp_path: Path) -> None:
    for kind in ("postgresql", "prometheus"):
        more = {"mode": "scrape"} if kind == "prometheus" else {}
        with pytest.raises(InvalidConfiguration, match=f"isolate: {kind} cannot have a process of its own"):
            await lens(config={"sinks": {"x": {"type": kind, "isolate": True, **more}}})


class ApartHarness(SinkHarness):
    """The isolated sink in the contract checks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make_sink(self) -> Sink:
        settings = ApartSettings(folder=self._folder, key=Secret("s3cret"))
        return IsolatedSink(ApartSink(settings, make_context("apart", self._folder)), "lens-apart 1.0")

    async def stored(self) -> Counter[int]:
        return Counter(steps(self._folder))


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
async def test_contract(check: SinkCheck, tmp_path: Path) -> None:
    await check(ApartHarness(tmp_path), tmp_path / "road")
