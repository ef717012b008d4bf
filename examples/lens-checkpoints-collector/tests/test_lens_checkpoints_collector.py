"""The collector on real folders, with a clock that stands still, and through the contract checks."""

from __future__ import annotations

import os
from pathlib import Path

from lens_checkpoints_collector import Checkpoints, CheckpointsSettings

from lens_core import Measurement
from lens_core.testing import FakeClock, LensFactory, check_collector, make_context


def make(folder: Path, tmp_path: Path) -> Checkpoints:
    settings = CheckpointsSettings(folder=str(folder), pattern="step_*", workload_uid="job")
    return Checkpoints(settings, make_context("checkpoints", tmp_path))


def write(folder: Path, name: str, size: int, at: float) -> None:
    (folder / name).mkdir()
    (folder / name / "model.bin").write_bytes(b"x" * size)
    os.utime(folder / name, (at, at))


async def values(collector: Checkpoints) -> dict[str, float | None]:
    return {record.name: record.value for record in await collector.collect() if isinstance(record, Measurement)}


async def test_the_collector_keeps_the_contract(tmp_path: Path) -> None:
    await check_collector(make(tmp_path, tmp_path), failing=make(tmp_path / "nowhere", tmp_path))


async def test_the_newest_is_measured(tmp_path: Path, lens_clock: FakeClock) -> None:
    write(tmp_path, "step_100", 10, lens_clock.now - 600)
    write(tmp_path, "step_200", 30, lens_clock.now - 60)
    (tmp_path / "notes.txt").write_text("no checkpoint")
    collector = make(tmp_path, tmp_path)
    expected = {"checkpoints.count": 2.0, "checkpoints.newest.age": 60.0, "checkpoints.newest.size": 30.0}
    assert await values(collector) == expected
    lens_clock.advance(30)
    assert (await values(collector))["checkpoints.newest.age"] == 90.0


async def test_no_checkpoint_is_no_data(tmp_path: Path) -> None:
    expected = {"checkpoints.count": 0.0, "checkpoints.newest.age": None, "checkpoints.newest.size": None}
    assert await values(make(tmp_path, tmp_path)) == expected


async def test_it_runs_in_a_daemon(tmp_path: Path, lens: LensFactory) -> None:
    running = await lens(Checkpoints, config={"collectors": {"checkpoints": {"folder": str(tmp_path)}}})
    records = await running.wait_for_records(3, Measurement)
    assert {record.name for record in records if isinstance(record, Measurement)} == {
        "checkpoints.count",
        "checkpoints.newest.age",
        "checkpoints.newest.size",
    }
