"""Contract checks for detectors: what they declare is right, and cheap on lines that are not theirs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import cast

from ..detection.log_lines.engine import Declares, LineEngine
from ..detection.log_lines.pumps import slow_pump
from ..detection.log_lines.searching import MAX_CHARACTERS, bound_repetitions, is_proven
from ..model.event_types import EVENT_TYPES
from ..plugin_api.components import Detector

LAYERS = ("base", "wrapper", "")
_WORD = re.compile("[a-z_]+")
_SLOWEST_LINE_SECONDS = 1.0

# Ordinary lines of training jobs and their neighbourhood that no detector may take for a step.
_NOISE = (
    "",
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 10, in <module>',
    'INFO: 10.0.0.1:53412 - "GET /healthz HTTP/1.1" 200 OK',
    "Downloading model.safetensors:  45%|####5     | 4.50G/10.0G [01:00<01:13, 75.0MB/s]",
    "loading checkpoint shards: 100%|##########| 4/4 [00:10<00:00,  2.5s/it]",
    "2026-01-01 00:00:00,000 - root - INFO - the quick brown fox",
    "validation loss at iteration 7 is not what this is about",
    "\x1b[32mgreen\x1b[0m and nothing else",
)


def check_detector(detector: Detector | type[Detector]) -> None:
    """Check a detector's declarations; one with settings must be an instance."""
    name = detector.name
    assert detector.layer in LAYERS, f"{name}: layer must be one of {LAYERS}, it is {detector.layer!r}"
    assert any(_declared(detector)), f"{name} declares nothing by which it could recognise anything"
    _words_and_types_exist(detector)
    _patterns_are_bounded(detector)
    engine = LineEngine([cast(Declares, detector)])
    _examples_are_read(detector, engine)
    for line in _NOISE:
        for reading in engine.read_line(line):
            assert not reading.values, f"{name} takes {line!r} for a step: {dict(reading.values)}"
    _long_lines_are_quick(detector, engine)


def _declared(detector: Detector | type[Detector]) -> Iterator[object]:
    yield from (detector.modules, detector.distributions, detector.environment, detector.config_keys)
    yield from (detector.project_keywords, detector.formats, detector.events, detector.marks, detector.tables)


def _words_and_types_exist(detector: Detector | type[Detector]) -> None:
    """Every word can stand on a line, and every event has a type that Lens knows."""
    declared: list[Sequence[str]] = [form.words for form in detector.formats]
    declared += [event.words for event in detector.events]
    declared += [mark.words for mark in detector.marks]
    declared += [table.words for table in detector.tables]
    for words in declared:
        for word in words:
            assert _WORD.fullmatch(word), (
                f"{detector.name}: no line holds the word {word!r}; a word is a run of letters a-z and underscores, in "
                "lower case"
            )
    for event in detector.events:
        assert event.type in EVENT_TYPES, (
            f"{detector.name}: there is no event type {event.type!r}; there are {', '.join(sorted(EVENT_TYPES))}"
        )


def _patterns_are_bounded(detector: Detector | type[Detector]) -> None:
    """No line makes a pattern backtrack for long: each is linear, or no line was found that shows that it is not."""
    for name, pattern in _patterns(detector):
        if is_proven(pattern):
            continue
        pump = slow_pump(bound_repetitions(pattern), MAX_CHARACTERS)
        assert pump is None, (
            f"{detector.name}: the pattern of {name} takes too long on the line {pump}; "
            f"avoid a repetition inside a repetition, and .* where \\S+ or [^,]* is meant: {pattern}"
        )


def _patterns(detector: Detector | type[Detector]) -> Iterator[tuple[str, str]]:
    for form in detector.formats:
        yield form.name, form.head
        yield f"{form.name} (reject)", form.reject
    for event in detector.events:
        yield f"the event {event.type}", event.pattern
    for mark in detector.marks:
        yield f"the mark with the words {', '.join(mark.words)}", mark.pattern
    for table in detector.tables:
        yield f"{table.name} (header)", table.header
        yield f"{table.name} (row)", table.row


def _examples_are_read(detector: Detector | type[Detector], engine: LineEngine) -> None:
    for declared in detector.formats:
        if declared.example:
            readings = [reading for reading in engine.read_line(declared.example) if reading.format]
            assert readings, f"{detector.name}.{declared.name} does not read its own example {declared.example!r}"
    for event in detector.events:
        if event.example:
            types = [found.log_event.type for found in engine.read_line(event.example) if found.log_event]
            assert types, f"{detector.name}: the event {event.type} does not find its own example {event.example!r}"


def _long_lines_are_quick(detector: Detector | type[Detector], engine: LineEngine) -> None:
    """Lines made to make patterns backtrack: each example's words, then much of one thing."""
    heads = [text for declared in detector.formats for text in (" ".join(declared.words), declared.example)]
    heads += [text for declared in detector.events for text in (" ".join(declared.words), declared.example)]
    heads += [" ".join(declared.words) for declared in detector.marks]
    for head in filter(None, dict.fromkeys(heads)):
        for filler in ("a", "0", " ", "0.0 | ", "a: 1, ", "="):
            line = f"{head} {filler * (8000 // len(filler))} {head}!"
            seconds = min(_seconds(engine, line) for _ in range(2))
            assert seconds < _SLOWEST_LINE_SECONDS, f"{detector.name} takes {seconds:.2f} s for {line[:80]!r}…"


def _seconds(engine: LineEngine, line: str) -> float:
    started = time.perf_counter()
    engine.read_line(line)
    return time.perf_counter() - started
