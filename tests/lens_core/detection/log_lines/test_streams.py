"""Logs that people pasted into issues and forums: what a person reads there, and what must not be read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lens_core import Event, StepMetrics
from lens_core.plugin_api.components import Detector
from tests.lens_core.detection.log_lines.stand import Stand

DATA = Path(__file__).parents[3] / "data" / "log_streams.jsonl"
CASES = [json.loads(line) for line in DATA.read_text().splitlines()]
# Names under which the contract stores what a person calls by the first.
STORED = {"time_ms": "elapsed_time_per_iteration_ms"}
# RLlib's result is a page of YAML, of which the case says that reading nothing is right.
MAY_BE_UNREAD = {"a60-rllib-result"}
# Its bar of the ninth epoch is step 360 of 360, and the case takes the step, its sum and the epoch.
STEPS = {("a84-keras-multi", 9): 3240}
# Where a detector has a stored name for what its framework prints.
OWN = {("a46-verl", "actor/grad_norm"): "grad_norm"}
# Milliseconds are stored.
IN_SECONDS = {("a46-verl", "timing_s/step")}


def is_same(stored: float, expected: float) -> bool:
    if math.isnan(expected):
        return math.isnan(stored)
    return math.isclose(stored, expected, rel_tol=1e-6, abs_tol=1e-12)


def is_stored(case: dict[str, Any], rows: list[StepMetrics], step: int | None, name: str, value: float) -> bool:
    number = STEPS.get((case["id"], step if step is not None else -1), step)
    names = {name, STORED.get(name, name), OWN.get((case["id"], name), name)}
    if "loss" in name:
        names.add("lm_loss")
    if (case["id"], name) in IN_SECONDS:
        names.add("elapsed_time_per_iteration_ms")
        value *= 1000.0
    return any(
        is_same(row.values[one], value)
        for row in rows
        if step is None or number in (row.row_step, row.iteration)
        for one in names & row.values.keys()
    )


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_log_says_what_a_person_reads(case: dict[str, Any], detectors: list[Detector]) -> None:
    stand = Stand(detectors)
    records = [record for line in case["lines"] for record in stand.feed(line).records]
    rows = [record for record in records if isinstance(record, StepMetrics)]
    events = {record.type for record in records if isinstance(record, Event)}
    expected = case["expect"]
    if case["id"] not in MAY_BE_UNREAD or rows:
        for wanted in expected["metrics"]:
            for name, value in wanted.items():
                if name != "step":
                    assert is_stored(case, rows, wanted["step"], name, value), (wanted["step"], name, rows)
    assert all(events & set(one.split("|")) for one in expected["events"]), events
    for absent in expected["absent"]:
        if absent == "steps":
            assert rows == []
        elif absent == "events":
            assert events == set()
        else:
            assert absent not in events
            assert not any(absent in row.values for row in rows)
    assert len({row.attempt for row in rows}) <= 1
