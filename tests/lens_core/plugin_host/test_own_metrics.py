"""Metrics, health, state and lists that plugins get from the public API."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lens_core import (
    EVENT_TYPES,
    KNOWN_KEYS,
    Answer,
    Batch,
    Delivered,
    Origin,
    Sink,
    StepMetrics,
    WireError,
    load_state,
    protobuf_fields,
    save_state,
)
from lens_core.testing import LensFactory, make_context, until


class Talker(Sink):
    """Counts what it gets, and says that something is wrong."""

    name = "talker"

    async def send(self, batch: Batch) -> Answer:
        self.context.counter("talker_rows_total", "Rows.", kind="step").inc(len(batch.records))
        self.context.gauge("talker_depth", "Depth.").set(3)
        self.context.histogram("talker_seconds", "Time.").observe(0.1)
        self.context.report_problem("the licence ends tomorrow")
        return Delivered()


async def test_a_plugin_has_metrics_and_health_of_its_own(lens: LensFactory) -> None:
    running = await lens(Talker, config={"sources": {"records_api": {}}, "sinks": {"talker": {"type": "talker"}}})
    row = StepMetrics(origin=Origin(workload_uid="job"), data_source="wandb", row_step=1, values={"loss": 1.0})
    await running.send([row])
    await running.wait_for_records(1)
    metrics = running.daemon.metrics
    await until(lambda: "talker" in metrics.problems, "the problem is there")
    text = metrics.exposition().decode()
    assert 'talker_rows_total{component="talker",kind="step"} 1.0' in text
    assert 'talker_depth{component="talker"} 3.0' in text
    assert 'talker_seconds_count{component="talker"} 1.0' in text
    assert 'lens_component_problem{component="talker"} 1.0' in text
    assert (await running.get_json("/status"))["problems"] == {"talker": "the licence ends tomorrow"}


def test_a_problem_can_be_taken_back_and_names_are_checked(tmp_path: Path) -> None:
    context = make_context("one", tmp_path)
    context.report_problem("bad")
    context.report_problem("")
    assert context.metrics.problems == {}
    with pytest.raises(ValueError, match="not beginning with lens_"):
        context.counter("lens_own_total", "Mine.")
    context.counter("own_total", "Mine.")
    with pytest.raises(ValueError, match="own_total is a counter"):
        context.gauge("own_total", "Mine.")


class Progress(msgspec.Struct):
    """A position."""

    position: int = 0


def test_state_lists_and_protobuf_are_public(tmp_path: Path) -> None:
    assert load_state(tmp_path / "s.json", Progress) == Progress()
    save_state(tmp_path / "s.json", Progress(7))
    assert load_state(tmp_path / "s.json", Progress).position == 7
    assert "training_started" in EVENT_TYPES
    assert KNOWN_KEYS["iteration"].names == "iteration"
    assert [field.value for field in protobuf_fields(b"\x08\x07")] == [7]
    with pytest.raises(WireError):
        list(protobuf_fields(b"\x08"))


class FolderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder."""

    folder: Path


class InFolder(Sink):
    """Has a folder."""

    name = "in_folder"
    Settings = FolderSettings

    async def send(self, batch: Batch) -> Answer:
        return Delivered()


async def test_settings_may_be_paths(lens: LensFactory, tmp_path: Path) -> None:
    running = await lens(InFolder, config={"sinks": {"f": {"type": "in_folder", "folder": str(tmp_path)}}})
    assert running.component("f").settings.folder == tmp_path
