"""The promise of docs/plugins.md: what was written for plugin API 1.0 works with the present one."""

from __future__ import annotations

import importlib
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from lens_core import API_VERSION, Detection, Measurement, StepMetrics
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import LensFactory, check_detector, until

OLD = Path(__file__).parent / "plugins_1_0"
NAMES = [line.split() for line in (OLD / "public_names.txt").read_text().splitlines()]


@pytest.fixture
def old(lens_plugins_dir: Path) -> Any:
    """The old plugins, installed as a file; the module."""
    shutil.copy(OLD / "api_1_0_kinds.py", lens_plugins_dir)
    (plugin,) = PluginHost.load().loaded_from("api_1_0_kinds")
    assert plugin.state == "loaded", plugin.reason
    return sys.modules["api_1_0_kinds"]


def test_no_public_name_is_gone() -> None:
    gone = []
    for where, name in NAMES:
        module, _, class_name = where.partition(".")
        holder: Any = importlib.import_module(where if class_name == "testing" else module)
        if class_name not in ("", "testing"):
            holder = getattr(holder, class_name)
        if not hasattr(holder, name):
            gone.append(f"{where}.{name}")
    assert gone == []
    assert Version("1.0") <= Version(API_VERSION) < Version("2"), "a new major version has a folder of its own here"


async def test_old_plugins_work_in_a_pipeline(old: Any, lens: LensFactory) -> None:
    config = {
        "sources": {"old_source": {}, "records_api": {}},
        "collectors": {"old_collector": {}},
        "sinks": {"old_sink": {"refuse_step": 7, "token": "s3cret"}},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        running = await lens(config=config)
    for step in (6, 7, 8):
        answer = await running.post("/old", {"step": step, "loss": 0.5})
        assert (answer.status_code, answer.headers["X-Old"]) == (202, "1")
    await running.kept(3)
    await until(lambda: {6, 8} <= {row.row_step for row in rows(old)}, "rows arrive at the old sink")
    assert 7 not in {row.row_step for row in rows(old)}
    await until(lambda: any(isinstance(record, Measurement) for record in old.ARRIVED), "the old collector collects")


def rows(old: Any) -> list[StepMetrics]:
    return [record for record in old.ARRIVED if isinstance(record, StepMetrics)]


async def test_an_old_detector_reads_its_lines(old: Any, lens: LensFactory) -> None:
    check_detector(old.OldTrainer)
    running = await lens()
    line = {"record": "log_line", "text": "old_trainer 10 | loss: 2.5", "event_time": 1.7e9}
    answer = await running.post("/records", {"version": 1, "origin": {"workload_uid": "job"}, "records": [line]})
    assert answer.json()["accepted"] == 1
    (row, *_) = await running.kept(1)
    assert isinstance(row, StepMetrics)
    assert (row.row_step, row.values["lm_loss"]) == (10, 2.5)
    (found, *_) = await running.kept(1, Detection)
    assert isinstance(found, Detection)
    assert (found.framework, found.layer) == ("old_trainer", "wrapper")
