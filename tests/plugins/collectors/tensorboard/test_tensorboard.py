from __future__ import annotations

import asyncio
import json
import math
import os
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lens_plugins.collectors.tensorboard import TensorBoard, TensorBoardSettings
from lens_plugins.collectors.tensorboard.events import EventReader, crc32c, masked, read_tensor
from lens_plugins.collectors.tensorboard.rows import event_files

from lens_core import LensError, StepMetrics
from lens_core.plugin_api.protobuf import WireError
from lens_core.testing import make_context
from lens_core.testing.collectors import check_collector
from tests.forked import run_lens
from tests.plugins.sources.wandb_hook.environments import TORCH, environment


def collector_of(logs: Path, **more: Any) -> TensorBoard:
    chosen = TensorBoardSettings(paths=[str(logs)], **more)
    return TensorBoard(chosen, make_context("tb", logs.parent / "state"))


async def everything(collector: TensorBoard, *, remember: bool = True) -> list[StepMetrics]:
    """All rows that there are now."""
    rows: list[StepMetrics] = []
    while True:
        rows += [row for row in await collector.collect() if isinstance(row, StepMetrics)]
        if remember:
            await collector.stored()
        if not collector.more:
            return rows


async def read_all(logs: Path, **more: Any) -> list[StepMetrics]:
    collector = collector_of(logs, **more)
    await collector.start()
    return await everything(collector)


def by_step(rows: list[StepMetrics]) -> dict[tuple[str, int], dict[str, float]]:
    """Values by run and step, the rows of one key merged as the store does."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: row.sequence):
        found.setdefault((row.run_id, row.row_step), {}).update(row.values)
    return found


def x_writer(folder: Path) -> Any:
    from tensorboardX import SummaryWriter

    return SummaryWriter(str(folder))


def tb_writer(folder: Path) -> Any:
    from tensorboard.summary import Writer

    return Writer(str(folder))


def tensorboard_says(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the values that TensorBoard itself reads."""
    from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, TENSORS: 0})
    reader.Reload()
    found = {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    for tag in reader.Tags()["tensors"]:
        if reader.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            found[tag] = [(event.step, float(make_ndarray(event.tensor_proto))) for event in reader.Tensors(tag)]
    return found


def as_series(rows: list[StepMetrics]) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.values.items():
            found.setdefault(name, []).append((row.row_step, value))
    return found


def write_scalars(writer: Any, steps: range) -> None:
    for step in steps:
        writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_scalar("lr", 1e-4, step)


@pytest.mark.parametrize("make", [x_writer, tb_writer])
async def test_every_scalar_that_tensorboard_reads(make: Callable[[Path], Any], tmp_path: Path) -> None:
    writer = make(tmp_path / "logs" / "run")
    write_scalars(writer, range(200))
    writer.add_scalar("negative/step", 3.0, -1)
    writer.close()
    rows = await read_all(tmp_path / "logs")
    assert as_series(rows) == tensorboard_says(tmp_path / "logs" / "run")
    assert {row.run_id for row in rows} == {"run"}
    assert {row.data_source for row in rows} == {"tensorflow"}
    assert len(rows) == 201


async def test_what_is_no_scalar_is_left_out(tmp_path: Path) -> None:
    writer = x_writer(tmp_path / "logs")
    writer.add_histogram("weights", np.arange(100.0), 1)
    writer.add_image("picture", np.zeros((3, 8, 8), dtype=np.uint8), 1)
    writer.add_text("words", "hello", 1)
    writer.add_scalar("loss", 0.5, 1)
    writer.add_scalar("odd", float("nan"), 2)
    writer.add_scalar("odd", float("inf"), 3)
    writer.close()
    rows = await read_all(tmp_path / "logs")
    assert [list(row.values) for row in rows] == [["loss"], ["odd"], ["odd"]]
    assert math.isnan(rows[1].values["odd"])
    assert math.isinf(rows[2].values["odd"])
    assert rows[0].run_id == "logs"


@pytest.mark.slow("imports torch from disk")
async def test_files_of_torch(tmp_path: Path) -> None:
    script = """
        import sys
        import torch
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter(sys.argv[1] if len(sys.argv) > 1 else "logs/run")
        for step in range(300):
            writer.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
            writer.add_scalar("new/style", step * 2.0, step, new_style=True)
            writer.add_scalar("double", step / 3, step, double_precision=True, new_style=True)
        writer.add_scalars("group", {"a": 1.0, "b": 2.0}, 5)
        writer.add_hparams({"lr": 0.1}, {"hparam/loss": 0.25})
        writer.close()
    """
    environment("torch-2.13.0", TORCH).run(script, tmp_path, {"LENS_RUN": "0"})
    found = by_step(await read_all(tmp_path / "logs"))
    for step in range(300):
        values = found["run", step]
        assert values["loss"] == pytest.approx(1 / (step + 1))
        assert values["new/style"] == step * 2
        assert values["double"] == pytest.approx(step / 3, rel=1e-6)
    assert found["run/group_a", 5] == {"group": 1.0}
    runs = {run for run, _ in found}
    assert any(run.startswith("run/") and found.get((run, 0), {}).get("hparam/loss") == 0.25 for run in runs)


@pytest.mark.parametrize(("make", "blank"), [(tb_writer, " "), (x_writer, "_")])
async def test_steps_and_samples_are_kept_apart(make: Callable[[Path], Any], blank: str, tmp_path: Path) -> None:
    """tensorboardX writes another character for a blank."""
    writer = make(tmp_path / "logs" / "run")
    for step in range(1, 11):
        writer.add_scalar("lm loss", 1 / step, step)
        writer.add_scalar("lm loss vs samples", 1 / step, step * 5)
    writer.close()
    found = by_step(await read_all(tmp_path / "logs"))
    assert found["run", 5] == {f"lm{blank}loss": pytest.approx(1 / 5)}
    assert found["run/samples", 5] == {f"lm{blank}loss{blank}vs{blank}samples": 1.0}
    assert found["run/samples", 50] == {f"lm{blank}loss{blank}vs{blank}samples": pytest.approx(1 / 10)}
    assert Counter(run for run, _ in found) == {"run": 10, "run/samples": 10}


async def test_a_file_is_followed_while_it_grows(tmp_path: Path) -> None:
    """Cut anywhere, every event comes once and in the end nothing is missing."""
    writer = x_writer(tmp_path / "whole")
    write_scalars(writer, range(100))
    writer.close()
    (whole,) = (tmp_path / "whole").iterdir()
    content = whole.read_bytes()
    logs = tmp_path / "logs"
    logs.mkdir()
    growing = logs / whole.name
    growing.touch()
    collector = collector_of(logs)
    await collector.start()
    rows: list[StepMetrics] = []
    rng = random.Random(5)
    place = 0
    while place < len(content):
        piece = rng.choice((1, 3, 11, 40, 200))
        with growing.open("ab") as file:
            file.write(content[place : place + piece])
        place += piece
        rows += await everything(collector)
    whole_rows = by_step(await read_all(tmp_path / "whole"))
    assert by_step(rows) == {("logs", step): values for (_, step), values in whole_rows.items()}
    assert sum(len(row.values) for row in rows) == 200


async def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", range(15))
    (file,) = logs.iterdir()
    content = file.read_bytes()
    os.truncate(file, len(content) * 2 // 3 + 5)
    assert [row.row_step for row in await read_all(logs)] == list(range(10))
    with file.open("r+b") as opened:
        opened.write(content)
    rows = await read_all(logs)
    assert [(row.row_step, *row.values) for row in rows[:2]] == [(9, "lr"), (10, "loss", "lr")]
    assert rows[-1].row_step == 14
    assert await read_all(logs) == []


async def test_what_was_not_stored_comes_again_as_it_was(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    writer = x_writer(logs)
    write_scalars(writer, range(10))
    writer.close()
    collector = collector_of(logs)
    await collector.start()
    first = await everything(collector, remember=False)
    assert await everything(collector) == first
    assert await everything(collector) == []


def copy_events(source: Path, target: Path, name: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    (file,) = source.iterdir()
    (target / name).write_bytes(file.read_bytes())


def written(folder: Path, steps: range) -> Path:
    writer = x_writer(folder)
    write_scalars(writer, steps)
    writer.close()
    return folder


async def test_a_restart_is_a_new_session(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "run"
    copy_events(written(tmp_path / "a", range(20)), logs, "events.out.tfevents.100.node.1.0")
    # The same pid in the restarted container, resumed from step 15.
    copy_events(written(tmp_path / "b", range(15, 30)), logs, "events.out.tfevents.200.node.1.0")
    rows = await read_all(tmp_path / "logs")
    sessions: dict[str, list[int]] = {row.session: [] for row in rows}
    for row in rows:
        sessions[row.session].append(row.row_step)
    assert list(sessions.values()) == [list(range(20)), list(range(15, 30))]


async def test_a_writer_that_reopens_is_the_same_session(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "run"
    copy_events(written(tmp_path / "a", range(20)), logs, "events.out.tfevents.100.node.7.0")
    copy_events(written(tmp_path / "b", range(20, 30)), logs, "events.out.tfevents.200.node.7.1")
    copy_events(written(tmp_path / "c", range(30, 40)), logs, "events.out.tfevents.300.node.8.0")
    rows = await read_all(tmp_path / "logs")
    sessions = [row.session for row in rows]
    assert len(set(sessions[:30])) == 1
    assert len(set(sessions)) == 2
    sequences = [row.sequence for row in rows[:30]]
    assert sequences == sorted(sequences)


async def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    copy_events(written(tmp_path / "a", range(20)), logs, "events.out.tfevents.100.node.1.0")
    collector = collector_of(logs)
    await collector.start()
    first = await everything(collector)
    copy_events(written(tmp_path / "b", range(3)), logs, "events.out.tfevents.100.node.1.0")
    second = await everything(collector)
    assert len(second) == 3
    assert first[0].session != second[0].session


async def test_a_damaged_frame_stops_that_file_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logs = tmp_path / "logs"
    copy_events(written(tmp_path / "a", range(50)), logs / "bad", "events.out.tfevents.100.node.1.0")
    copy_events(written(tmp_path / "b", range(5)), logs / "good", "events.out.tfevents.100.node.1.0")
    bad = logs / "bad" / "events.out.tfevents.100.node.1.0"
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 0xFF
    bad.write_bytes(bytes(content))
    collector = collector_of(logs)
    await collector.start()
    rows = await everything(collector) + await everything(collector)
    assert sum(row.run_id == "good" for row in rows) == 5
    assert 10 < sum(row.run_id == "bad" for row in rows) < 40
    assert sum("has a problem" in record.message for record in caplog.records) == 1


async def test_large_events_are_stepped_over(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    writer = x_writer(logs)
    writer.add_scalar("before", 1.0, 1)
    writer.add_image("noise", np.random.default_rng(1).integers(0, 255, (3, 300, 300), dtype=np.uint8), 1)
    writer.add_scalar("after", 2.0, 2)
    writer.close()
    rows = await read_all(logs, bytes_at_once=64 * 1024)
    assert [list(row.values) for row in rows] == [["before"], ["after"]]


async def test_pieces_are_small_and_nothing_is_lost_between_them(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    writer = x_writer(logs)
    write_scalars(writer, range(5000))
    writer.close()
    collector = collector_of(logs, bytes_at_once=64 * 1024)
    await collector.start()
    pieces = 0
    rows: list[StepMetrics] = []
    while True:
        found = await collector.collect()
        rows += [row for row in found if isinstance(row, StepMetrics)]
        await collector.stored()
        pieces += 1
        if not collector.more:
            break
    assert pieces > 3
    assert len(by_step(rows)) == 5000
    assert all(set(values) == {"loss", "lr"} for values in by_step(rows).values())


async def test_tags_can_be_chosen_and_workloads_named(tmp_path: Path) -> None:
    written(tmp_path / "logs" / "exp" / "1", range(3))
    rows = await read_all(tmp_path / "logs", tags=["lo*"], workload="{root}:{run}")
    assert {tuple(row.values) for row in rows} == {("loss",)}
    assert {row.origin.workload_uid for row in rows} == {"logs:exp/1"}


async def test_no_directory_is_a_failure(tmp_path: Path) -> None:
    collector = collector_of(tmp_path / "nowhere")
    await collector.start()
    with pytest.raises(LensError, match="nowhere"):
        await collector.collect()


async def test_the_contract_of_collectors(tmp_path: Path) -> None:
    written(tmp_path / "logs", range(3))
    await check_collector(collector_of(tmp_path / "logs"), failing=collector_of(tmp_path / "nowhere"))


def test_links_in_circles_end(tmp_path: Path) -> None:
    written(tmp_path / "logs" / "run", range(1))
    (tmp_path / "logs" / "run" / "again").symlink_to(tmp_path / "logs")
    assert len(event_files(tmp_path / "logs", 100)) == 1


def test_checksums() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert masked(crc32c(struct.pack("<Q", 24))) == masked(crc32c(struct.pack("<Q", 24)))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_fatal(data: bytes) -> None:
    for read in (EventReader(lambda *_: None).read_scalars, read_tensor):
        try:
            read(data)
        except WireError:
            continue


@given(st.integers(-(2**63), 2**63 - 1), st.floats(width=32, allow_nan=False), st.text(min_size=1, max_size=200))
def test_events_as_the_real_protobuf_writes_them(step: int, value: float, tag: str) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    found: list[Any] = []
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    EventReader(lambda *scalar: found.append(scalar)).read_scalars(
        Event(wall_time=12.5, step=step, summary=summary).SerializeToString()
    )
    assert found == [(step, 12.5, tag, value)]


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool"]
)
def test_tensors_of_every_type(dtype: str) -> None:
    from tensorboard.util.tensor_util import make_tensor_proto

    assert read_tensor(make_tensor_proto(np.array(1, dtype=dtype)).SerializeToString()) == 1.0
    assert read_tensor(make_tensor_proto(np.array([1, 1], dtype=dtype)).SerializeToString()) is None


async def test_through_lens_collect(tmp_path: Path) -> None:
    written(tmp_path / "logs" / "run", range(7))
    variables = {**os.environ, "LENS_TENSORBOARD_DIRS": str(tmp_path / "logs"), "LENS_DATA_DIR": str(tmp_path / "d")}
    done = await asyncio.to_thread(run_lens, "collect", "tensorboard", "--json", environ=variables)
    assert json.loads(done.stdout)["records"] == {"step_metrics": 7}
