"""Logs written for these tests in the shapes of codebases of ten years: each is read as a person reads it.

A case of `tests/data/written_log_streams.jsonl` has its `rows`, all of them and no others, or only the `losses` in
their order where an epoch's first number is not on the lines. `events` are some of its events.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lens_core import Event, Origin, StepMetrics
from lens_core.plugin_api.components import Detector
from tests.lens_core.detection.log_lines.stand import Stand

DATA = Path(__file__).parents[3] / "data" / "written_log_streams.jsonl"
CASES = [json.loads(line) for line in DATA.read_text().splitlines()]


@pytest.fixture(scope="module")
def shared(detectors: list[Detector]) -> Stand:
    """One processor for all cases; each is a job of its own."""
    return Stand(detectors)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_written_log_is_read_as_a_person_reads_it(case: dict[str, Any], shared: Stand) -> None:
    origin = Origin(workload_uid=case["id"], pod_name="p", namespace="n")
    records = [record for line in case["lines"] for record in shared.feed(line, origin=origin).records]
    rows = [record for record in records if isinstance(record, StepMetrics)]
    assert set(case.get("events", ())) <= {record.type for record in records if isinstance(record, Event)}
    assert len({row.attempt for row in rows}) <= 1
    if "losses" in case:
        assert [row.values["lm_loss"] for row in rows if "lm_loss" in row.values] == case["losses"]
        return
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row.row_step, {}).update(row.values)
    assert sorted(found) == sorted(expected["step"] for expected in case["rows"])
    for expected in case["rows"]:
        wanted = {name: value for name, value in expected.items() if name != "step"}
        assert {name: found[expected["step"]].get(name) for name in wanted} == pytest.approx(wanted)
