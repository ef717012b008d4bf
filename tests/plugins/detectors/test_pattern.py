"""Detectors that are written in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from lens_core.config.loading import InvalidConfiguration, parse_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines.engine import LineEngine
from lens_core.plugin_host.host import PluginHost


def engine_of(text: str) -> LineEngine:
    """The engine with all installed detectors and those of a configuration."""
    sink = "sinks: {a: {type: jsonl, path: x}}\n"
    config = parse_config(sink + text, "f", PluginHost.load(), {"HOME": "/"}, folder=Path())
    return LineEngine(make_detectors(config.detectors))


def problems_of(line: str) -> str:
    with pytest.raises(InvalidConfiguration) as caught:
        engine_of(f"detectors:\n  house:\n    type: pattern\n    line: '{line}'\n    framework: house")
    (problem,) = caught.value.problems
    assert problem.place.line == 5
    return problem.message


def test_a_house_pattern_reads_its_lines_before_anything_else_does() -> None:
    engine = engine_of(
        "detectors:\n  house:\n    type: pattern\n    framework: house_trainer\n"
        r"    line: 'step=(?P<iteration>\d+) loss=(?P<lm_loss>\S+)'"
    )
    (reading,) = engine.read_line("12:00:01 step=10 loss=nan and more")
    assert (reading.framework, reading.iteration) == ("house_trainer", 10)
    assert str(reading.values["lm_loss"]) == "nan"
    assert reading.hints[0].by == "house.line"
    assert engine.read_line("nothing of that") == ()


def test_a_house_pattern_sees_what_a_launcher_has_put_before_the_line() -> None:
    engine = engine_of(
        "detectors:\n  house:\n    type: pattern\n    framework: house_trainer\n"
        r"    line: '^\[rank(?P<on_rank>\d+)\]: step=(?P<iteration>\d+)'"
    )
    (reading,) = engine.read_line("[rank3]: step=10")
    assert (reading.iteration, reading.values) == (10, {"on_rank": 3.0})


def test_a_pattern_without_a_word_is_tried_on_every_line() -> None:
    engine = engine_of(
        "detectors:\n  csv:\n    type: pattern\n    framework: csv\n    layer: wrapper\n"
        r"    line: '^(?P<step>\d+);(?P<loss>[\d.]+);(?P<own_thing>[\d.]+)$'"
    )
    (reading,) = engine.read_line("7;2.5;3")
    assert reading.iteration == 7
    assert reading.values == {"lm_loss": 2.5, "own_thing": 3.0}


def test_patterns_are_checked_when_the_configuration_is() -> None:
    assert problems_of("(?P<x>b").startswith("detectors.house.line: is not a regular expression: missing )")
    assert problems_of("step=.*").startswith("detectors.house.line: has no named group; name what it finds")
    assert problems_of("(?P<x>a*)").endswith("matches an empty line; let it require something")
    assert "takes too long on long lines such as" in problems_of("(a|aa)+(?P<x>b)$")
