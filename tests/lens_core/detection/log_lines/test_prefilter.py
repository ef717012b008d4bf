"""Prefilter: what is remembered of rows changes nothing but the time that it takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.logs_data import METRICS
from lens_core import EventPattern, LogFormat, Mark
from lens_core.detection.log_lines import Context, LineEngine
from lens_core.detection.log_lines import prefilter as prefilter
from lens_core.detection.log_lines.words import row_of, rows_of
from lens_core.plugin_api.log_formats import Table


class _Declares:
    """A detector of two formats; `words` are those of the second one."""

    name = framework = "tests"
    layer = "base"
    events: Sequence[EventPattern] = ()
    marks: Sequence[Mark] = ()
    tables: Sequence[Table] = ()

    def __init__(self, words: tuple[str, ...]) -> None:
        self.formats: Sequence[LogFormat] = (
            LogFormat(name="step", words=("step", "loss"), head=r"step (?P<iteration>\d+)"),
            LogFormat(name="own", words=words, head=r"#(?P<iteration>\d+)"),
        )


ENGINE = LineEngine([_Declares(("turn",))])
PIECES = st.sampled_from(["step", " 7 ", "loss", "lossy", "LOSS", "turn", "#5", "mturn", "█", "\n", "\ud800", "x", " "])
LINES = st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=30)


@given(LINES)
def test_a_body_is_read_as_its_lines_are_one_by_one(lines: list[str]) -> None:
    fresh = LineEngine([_Declares(("turn",))])
    expected = {index: found for index, text in enumerate(lines) if (found := fresh.read_line(text))}
    for _ in range(2):  # known rows are found as new ones are
        hits = ENGINE.filter_lines(lines)
        got = {index: found for index, known in hits if (found := ENGINE.read_found(lines[index], known))}
        assert got == expected


COMPOUNDS = st.text("lostreadnpyxcifu_", max_size=4)
STEMS = st.sampled_from(["", "loss", "reward", "entropy", "error", "exception", "exit", "traceback", "timeout"])
NEW_WORDS = st.lists(st.tuples(COMPOUNDS, STEMS, COMPOUNDS).map("".join), max_size=5).map(" ".join)


@given(st.lists(NEW_WORDS, max_size=30))
def test_a_part_of_a_word_is_found_whatever_was_read_before(lines: list[str]) -> None:
    for line in lines:
        found = ENGINE.filter_line(f"epoch {line}")
        has_failure = any(stem in line for stem in ("error", "exception", "exit", "expired", "traceback", "timeout"))
        assert (found is not None and found.failure) == (has_failure or "failure" in line)
        if any(stem in line for stem in ("loss", "reward", "entropy")):
            assert found is not None
            assert found.general


@given(LINES)
def test_rows_hold_the_words_and_only_them(lines: list[str]) -> None:
    rows = rows_of(lines)
    assert rows == [row_of(line) for line in lines]
    assert not set(b"".join(rows)) - set(b"abcdefghijklmnopqrstuvwxyz_ ")


def test_memory_has_bounds_and_a_row_that_was_forgotten_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefilter, "_ROWS_LIMIT", 3)
    monkeypatch.setattr(prefilter, "_MEMO_LIMIT", 1)
    engine = LineEngine([_Declares(("turn",))])
    lines = [
        "step 1 loss",
        "turn #2",
        "noise",
        "more noise",
        "turn left #3",
        "step loss",
        *("word " * 300, "turn step 4"),
    ]
    for _ in range(3):
        assert [index for index, _ in engine.filter_lines(lines)] == [0, 1, 4, 5, 7]


def test_a_declaration_without_words_is_shown_every_line() -> None:
    engine = LineEngine([_Declares(())])
    assert [index for index, _ in engine.filter_lines(["#1", "noise", ""])] == [0, 1, 2]
    assert [reading.iteration for reading in engine.read_line("12 #34")] == [34]
    assert not engine.read_line("noise")


def test_what_shows_a_framework_is_read_until_it_has_shown_it() -> None:
    declares = _Declares(("turn",))
    declares.marks = (Mark(words=("rank",), pattern=r"\[rank-\d+/"),)
    engine, context = LineEngine([declares]), Context(skips_known=True)
    assert not engine.read_line("comm 0x5 rank 3 of 8", context)
    (shown,) = engine.read_line("[rank-3/8] starts", context)
    assert shown.framework == "tests"
    assert not engine.read_line("[rank-4/8] starts", context)
    assert engine.read_line("[rank-4/8] starts")


@pytest.mark.parametrize("text", ["\x1b[1m[ra\x1b[0mnk-3/8]", '{"log": "[\\u0072ank-3/8] starts \\u003crank>"}'])
def test_what_has_to_be_opened_first_is_not_passed_over(text: str) -> None:
    declares = _Declares(("turn",))
    declares.marks = (Mark(words=(), pattern=r"\[rank-\d+/"),)
    assert LineEngine([declares]).read_line(text)


def test_no_event_is_looked_for_on_the_steps_of_the_benchmark(engine: LineEngine) -> None:
    """A pattern that has to be searched on every step costs more than all others: its words have to be rarer."""
    for form in METRICS:
        found = engine.filter_line(form.format(step=123, samples=1234, loss=2.5, epoch=0.5))
        assert found is not None
        assert [event.detector for event in found.events] == [], form


def test_a_banner_is_looked_for_only_where_it_may_stand_alone() -> None:
    banner = LogFormat(name="banner", words=("batch",), head=r"\[batch=(?P<iteration>\d+)\]", is_alone=True)
    declares = _Declares(("optimizer",))
    declares.formats = (banner, *declares.formats)
    engine = LineEngine([declares])
    assert [reading.iteration for reading in engine.read_line("INFO [rank0]: [batch=3]")] == [3]
    candidates = engine.filter_line("optimizer: 94.0 | [batch=3]")
    assert candidates is not None
    assert [item.declared.name for item in candidates.formats] == ["own"]
