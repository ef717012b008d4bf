"""Patterns with a time limit."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.detection.log_lines.limited import TIMEOUTS_UNTIL_PAUSED, LimitedPattern, required_words, why_not

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


def test_a_line_that_takes_too_long_is_given_up_and_then_the_pattern(caplog: pytest.LogCaptureFixture) -> None:
    pattern = LimitedPattern("house.line", r"(a+)+$", 0.01)
    assert pattern.search("xaaa") is not None
    started = time.monotonic()
    for _ in range(TIMEOUTS_UNTIL_PAUSED):
        assert pattern.paused == ""
        assert pattern.search("a" * 5000 + "!") is None
    assert time.monotonic() - started < 5
    assert "on 5 lines in a row" in pattern.paused
    assert pattern.search("xaaa") is None
    assert pattern.timeouts == TIMEOUTS_UNTIL_PAUSED
    assert [record.message for record in caplog.records] == [
        "Pattern paused. pattern=house.line reason=took more than 0.01 s on 5 lines in a row"
    ]


def test_a_line_that_goes_well_forgives_those_before() -> None:
    pattern = LimitedPattern("p", r"(a+)+$", 0.01)
    for _ in range(TIMEOUTS_UNTIL_PAUSED * 2):
        pattern.search("a" * 5000 + "!")
        pattern.search("a")
        if pattern.paused:
            pytest.fail(pattern.paused)


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
