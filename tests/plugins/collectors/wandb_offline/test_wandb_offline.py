"""Logs of the real wandb, four versions of it, read by us and by the reader that tests the hook."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.collectors.wandb_offline import WandbOffline, WandbOfflineSettings
from lens_plugins.collectors.wandb_offline.messages import BLOCK, HEADER, body_of, read_history, read_records

from lens_core import Event, Evidence, LensError, Measurement, Record, StepMetrics
from lens_core.plugin_api.protobuf import WireError
from lens_core.testing import make_context, until
from lens_core.testing.collectors import check_collector
from tests.forked import run_lens
from tests.plugins.sources.wandb_hook.environments import NEWEST, WANDB_VERSIONS, environment
from tests.plugins.sources.wandb_hook.wandb_file import by_run, points

every_version = pytest.mark.parametrize("version", list(WANDB_VERSIONS))

SCRIPT = """
    import sys
    import numpy as np
    import wandb
    run = wandb.init(project="air-gapped", entity="acme", id="r1", name="first run", tags=["good"],
                     config={"lr": 0.1, "model": {"width": 8}}, notes="words", group="sweep", job_type="train")
    run.config.update({"late": [1, None], "api_key": "hunter2"})
    run.define_metric("eval/*", step_metric="epoch")
    for step in range(300):
        run.log({"loss": 1 / (step + 1), "ok": step % 2 == 0, "words": "text", "nested": {"deep": {"x": step}}})
    run.log({"bad": float("nan"), "worse": float("-inf"), "array": np.float32(2.5)})
    run.log({"eval/acc": 0.5, "epoch": 7})
    run.log({"train/global_step": 41, "train/loss": 2.0})
    run.log({"late": 1.0}, step=1000)
    run.log({"histogram": wandb.Histogram([1, 2, 3])})
    run.finish(exit_code=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


def collector_of(logs: Path, **more: Any) -> WandbOffline:
    chosen = WandbOfflineSettings(paths=[str(logs)], **more)
    return WandbOffline(chosen, make_context("offline", logs.parent / "state"))


async def everything(collector: WandbOffline) -> list[Record]:
    records: list[Record] = []
    while True:
        records += await collector.collect()
        await collector.stored()
        if not collector.more:
            return records


async def read_all(logs: Path, **more: Any) -> list[Record]:
    collector = collector_of(logs, **more)
    await collector.start()
    return await everything(collector)


def rows_of(records: list[Record]) -> list[StepMetrics]:
    return [record for record in records if isinstance(record, StepMetrics)]


def as_points(records: list[Record]) -> set[tuple[int, str, Any]]:
    return {(row.row_step, name, _wire(value)) for row in rows_of(records) for name, value in row.values.items()}


def _wire(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def offline_run(version: str, folder: Path, script: str = SCRIPT, **variables: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    environment(f"wandb-{version}", WANDB_VERSIONS[version]).run(script, folder, {"LENS_RUN": "0", **variables})
    (path,) = by_run(folder).values()
    return path


@pytest.fixture(scope="module")
def newest_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of the newest wandb."""
    return offline_run(NEWEST, tmp_path_factory.mktemp("wandb") / "w")


@every_version
async def test_every_number_that_wandb_wrote(version: str, tmp_path: Path) -> None:
    path = offline_run(version, tmp_path / "w")
    records = await read_all(tmp_path / "w")
    assert as_points(records) == set(points(path))
    rows = rows_of(records)
    assert {row.run_id for row in rows} == {"r1"}
    assert len({row.session for row in rows}) == 1
    assert {row.data_source for row in rows} == {"wandb"}
    assert [row.sequence for row in rows] == sorted(row.sequence for row in rows)
    assert all(row.event_time and row.event_time > 1.7e9 for row in rows)
    by_name = {name: row for row in rows for name in row.values}
    assert by_name["train/loss"].iteration == 41
    assert by_name["eval/acc"].iteration == 7
    assert by_name["loss"].iteration is None
    assert by_name["late"].row_step == 1000
    assert not any(name.startswith(("histogram", "words", "_")) for name in by_name)


@every_version
async def test_start_end_and_evidence(version: str, tmp_path: Path) -> None:
    offline_run(version, tmp_path / "w", SCRIPT.replace("int(sys.argv[1]) if len(sys.argv) > 1 else 0", "3"))
    records = await read_all(tmp_path / "w", workload="{entity}/{project}/{run}")
    events = [record for record in records if isinstance(record, Event)]
    assert [event.type for event in events] == ["training_started", "training_failed"]
    assert events[1].details == {"exit_code": 3}
    (evidence,) = [record for record in records if isinstance(record, Evidence)]
    facts = evidence.facts["wandb"]
    expected = {"project": "air-gapped", "tags": ["good"], "notes": "words", "group": "sweep", "job_type": "train"}
    assert {name: facts[name] for name in expected} == expected
    config = {"lr": 0.1, "model": {"width": 8}, "late": [1, None], "api_key": "hunter2"}
    assert facts["config"] == config, "the ingest gate hides secrets"
    assert {row.origin.workload_uid for row in rows_of(records)} == {"acme/air-gapped/r1"}


async def test_system_metrics_on_request(tmp_path: Path) -> None:
    script = """
        import time, wandb
        run = wandb.init(project="p", settings=wandb.Settings(x_stats_sampling_interval=0.2))
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            run.log({"a": 1.0})
            time.sleep(0.1)
        run.finish()
    """
    offline_run(NEWEST, tmp_path / "w", script)
    assert not [record for record in await read_all(tmp_path / "w") if isinstance(record, Measurement)]
    collector = WandbOffline(
        WandbOfflineSettings(paths=[str(tmp_path / "w")], system_metrics=True), make_context("o", tmp_path / "other")
    )
    await collector.start()
    names = {record.name for record in await everything(collector) if isinstance(record, Measurement)}
    assert any(name.startswith("wandb.system.") for name in names)


async def test_following_a_log_cut_anywhere(newest_log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "offline-run-x-r1"
    folder.mkdir(parents=True)
    content = newest_log.read_bytes()
    growing = folder / newest_log.name
    growing.touch()
    collector = collector_of(tmp_path / "logs")
    await collector.start()
    rng = random.Random(3)
    records: list[Record] = []
    place = 0
    while place < len(content):
        piece = rng.choice((1, 5, 100, 3000, 20_000))
        with growing.open("ab") as file:
            file.write(content[place : place + piece])
        place += piece
        records += await everything(collector)
    expected = points(newest_log)
    assert as_points(records) == set(expected)
    assert sum(len(row.values) for row in rows_of(records)) == len(expected), "a point came twice"


@pytest.mark.parametrize("version", ["0.16.6", NEWEST])
async def test_after_a_crash_there_is_all_that_was_written(version: str, tmp_path: Path) -> None:
    script = """
        import wandb
        run = wandb.init(project="p", id="r1")
        for step in range(3000):
            run.log({"loss": 1 / (step + 1), "lr": 0.1})
        print("logged", flush=True)
        import time
        time.sleep(600)
    """
    folder = tmp_path / "w"
    folder.mkdir()
    place = environment(f"wandb-{version}", WANDB_VERSIONS[version])
    process = place.start(script, folder, {"LENS_RUN": "0"})
    try:
        assert process.stdout is not None
        while (line := process.stdout.readline()) and "logged" not in line:
            pass
        (path,) = by_run(folder).values()
        await until(lambda: path.stat().st_size > 3 * BLOCK, "some blocks of the log", seconds=240)
    finally:
        # wandb-core outlives it for a moment and holds its end of the pipes.
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    (path,) = by_run(folder).values()
    records = await read_all(folder)
    assert as_points(records) <= {(step, name, value) for step, name, value in points_of_loop(3000)}
    assert len(rows_of(records)) > 100
    assert not any(isinstance(record, Event) and record.type != "training_started" for record in records)


def points_of_loop(steps: int) -> Iterator[tuple[int, str, Any]]:
    for step in range(steps):
        yield step, "loss", 1 / (step + 1)
        yield step, "lr", 0.1


async def test_a_damaged_block_costs_its_own_records_only(newest_log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "offline-run-x-r1"
    folder.mkdir(parents=True)
    content = bytearray(newest_log.read_bytes())
    assert len(content) > 3 * BLOCK
    content[BLOCK + BLOCK // 2] ^= 0xFF
    (folder / newest_log.name).write_bytes(bytes(content))
    found = as_points(await read_all(tmp_path / "logs"))
    expected = set(points(newest_log))
    assert found < expected
    assert len(found) > len(expected) // 3
    assert (1000, "late", 1.0) in found


async def test_small_pieces_give_the_same(newest_log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "offline-run-x-r1"
    folder.mkdir(parents=True)
    (folder / newest_log.name).write_bytes(newest_log.read_bytes())
    records = await read_all(tmp_path / "logs", bytes_at_once=64 * 1024)
    assert as_points(records) == set(points(newest_log))


async def test_online_runs_are_read_on_request(newest_log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "run-20260101_000000-r1"
    folder.mkdir(parents=True)
    (folder / newest_log.name).write_bytes(newest_log.read_bytes())
    assert not await read_all(tmp_path / "logs")
    assert rows_of(await read_all(tmp_path / "logs", online=True))


async def test_a_file_that_is_no_log_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs" / "offline-run-x-r1"
    folder.mkdir(parents=True)
    (folder / "run-r1.wandb").write_bytes(b"something else entirely")
    assert not await read_all(tmp_path / "logs")
    assert "does not begin like a log of wandb" in caplog.text


async def test_the_contract_of_collectors(newest_log: Path, tmp_path: Path) -> None:
    await check_collector(collector_of(newest_log.parent.parent), failing=collector_of(tmp_path / "nowhere"))
    broken = collector_of(tmp_path / "nowhere")
    await broken.start()
    with pytest.raises(LensError, match="nowhere"):
        await broken.collect()


@given(st.binary(max_size=300), st.integers(0, 3 * BLOCK))
def test_garbage_is_never_fatal(data: bytes, start: int) -> None:
    framed = read_records(data, start, lambda record, end: None)
    assert start <= framed.end <= start + len(data) + BLOCK
    for read in (body_of, read_history):
        try:
            read(data)
        except WireError:
            continue


@given(st.lists(st.binary(max_size=3 * BLOCK), max_size=5), st.randoms())
def test_records_of_every_size_come_back(records: list[bytes], rng: random.Random) -> None:
    """Against a writer of the format, read in two pieces cut anywhere."""
    content = written(records)
    cut = rng.randint(len(HEADER), len(content))
    found: list[bytes] = []
    first = read_records(content[len(HEADER) : cut], len(HEADER), lambda record, end: found.append(record))
    assert first.damaged == 0
    read_records(content[first.end :], first.end, lambda record, end: found.append(record))
    assert found == records


def written(records: list[bytes]) -> bytes:
    import struct
    import zlib

    out = bytearray(HEADER)
    for record in records:
        place, first = 0, True
        while first or place < len(record):
            room = BLOCK - len(out) % BLOCK
            if room < 7:
                out += bytes(room)
                continue
            part = record[place : place + room - 7]
            place += len(part)
            kind = (1 if place == len(record) else 2) if first else (4 if place == len(record) else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
    return bytes(out)


async def test_through_lens_collect(newest_log: Path, tmp_path: Path) -> None:
    variables = {**os.environ, "WANDB_DIR": str(newest_log.parent.parent), "LENS_DATA_DIR": str(tmp_path / "d")}
    done = run_lens("collect", "wandb_offline", "--json", environ=variables)
    assert json.loads(done.stdout)["records"]["event"] == 2
