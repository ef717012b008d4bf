"""Every pattern runs in a bounded time: repetitions with bounds, proofs, and the time limit where there is no proof."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Detector, EventPattern, LogFormat, Mark, Table
from lens_core.base.self_metrics import SelfMetrics
from lens_core.detection.log_lines import Context, LineEngine
from lens_core.detection.log_lines.limited import Overruns
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.detection.log_lines.searching import MAX_CHARACTERS, REACH, bound_repetitions, is_proven, searcher
from lens_core.model.records import LogLine, Origin
from lens_core.testing import make_context
from tests.durations import is_within

LINEAR = [
    r"step=(?P<iteration>\d+) loss=(?P<lm_loss>\S+)",
    r"\bstep (?P<iteration>\d+) .*loss (?P<lm_loss>\S+)",
    r"^(?P<step>\d+);(?P<loss>[\d.]+);(?P<own_thing>[\d.]+)$",
    r"(?i)(?<![\d.])epoch\s+(?P<e>\d+)(?:/\d+)?,",
    r"saved (?P<path>\S+) in (?P<seconds>[\d.]+) s$",
]
# Each with a line on which `re` would need hours or minutes.
EXPLOSIVE = {
    r"evil step (?P<iteration>\d+) ((?:\w+\s?)+)+!done": "evil step 12 " + "a" * 200,
    r"(a|a)*(?P<x>b)c": "a" * 200,
    r"(?P<x>(a|aa)+)$": "a" * 200 + "!",
    r"^(?P<x>(([a-z])+.)+[A-Z])([a-z])+$": "a" * 200,
    r"x(?P<a>.*)(?P<b>.*)(?P<c>.*)(?P<d>.*)y": "x" * 2000,
    r"(?=(?:a+)+b)(?P<x>a)": "a" * 200,
    r"(?P<x>(?:[ab]|[bc])*)d": "b" * 200,
}


@pytest.mark.parametrize("pattern", LINEAR)
def test_usual_patterns_are_proven(pattern: str) -> None:
    assert is_proven(pattern)


@pytest.mark.parametrize(("pattern", "line"), EXPLOSIVE.items())
def test_what_blows_up_is_never_proven_and_is_stopped(pattern: str, line: str) -> None:
    assert not is_proven(pattern)
    overruns = Overruns("acme")
    search = searcher(pattern, "acme.step", overruns)
    started = time.process_time()
    search(line, 0)
    assert is_within(time.process_time() - started, 1.0)


ATOMS = st.sampled_from(["a", "b", "ab", "[ab]", ".", r"\w", "[^a]", r"\s", "c"])
REPEATS = st.sampled_from(["", "*", "+", "?", "*?", "+?", "??", "{2,}", "{1,3}", "{,2}"])
PARTS = st.tuples(ATOMS, REPEATS).map("".join)
PATTERNS = st.recursive(
    st.lists(PARTS, min_size=1, max_size=4).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=4,
)


@given(PATTERNS, st.text("abc ", max_size=12))
def test_bounded_repetitions_find_the_same_on_short_lines(pattern: str, line: str) -> None:
    found, expected = re.search(bound_repetitions(pattern), line), re.search(pattern, line)
    assert (found and found.span()) == (expected and expected.span())


@given(PATTERNS, st.text("abc ", min_size=1, max_size=3), st.text("abc ", min_size=1, max_size=4))
def test_a_proof_holds_on_repeated_text(pattern: str, prefix: str, pump: str) -> None:
    if not is_proven(pattern):
        return
    search = searcher(pattern, "p", Overruns("p"))
    line = (prefix + pump * MAX_CHARACTERS)[: MAX_CHARACTERS - 1] + "!"
    started = time.process_time()
    search(line, 0)
    assert is_within(time.process_time() - started, 1.0), (pattern, line[:20])


@pytest.mark.parametrize(
    ("pattern", "bounded"),
    [
        (r"a*b+c{2,}", f"a{{0,{REACH}}}b{{1,{REACH}}}c{{2,{REACH}}}"),
        (r"[*+]\*\+x*?y+?", f"[*+]\\*\\+x{{0,{REACH}}}?y{{1,{REACH}}}?"),
        (r"[]*]*[^]+]+", f"[]*]{{0,{REACH}}}[^]+]{{1,{REACH}}}"),
        (r"(?P<x>a)(?:b)*(?i:c)+", f"(?P<x>a)(?:b){{0,{REACH}}}(?i:c){{1,{REACH}}}"),
        (r"a{3}b{1,2}c{9999,}", "a{3}b{1,2}c{9999,9999}"),
    ],
)
def test_only_repetitions_without_bounds_get_one(pattern: str, bounded: str) -> None:
    assert bound_repetitions(pattern) == bounded


EVIL = r"evil step (?P<iteration>\d+) ((?:\w+\s?)+)+!done"
EVIL_LINE = "evil step 12 " + "a" * 5000


def evil_detector(**declared: object) -> Detector:
    kind = type("Evil", (Detector,), {"name": "evil", "framework": "evil", "layer": "base", **declared})
    made: Detector = kind(None, make_context("evil", Path()))
    return made


GOOD = LogFormat(name="good", words=("step",), head=r"step (?P<iteration>\d+)", standalone=False)
DECLARED = [
    {"formats": (LogFormat(name="line", words=("evil",), head=EVIL, layout="groups"),)},
    {"formats": (LogFormat(name="line", words=("evil",), head=r"evil step (?P<iteration>\d+)", reject=EVIL),)},
    {"events": (EventPattern(type="training_started", words=("evil",), pattern=EVIL),)},
    {"marks": (Mark(words=("evil",), pattern=EVIL),)},
]


@pytest.mark.parametrize("declared", DECLARED, ids=["head", "reject", "event", "mark"])
def test_a_line_goes_on_without_a_detector_that_takes_too_long(declared: dict[str, object]) -> None:
    kind = type("Good", (Detector,), {"name": "good", "framework": "good", "layer": "base", "formats": (GOOD,)})
    metrics, reported = SelfMetrics(), []
    detectors = [evil_detector(**declared), kind(None, make_context("good", Path()))]
    processor = DetectorProcessor(detectors, metrics, on_pause=lambda *change: reported.append(change))
    origin = Origin(workload_uid="job")
    started = time.process_time()
    rows = 0
    for number in range(20):
        text = EVIL_LINE.replace("12", str(number))
        rows += len(processor.process([LogLine(origin=origin, stream="out", text=text, source="log")]).records) - 1
    assert rows >= 20, "the other detector's rows"
    assert is_within(time.process_time() - started, 10.0)
    assert metrics.registry.get_sample_value("lens_detector_overruns_total", {"detector": "evil"}) == 5
    assert metrics.registry.get_sample_value("lens_detector_paused", {"detector": "evil"}) == 1
    assert metrics.registry.get_sample_value("lens_detector_overruns_total", {"detector": "good"}) == 0
    assert reported == [("evil", "patterns took more than 0.05 s on 5 lines in a row")]


def test_headers_and_rows_of_tables_are_stopped_as_well() -> None:
    table = Table(name="t", words=("head",), header="head b", row=EVIL.replace("step", "(?P<cells>step)"))
    context = Context()
    engine = LineEngine([evil_detector(tables=(table,))])
    engine.read_line("head b", context)
    for _ in range(3):
        engine.read_line(EVIL_LINE, context)
    assert engine.overruns["evil"].count == 3


def test_the_end_of_a_very_long_line_is_not_looked_at_and_counted() -> None:
    kind = type("Good", (Detector,), {"name": "good", "framework": "good", "layer": "base", "formats": (GOOD,)})
    engine = LineEngine([kind(None, make_context("good", Path()))])
    assert engine.read_line("step 7 " + "x" * MAX_CHARACTERS)[0].iteration == 7
    assert engine.read_line("x" * MAX_CHARACTERS + " step 7 ") == []
    assert engine.read_line("x\r" * MAX_CHARACTERS + " step 7 ")[0].iteration == 7
    assert engine.cut_lines == 3
