"""The fixtures that come with lens-agent, used as a plugin's author uses them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from lens_core import (
    Answer,
    Batch,
    Collector,
    Context,
    Delivered,
    Detection,
    Detector,
    LogFormat,
    LogLine,
    Measurement,
    NoSettings,
    Origin,
    Sink,
    StepMetrics,
)
from lens_core.testing import (
    FakeClock,
    HttpReceiver,
    LensFactory,
    RunningLens,
    detections,
    evidence,
    host_with,
    read_line,
    until,
)
from tests.durations import Stopwatch


class Zeta(Detector):
    """A trainer that only these tests know."""

    name = "zeta"
    modules = ("zeta_trainer",)
    environment = ("ZETA_HOME",)
    formats = (
        LogFormat(
            name="step",
            words=("zeta",),
            head=r"zeta step (?P<iteration>\d+):",
            layout="commas",
            example="zeta step 3: loss=0.5",
        ),
    )


class Counting(Collector):
    """One number."""

    name = "counting"
    interval_seconds = 0.05

    async def collect(self) -> list[Measurement]:
        return [Measurement(origin=Origin(pod_name="p"), name="counting.now", value=1.0)]


class Slow(Sink):
    """Takes everything."""

    name = "slow"

    async def send(self, batch: Batch) -> Answer:
        return Delivered()


async def test_a_pipeline_runs_with_classes_of_the_test(lens: LensFactory) -> None:
    running = await lens(Zeta, Counting, config={"collectors": {"counting": {}}})
    line = LogLine(origin=Origin(workload_uid="job"), text="zeta step 3: loss=0.5", event_time=1.7e9)
    await running.send([line])
    (row, *_) = await running.wait_for_records(1)
    assert isinstance(row, StepMetrics)
    assert (row.row_step, row.values) == (3, {"lm_loss": 0.5, "current_iteration": 3.0})
    (found, *_) = await running.wait_for_records(1, Detection)
    assert isinstance(found, Detection)
    assert found.framework == "zeta"
    assert len(await running.wait_for_records(2, Measurement)) >= 2
    plugins = {plugin["name"]: plugin["state"] for plugin in (await running.get_json("/status"))["plugins"]}
    assert plugins["zeta"] == plugins["megatron"] == "loaded"


async def test_two_can_run_at_one_time(lens: LensFactory) -> None:
    first, second = await lens(), await lens(Slow, config={"sinks": {"slow": {}}})
    assert first.url != second.url
    await first.send([StepMetrics(origin=Origin(pod_name="p"), data_source="x", row_step=1, values={"a": 1.0})])
    await first.wait_for_records(1)
    assert second.records == []


async def test_a_wrong_configuration_is_said(lens: LensFactory) -> None:
    with pytest.raises(Exception, match="unknown section pipes"):
        await lens(config={"pipes": {}})


async def test_the_store_answers_queries(lens_store: RunningLens) -> None:
    answer = await lens_store.post(
        "/wandb/logs",
        {"workload_uid": "job", "run_id": "r", "logs": [{"step": 1, "timestamp": 1.7e9, "data": {"loss": 0.5}}]},
    )
    assert answer.status_code == 200
    await lens_store.wait_for_records(1)

    async def points() -> int:
        return len((await lens_store.get_json("/workloads/job/metrics/data"))["data"])

    ends = time.monotonic() + 240
    while await points() == 0:
        assert time.monotonic() < ends, "the row is not stored"
    assert (await lens_store.get_json("/workloads/job/metrics/sources"))["total_count"] == 1


async def test_the_server_has_an_answer_for_each_path(lens_server: HttpReceiver) -> None:
    lens_server.answers(b'"any"')
    lens_server.answers(b'"login"', "/login")
    lens_server.answers(b'"gone"', "/old", status=410)
    async with httpx.AsyncClient() as client:
        found = [await client.get(f"{lens_server.url}{path}") for path in ("/login?user=me", "/rows", "/old")]
    assert [(one.status_code, one.json()) for one in found] == [(200, "login"), (200, "any"), (410, "gone")]


async def test_the_server_follows_its_script(lens_server: HttpReceiver) -> None:
    lens_server.will(503, 202)
    lens_server.answers(b'{"fine": true}')
    async with httpx.AsyncClient(timeout=240) as client:
        answers = [await client.post(lens_server.url, content=b"x") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [503, 202, 200]
    assert answers[0].headers["Retry-After"] == "0"
    assert answers[2].json() == {"fine": True}
    assert len(lens_server.received) == 2


def test_the_clock_stands_still(lens_clock: FakeClock) -> None:
    before = time.time()
    monotonic = time.monotonic()
    lens_clock.advance(3600)
    assert time.time() == before + 3600
    assert time.time_ns() == int((before + 3600) * 1e9)
    assert time.monotonic() - monotonic < 3600


def test_a_context_has_its_folder(lens_context: Callable[[str], Context]) -> None:
    context = lens_context("acme")
    assert context.name == "acme"
    assert context.data_dir.is_dir()


def test_lines_and_evidence() -> None:
    (reading,) = read_line(Zeta, "zeta step 3: loss=0.5")
    assert (reading.framework, reading.iteration, reading.values) == ("zeta", 3, {"lm_loss": 0.5})
    assert read_line(Zeta, "nothing of anybody") == []
    found = detections(Zeta, evidence(modules={"zeta_trainer": "1.0"}, environment={"ZETA_HOME": "/z"}))
    assert {opinion.method: opinion.confidence for opinion in found} == {"import_detection": 0.9, "env_vars": 0.8}


def test_a_given_class_takes_the_place_of_the_installed_one() -> None:
    class Jsonl(Slow):
        """In its place."""

        name = "jsonl"
        Settings = NoSettings

    assert host_with(Jsonl).sink("jsonl") is Jsonl


async def test_waiting_says_for_what() -> None:
    with pytest.raises(AssertionError, match="still not: pigs fly"):
        await until(lambda: False, "pigs fly", seconds=0.01)


def test_pytest_starts_without_importing_lens(tmp_path: Path) -> None:
    """The fixtures are there in every environment with lens-agent, and cost those who do not use them nothing."""
    (tmp_path / "test_it.py").write_text("import sys\ndef test_it():\n    assert 'lens_core' not in sys.modules\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout
    listed = subprocess.run([*command[:3], "--fixtures", "test_it.py"], cwd=tmp_path, capture_output=True, text=True)
    for name in ("lens", "lens_store", "lens_server", "lens_clock", "lens_context", "lens_plugins_dir"):
        assert f"\n{name} " in listed.stdout, name


async def test_a_collector_that_is_always_about_to_answer_does_not_hinder_the_end(lens: LensFactory) -> None:
    """Its time limit may swallow the cancellation; see asyncio.wait_for before Python 3.12."""
    running = await lens(Counting, config={"collectors": {"counting": {"interval_seconds": 0.001}}})
    await running.wait_for_records(2, Measurement)
    watch = Stopwatch()
    await running.stop()
    assert watch.seconds() < 10
