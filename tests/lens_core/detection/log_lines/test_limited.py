"""Patterns with a time limit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.detection.log_lines.limited import (
    OVERRUNS_UNTIL_PAUSED,
    PAUSE_SECONDS,
    LimitedPattern,
    LineTime,
    Overruns,
    required_words,
    why_not,
)
from tests.durations import Stopwatch

CATASTROPHIC = [r"(a+)+(?P<x>b)$", r"(?P<v>(\w+\s?)*)=", r"(?P<x>(a|aa)+)$", r"^(?P<x>(([a-z])+.)+[A-Z])([a-z])+$"]
HARMLESS = [
    r"step=(?P<iteration>\d+) loss=(?P<lm_loss>\S+)",
    r"\[acme\] Step (?P<i>\d+)(?: of many)? end_of it$",
    r"(?P<a>\d+),(?P<b>\d+)",
    r"\bepoch\s+(?P<e>\d+) of (?P<n>\d+)",
    r"(?i)LOSS: (?P<x>[\d.]+) .*? time (?P<t>\d+)",
    r"(?:train|eval) (?P<x>\d+) steps",
]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_catastrophic_patterns_are_refused(pattern: str) -> None:
    assert "takes too long" in why_not(pattern)


@pytest.mark.parametrize("pattern", HARMLESS)
def test_harmless_patterns_are_taken(pattern: str) -> None:
    assert why_not(pattern) == ""


def slow_pattern(overruns: Overruns) -> LimitedPattern:
    """A pattern that backtracks, with a time limit that a busy machine keeps for what is quick."""
    return LimitedPattern("house.line", r"(a+)+$", overruns)


def search(pattern: LimitedPattern, overruns: Overruns, text: str) -> bool:
    overruns.line_time.left = overruns.line_time.limit
    return pattern.search(text) is not None


def test_a_detector_whose_patterns_take_too_long_is_paused_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    reported: list[tuple[str, str]] = []
    overruns = Overruns("house", LineTime(0.05), lambda *change: reported.append(change), clock=lambda: now)
    pattern = slow_pattern(overruns)
    assert search(pattern, overruns, "xaaa")
    for _ in range(OVERRUNS_UNTIL_PAUSED):
        assert overruns.paused == ""
        assert not search(pattern, overruns, "a" * 5000 + "!")
    assert "on 5 lines in a row" in overruns.paused
    assert not search(pattern, overruns, "xaaa")
    assert overruns.count == OVERRUNS_UNTIL_PAUSED
    assert "detector=house pattern=house.line" in caplog.text
    now = PAUSE_SECONDS
    assert search(pattern, overruns, "xaaa")
    assert [(name, bool(reason)) for name, reason in reported] == [("house", True), ("house", False)]


def test_a_line_that_goes_well_forgives_those_before() -> None:
    overruns = Overruns("house", LineTime(0.05))
    pattern = slow_pattern(overruns)
    for _ in range(OVERRUNS_UNTIL_PAUSED * 2):
        search(pattern, overruns, "a" * 5000 + "!")
        assert search(pattern, overruns, "a"), overruns.paused


def test_patterns_share_the_time_of_a_line() -> None:
    overruns = Overruns("house", LineTime(0.05))
    patterns = [slow_pattern(overruns) for _ in range(20)]
    watch = Stopwatch()
    for pattern in patterns:
        pattern.search("a" * 5000 + "!")
    assert watch.seconds() < 0.05 * 10
    assert overruns.count == 1


def test_required_words_are_those_that_stand_alone() -> None:
    assert required_words(r"step=(?P<i>\d+) loss=(?P<l>\S+)") == ("loss",)
    assert required_words(r"\bstep=(?P<i>\d+) loss=(?P<l>\S+)") == ("step", "loss")
    assert required_words(r"\[acme\] Step (?P<i>\d+)(?: of many)? end_of it") == ("acme", "step", "end_of")
    assert required_words(r"\bepoch\s+(?P<e>\d+) of x") == ("epoch", "of")
    assert required_words(r"(?:foo |bar )(?P<x>\d)") == ()
    assert required_words(r"(?P<x>\d+") == ()


@given(st.sampled_from(HARMLESS), st.data())
def test_required_words_stand_on_every_line_that_matches(pattern: str, data: st.DataObject) -> None:
    line = data.draw(st.from_regex(re.compile(pattern, re.ASCII)))
    words = re.findall("[a-z_]+", line.encode("ascii", "replace").decode().lower())
    assert set(required_words(pattern)) <= set(words)
