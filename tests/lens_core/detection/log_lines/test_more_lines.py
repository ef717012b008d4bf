"""Lines written for these tests in the shapes of the frameworks, their launchers and what runs beside them.

`tests/data/more_training_log_lines.jsonl` has a line in each form that a framework was seen to print, with all that it
says; numbers and paths are made up. Real lines are in `training_log_lines.jsonl`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lens_core.detection.log_lines import Context, LineEngine, Reading
from lens_core.detection.log_lines.loss_checks import spell
from tests.generated import examples
from tests.lens_core.detection.log_lines.stand import says_something

DATA = Path(__file__).parents[3] / "data" / "more_training_log_lines.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text().splitlines()]
# Around a line, whatever it says: launchers, ranks, containers, loggers, Ray, colours, Windows.
PREFIXES = (
    "[default3]:",
    "[rank1]: ",
    "2026-05-18T16:04:46.339001234Z stdout F ",
    "(TrainWorker pid=17, ip=10.0.0.1) ",
    "\x1b[36m(pid=17)\x1b[0m ",
    "node01: ",
    "stderr: ",
    "INFO:root:",
)


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [row for row in LINES if row["kind"] == kind]


def reported(engine: LineEngine, line: str) -> list[Reading]:
    return [reading for reading in engine.read_line(line, Context()) if reading.kind != "none"]


def values_of(reading: Reading) -> dict[str, Any]:
    values = {
        name: spell(value) if abs(value) == float("inf") or value != value else value
        for name, value in reading.values.items()
    }
    return values if reading.iteration is None else {"iteration": reading.iteration, **values}


def test_there_are_lines_of_every_kind() -> None:
    assert {kind: len(of_kind(kind)) > 100 for kind in ("metric", "event", "noise")} == dict.fromkeys(
        ("metric", "event", "noise"), True
    )


def test_steps_have_every_number_of_their_line(engine: LineEngine) -> None:
    wrong = []
    for row in of_kind("metric"):
        (step,) = reported(engine, row["line"]) or [Reading()]
        if step.framework != row["framework"] or values_of(step) != pytest.approx(row["values"]):
            wrong.append((row["line"], step.framework, values_of(step)))
    assert not wrong


def test_events_are_found_with_their_details(engine: LineEngine) -> None:
    wrong = []
    for row in of_kind("event"):
        found = [reading for reading in reported(engine, row["line"]) if reading.log_event is not None]
        log_event = found[0].log_event if len(found) == 1 else None
        expected = (row["event"], row.get("iteration"), row.get("details", {}), row["framework"])
        if (
            log_event is None
            or (log_event.type, log_event.iteration, log_event.details, found[0].framework) != expected
        ):
            wrong.append((row["line"], log_event))
    assert not wrong


def test_other_lines_say_nothing_but_who_prints_them(engine: LineEngine) -> None:
    wrong = []
    for row in of_kind("noise"):
        readings = engine.read_line(row["line"], Context())
        framework = readings[-1].framework if readings else ""
        if any(map(says_something, readings)) or framework != row["framework"]:
            wrong.append((row["line"], readings))
    assert not wrong


@given(st.sampled_from(of_kind("event")), st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=2), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(200))
def test_an_event_is_one_behind_any_prefix(
    engine: LineEngine, row: dict[str, Any], prefixes: list[str], from_windows: bool
) -> None:
    line = "".join(prefixes) + row["line"] + "\r" * from_windows
    assert [reading.log_event and reading.log_event.type for reading in reported(engine, line)] == [row["event"]], line


@given(st.sampled_from(of_kind("metric")), st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=2), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(200))
def test_a_step_is_the_same_behind_any_prefix(
    engine: LineEngine, row: dict[str, Any], prefixes: list[str], from_windows: bool
) -> None:
    (step,) = reported(engine, "".join(prefixes) + row["line"] + "\r" * from_windows)
    assert values_of(step) == pytest.approx(row["values"])


@given(st.sampled_from(of_kind("noise")), st.lists(st.sampled_from(PREFIXES), max_size=2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(200))
def test_no_prefix_makes_a_step_of_noise(engine: LineEngine, row: dict[str, Any], prefixes: list[str]) -> None:
    line = "".join(prefixes) + row["line"]
    assert not [reading for reading in engine.read_line(line) if reading.kind == "metric"], line
