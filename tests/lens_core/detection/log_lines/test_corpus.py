"""Real lines with what they say: every framework's formats, events and look-alikes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lens_core.detection.log_lines import Context, LineEngine, Reading
from tests.lens_core.detection.log_lines.stand import says_something

DATA = Path(__file__).parents[3] / "data"
LINES: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "training_log_lines.jsonl").read_text().splitlines()
]

STORED = {
    "target_epochs": "total_epochs",
    "elapsed_ms": "elapsed_time_per_iteration_ms",
    "mem_used_gb": "mem_usage",
    "mem_free_gb": "mem_free",
    "mem_total_gb": "mem_total",
    "mem_ratio_pct": "mem_usage_ratio",
    "tokens_per_gpu_s": "tokens_per_gpu",
    "samples_per_s": "samples_per_second",
    "mfu_pct": "mfu",
    "skipped_iterations": "skipped_iterations_number",
    "nan_iterations": "nan_iterations_number",
}
EVENTS = {
    "training_start": "training_started",
    "training_finished": "training_ended",
    "failure": "training_failed",
    "checkpoint_begin": "checkpoint_saving",
    "step_skipped_overflow": "step_skipped",
    "nan_loss": "loss_not_finite",
    "oom": "out_of_memory",
    "nccl_timeout": "collective_timeout",
    "epoch_start": "epoch_started",
}
FRAMEWORKS = {
    "megatron-lm": {"megatron"},
    "hf-transformers": {"transformers"},
    "primus-megatron": {"primus", "megatron"},
    "primus-torchtitan": {"primus", "torchtitan"},
    "primus-maxtext": {"primus", "maxtext"},
    "other": {""},
}
# Two lines that nobody can tell from Megatron-LM's own.
ALIKE = {"megatron-deepspeed-075"}


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in LINES if row["kind"] == kind]


def same(found: float | None, expected: Any) -> bool:
    wanted = float(expected)
    if found is None:
        return False
    return (math.isnan(found) and math.isnan(wanted)) or found == pytest.approx(wanted, rel=1e-9)


def stored_values(reading: Reading) -> dict[str, float]:
    values = dict(reading.values)
    if reading.iteration is not None:
        values["iteration"] = reading.iteration
    return values


def check_framework(row: dict[str, Any], reading: Reading | None) -> None:
    if row.get("framework_evident") is False or row["id"] in ALIKE:
        return
    names = [row["framework"], *row.get("also_ok", [])]
    right = set().union(*(FRAMEWORKS.get(name, {name.replace("-", "_")}) for name in names))
    assert (reading.framework if reading is not None else "") in right


@pytest.mark.parametrize("row", of_kind("metric"))
def test_a_step_has_every_number_of_its_line(engine: LineEngine, row: dict[str, Any]) -> None:
    steps = [reading for reading in engine.read_line(row["line"], Context()) if reading.kind == "metric"]
    assert steps, "no step"
    values = stored_values(steps[-1])
    wrong = {
        key: (values.get(STORED.get(key, key)), expected)
        for key, expected in row["expected"].items()
        if not same(values.get(STORED.get(key, key)), expected)
    }
    assert not wrong
    check_framework(row, steps[-1])


@pytest.mark.parametrize("row", of_kind("event"))
def test_an_event_is_found_with_its_details(engine: LineEngine, row: dict[str, Any]) -> None:
    readings = engine.read_line(row["line"], Context())
    log_events = [reading.log_event for reading in readings if reading.log_event is not None]
    wanted = EVENTS.get(row["expected"]["event"], row["expected"]["event"])
    assert [log_event.type for log_event in log_events] == [wanted]
    details = {**log_events[0].details, "iteration": log_events[0].iteration}
    for key, expected in row["expected"].items():
        if key != "event":
            assert same(details.get(key), expected), key
    assert not [reading for reading in readings if reading.kind == "metric"]
    check_framework(row, readings[-1])


@pytest.mark.parametrize("row", of_kind("noise"))
def test_a_look_alike_gives_neither_a_step_nor_an_event(engine: LineEngine, row: dict[str, Any]) -> None:
    readings = engine.read_line(row["line"], Context())
    assert [reading.kind for reading in readings if says_something(reading)] == []
    check_framework(row, readings[-1] if readings else None)


def test_every_update_of_a_progress_bar_is_read_in_order(engine: LineEngine) -> None:
    (row,) = (row for row in LINES if "expected_updates" in row)
    steps = [reading for reading in engine.read_line(row["line"], Context()) if reading.kind == "metric"]
    assert len(steps) == len(row["expected_updates"])
    for step, expected in zip(steps, row["expected_updates"], strict=True):
        assert all(same(step.values.get(key), value) for key, value in expected.items())


def test_every_primus_line_that_names_a_step_is_one(engine: LineEngine) -> None:
    for line in (DATA / "primus_log_lines.txt").read_text().splitlines():
        names_a_step = any(mark in line for mark in ("iteration  ", "elapsed time", "completed step", "loss:"))
        if line.startswith("#") or not names_a_step or "saved checkpoint" in line or "Stopping" in line:
            continue
        readings = engine.read_line(line, Context())
        assert readings, line
        assert readings[-1].kind == "metric", line
