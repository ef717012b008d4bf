"""Every pattern of every installed detector, and the code around them, is linear in the length of a line."""

from __future__ import annotations

import functools
import re
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from lens_core.config.loading import load_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines import Context, LineEngine, layouts, numbers, text
from lens_core.detection.log_lines.limited import Overruns
from lens_core.detection.log_lines.pumps import pumps_of
from lens_core.detection.log_lines.searching import MAX_CHARACTERS, is_proven, searcher
from lens_core.plugin_api.components import Detector
from lens_core.plugin_host.host import PluginHost
from tests.durations import is_within
from tests.generated import part

DETECTORS = make_detectors(load_config(None, PluginHost.load(), {}).detectors)
# A search that grows with the square of the length takes at least a second for the longest line.
SLOW_SECONDS = 0.3
GROWTH = 3.0
_TRIES = 3


def patterns_of(detector: Detector) -> Iterator[str]:
    """All patterns that a detector declares."""
    for declared in detector.formats:
        yield declared.head
        if declared.reject:
            yield declared.reject
    yield from (event.pattern for event in detector.events)
    yield from (mark.pattern for mark in detector.marks)
    for table in detector.tables:
        yield table.header
        yield rf"\A(?:{table.row})"


def seconds(call: Callable[[str], object], line: str) -> float:
    """The CPU time of a call, the quickest of a few."""
    taken = []
    for _ in range(3):
        started = time.process_time()
        call(line)
        taken.append(time.process_time() - started)
        if taken[0] < 0.01:
            break
    return min(taken)


def is_superlinear(call: Callable[[str], object], make: Callable[[int], str]) -> bool:
    """Whether a call takes long for a long line, and far more than twice as long as for half of it."""
    whole, half = make(MAX_CHARACTERS), make(MAX_CHARACTERS // 2)
    taken = seconds(call, whole)
    if taken < 0.02 or not (taken > SLOW_SECONDS or taken > GROWTH * seconds(call, half)):
        return False
    # Other programs make one of two measurements long; the shortest of several is the call's own.
    taken, of_half = (min(seconds(call, line) for _ in range(_TRIES)) for line in (whole, half))
    return taken > SLOW_SECONDS or taken > GROWTH * of_half


@pytest.mark.parametrize("pattern", [r"\d+x", r"x.*yz"])
def test_patterns_that_are_not_linear_are_found(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "_TRIES", 1)  # more tries only acquit
    search = re.compile(pattern).search
    assert any(is_superlinear(search, pump.line) for pump in pumps_of(pattern))


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)
def test_every_pattern_is_proven(detector: Detector) -> None:
    assert [pattern for pattern in patterns_of(detector) if not is_proven(pattern)] == []


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)
def test_no_pattern_grows_faster_than_the_line(detector: Detector) -> None:
    slow = []
    for pattern in dict.fromkeys(patterns_of(detector)):
        search = searcher(pattern, "p", Overruns("p"))
        for pump in pumps_of(pattern):
            if is_superlinear(lambda line, search=search: search(line, 0), pump.line):  # type: ignore[misc]
                slow.append((pattern, str(pump)))
    assert slow == []


UNITS = [
    *("a", "1", " ", "-", ".", "a.", "1,", "a b ", "\t", "\r", "nan", "tensor(", "é", "━", "│ a "),
    *("'a': ", '"a":"', "{'loss': ", "a:'", "a: 1 ", "a=", ", ", "| ", "|a:"),
    *(
        "1/2 [",
        "[1:2",
        "1 00:",
        "(pid=1 ",
        "1: ",
        "INFO:root:",
        "\x1b[",
        "\x1b]",
        "[1;",
        "[repeated 1x across cluster]",
    ),
]
WRAPPED = [
    *(
        (f"layout {name}", lambda line, layout=layout: list(layout(line, line)))
        for name, layout in layouts.LAYOUTS.items()
    ),
    ("number", numbers.parse_number),
    ("colours", text.strip_colours),
    ("launchers", text.without_launchers),
    ("decoration", text.unwrap),
    ("prefixes", lambda line: text.words_before(line[-400:])),
    ("rank", text.printed_rank),
    ("time", text.printed_time),
    ("envelope", text.open_envelope),
]


@pytest.mark.parametrize(("name", "call"), WRAPPED, ids=[name for name, _ in WRAPPED])
def test_nothing_around_the_patterns_grows_faster_than_the_line(name: str, call: Callable[[str], object]) -> None:
    slow = []
    for before in ("", "'a': ", "[repeated 1x across cluster]", "1 ", '{"log": '):
        for unit in UNITS:
            for after in ("!", "", "}"):
                make = lambda size, before=before, unit=unit, after=after: before + unit * (size // len(unit)) + after  # noqa: E731
                if is_superlinear(call, make):
                    slow.append((before, unit, after))
    assert slow == []


@functools.cache
def engine_of_all() -> LineEngine:
    """The engine of all detectors, compiled once."""
    return LineEngine(DETECTORS)


@pytest.mark.parametrize("unit", UNITS)
def test_no_line_takes_long_in_the_whole_engine(unit: str) -> None:
    engine = engine_of_all()
    heads = sorted({item.example for kind in DETECTORS for item in kind.formats if item.example})
    for head in part(heads[:: max(1, len(heads) // 40)]):
        line = f"{head} {unit * (1_000_000 // len(unit))} {head}"
        started = time.process_time()
        engine.read_line(line, Context())
        assert is_within(time.process_time() - started, 0.5), (head, unit)
    assert all(not overruns.count for overruns in engine.overruns.values())


@pytest.mark.parametrize(
    "line",
    [
        "100000 | loss " + "1" * 4000 + "nan | lr 0",
        "a" * 4000 + "| epoch 008 | loss 1",
        "  0%|" + " " * 4000 + "| 1/" + "2" * 5000 + " [00:01<00:02]",
        "Checkpoint global_step" + "9" * 400 + " is ready now",
        "iter " + "9" * 5000 + ": loss " + "9" * 5000 + ", time 1ms",
    ],
)
def test_lines_with_endless_numbers_are_read_quickly(line: str) -> None:
    engine = engine_of_all()
    started = time.process_time()
    engine.read_line(line)
    assert is_within(time.process_time() - started, 0.1)
