"""Declared formats, patterns, marks and tables made ready to run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

from ...plugin_api.log_formats import EventPattern, LogFormat, Mark, Table
from .columns import Columns
from .layouts import LAYOUTS
from .limited import Overruns
from .numbers import parse_number
from .readings import FrameworkHint, LogEvent, Reading
from .searching import holder, searcher, sought
from .text import words_before

_LOOK_ALIKE = re.compile(
    r"\b(?:valid|validation|validate|validating|val|eval|evaluation|evaluate|evaluating|test|testing|sanity)\b", re.I
)
# Entries of a dictionary that say what its numbers are about: `"event": "validation"`, `"split": "val"`.
_PURPOSES = frozenset({"event", "split", "mode", "phase", "stage", "type"})
_OF_NO_TRAINING = re.compile(
    r"(?i)(?:val(?:id|idation|idate|idating)?|eval(?:uation|uate|uating)?|test|testing|dev)(?![a-z])"
)
_MAY_STAND_BEFORE = {"stderr", "stdout", "root", "train", "training", "info", "debug", "warning", "log", "message"}
NO_HEAD = "its head was not found"
LOOK_ALIKE = "it is about validation or a test"
_PREFIX_CHARACTERS = 400


class _Declared:
    """The common part of compiled formats, events, marks and tables: their detector, and the words that they need."""

    def __init__(self, words: Sequence[str], framework: str, layer: str, detector: str) -> None:
        self.words = frozenset(word.encode() for word in words)
        self.is_alone = False
        self.framework = framework
        self.layer = layer
        self.detector = detector


class CompiledFormat(_Declared):
    """A LogFormat that can be tried on a line."""

    def __init__(self, declared: LogFormat, framework: str, layer: str, overruns: Overruns) -> None:
        super().__init__(declared.words, framework, layer, overruns.detector)
        self.declared = declared
        self.is_alone = declared.is_alone
        self.name = f"{self.detector}.{declared.name}"
        self.is_somebodys_own = declared.time_limit_seconds > 0
        self._head = searcher(declared.head, self.name, overruns)
        self._requires = holder(declared.require, f"{self.name}.require", overruns) if declared.require else None
        self._rejects = holder(declared.reject, f"{self.name}.reject", overruns) if declared.reject else None
        self.beginning = "" if self.is_somebodys_own else sought(declared.head)
        self._layout = LAYOUTS[declared.layout]
        self.is_mapping = declared.layout == "mapping"
        self._columns = Columns(declared.fields, declared.loss, declared.unlabelled, declared.headlines)
        self.hints = (FrameworkHint(framework, layer, declared.confidence, self.name),) if framework else ()
        # Patterns of a configuration take precedence over built-in ones.
        self.rank = (not self.is_somebodys_own, not framework, -len(self.words), -declared.confidence, self.name)

    def parse_row(self, text: str, start: int = 0) -> tuple[Reading, int] | str:
        """The reading and where its head ended, or why there is none."""
        match = self._head(text, start)
        if match is None:
            return NO_HEAD
        before = text[start : match.start()]
        reason = self._similar_reading(before, text)
        if reason:
            return reason
        rest = text[match.end() :]
        if self.is_mapping:
            rest = rest.partition("}")[0] + ("}" if "}" in rest else "")
        pairs = [pair for pair in match.groupdict().items() if pair[1] is not None]
        pairs.extend(self._layout(before, rest))
        if self.is_mapping and _are_of_no_training(pairs):
            return LOOK_ALIKE
        values = self._columns.read_pairs(pairs)
        iteration = values.pop("iteration", None)
        return self._judge(values, iteration, text), match.end()

    def _similar_reading(self, before: str, text: str) -> str:
        if self._rejects is not None and self._rejects(text):
            return "it looks like something else (rejected by the format)"
        if self._requires is not None and not self._requires(text):
            return "what the format requires is not on it"
        if not before or before.isspace():
            return ""
        near = before[-_PREFIX_CHARACTERS:]
        lowered = near.lower()
        has_stem = "val" in lowered or "test" in lowered or "sanity" in lowered
        if has_stem and _LOOK_ALIKE.search(words_before(near)):
            return LOOK_ALIKE
        tail = near.rstrip(" :\t")
        if self.declared.standalone and tail[-1:].islower():
            word = tail[len(tail.rstrip(ascii_letters)) :]
            if word.islower() and word not in _MAY_STAND_BEFORE:
                return f"the word {word!r} stands before the step"
        return ""

    def _judge(self, values: dict[str, float], iteration: float | None, text: str) -> Reading:
        whole = int(iteration) if iteration is not None and abs(iteration) < 2**62 else None
        return Reading(
            format=self.name,
            framework=self.framework,
            values=values,
            iteration=whole,
            epoch_base=self.declared.epoch_base,
            joins=self.declared.joins,
            sums_up_epoch=self.declared.sums_up_epoch,
            hints=self.hints,
            text=text,
        )

    def lacks(self, reading: Reading) -> str:
        """Why a reading is not worth to be called a step; empty if it is."""
        needs = self.declared.needs
        has_step = reading.iteration is not None and "iteration" in needs
        if needs and not has_step and reading.values.keys().isdisjoint(needs):
            return f"none of {', '.join(needs)} is on it"
        if not reading.values and reading.iteration is None and reading.joins != "repeats":
            return "it holds no number"
        return ""


class CompiledEvent(_Declared):
    """An EventPattern that can be tried on a line."""

    def __init__(self, declared: EventPattern, framework: str, layer: str, overruns: Overruns) -> None:
        super().__init__(declared.words, framework if declared.names_framework else "", layer, overruns.detector)
        self.declared = declared
        name = f"{self.detector}.{declared.type}"
        self._search = searcher(declared.pattern, name, overruns)
        self.beginning = sought(declared.pattern)
        self.hint = FrameworkHint(self.framework, layer, declared.confidence, name)
        self.rank = (not self.framework, -len(self.words), -declared.confidence, self.detector)

    def parse_event(self, text: str) -> LogEvent | None:
        """Return the event of a line, or None."""
        match = self._search(text, 0)
        if match is None:
            return None
        numbers: dict[str, int | None] = {"iteration": None, "attempt": None}
        details: dict[str, Any] = {}
        for name, value in match.groupdict().items():
            if value is None:
                continue
            number = parse_number(value) if name not in ("path", "reason") else None
            if name in numbers:
                numbers[name] = int(number) if number is not None and abs(number) < 2**62 else None
            else:
                details[name] = value.strip() if number is None else number
        return LogEvent(self.declared.type, self.framework, numbers["iteration"], numbers["attempt"], details)


class CompiledMark(_Declared):
    """A Mark that can be looked for on a line."""

    def __init__(self, declared: Mark, framework: str, layer: str, overruns: Overruns) -> None:
        super().__init__(declared.words, framework, layer, overruns.detector)
        name = f"{self.detector}.mark"
        self.refines = frozenset(declared.refines)
        self.search = searcher(declared.pattern, name, overruns)
        self.beginning = sought(declared.pattern)
        self.hint = FrameworkHint(framework, layer, declared.confidence, name)
        self.confidence = declared.confidence
        # Marks that say the same, only not as surely.
        self.kin = (framework, self.refines)


# Each is a metric of its own.
_MOST_RANKS = 512
_GAPS = "  "
_GAP = re.compile(r" {2,}")


class CompiledTable(_Declared):
    """A Table: recognises its header, and reads rows below it."""

    def __init__(self, declared: Table, framework: str, layer: str, overruns: Overruns) -> None:
        super().__init__(declared.words, framework, layer, overruns.detector)
        self.declared = declared
        self.name = f"{self.detector}.{declared.name}"
        self.is_alone = declared.by_rank  # its header is a name and nothing else
        self._header = searcher(declared.header, f"{self.name}.header", overruns)
        self._row = searcher(rf"\A(?:{declared.row})", f"{self.name}.row", overruns)
        self._columns = Columns(declared.fields, declared.loss, headlines=declared.headlines)
        self.hints = (FrameworkHint(framework, layer, declared.confidence, self.name),) if framework else ()

    def header(self, text: str) -> tuple[str, ...] | None:
        """The columns' names, if the line is this table's header."""
        match = self._header(text, 0)
        if match is None:
            return None
        if self.declared.labelled:
            return ()
        if self.declared.by_rank:
            return (match.group("name"),)
        return tuple(name.strip() for name in self._split(match.group(0).strip()))

    def _split(self, text: str) -> list[str]:
        if self.declared.separator == _GAPS:
            return _GAP.split(text.strip())
        return text.split(self.declared.separator)

    def read_row(self, text: str, names: tuple[str, ...]) -> Reading | None:
        """A row under these names; None if the line is none."""
        match = self._row(text, 0)
        if match is None:
            return None
        if self.declared.by_rank:
            return self._value_of_rank(match, names[0], text)
        cells = self._split(match.group("cells").strip("\r\n"))
        if self.declared.labelled:
            inner = [cell.strip() for cell in cells]
            # A border on the left is an empty cell before the first name.
            inner = inner[1:] if inner and not inner[0] else inner
            names, cells = tuple(inner[::2]), inner[1::2]
        elif len(cells) != len(names) and not self.declared.loose:
            return None
        values = self._columns.read_pairs(
            (name, cell) for name, cell in zip(names, cells, strict=False) if cell.strip()
        )
        iteration = values.pop("iteration", None)
        needs = self.declared.needs
        if needs and not self.declared.labelled and not any(name in values for name in needs):
            return None
        if self.declared.labelled and not values and iteration is None:
            return None
        return Reading(
            format=self.name,
            framework=self.framework,
            values=values,
            iteration=int(iteration) if iteration is not None and abs(iteration) < 2**62 else None,
            joins="table" if self.declared.labelled else "",
            epoch_base=self.declared.epoch_base,
            sums_up_epoch=self.declared.sums_up_epoch,
            hints=self.hints,
            text=text,
        )

    def _value_of_rank(self, match: re.Match[str], name: str, text: str) -> Reading | None:
        """The figure of one rank."""
        rank = int(match.group("rank"))
        values = self._columns.read_pairs([(name, match.group("value"))])
        if rank >= _MOST_RANKS or not values:
            return None
        return Reading(
            format=self.name,
            framework=self.framework,
            values={f"{stored}/rank_{rank}": value for stored, value in values.items()},
            joins="beside",
            hints=self.hints,
            text=text,
        )


def _are_of_no_training(pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether a dictionary says that its numbers are of a validation or a test."""
    return any(key.lower() in _PURPOSES and _OF_NO_TRAINING.match(text) for key, text in pairs)
