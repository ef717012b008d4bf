"""Mistakes of a configuration, each with its place and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from ..base.errors import ConfigurationError

_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "day": 86400, "days": 86400}
_BYTES = {
    "b": 1,
    **{f"{letter}{end}": 1024**power for power, letter in enumerate("kmgt", 1) for end in ("", "i", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
_WITH_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def number_hint(field: str, written: str) -> str:
    """Return the plain number to write in place of `10s` or `10GiB`, in the unit that the field's name says; or ''."""
    found = _WITH_UNIT.fullmatch(written)
    if found is None:
        return ""
    number, unit = float(found[1]), found[2].lower()
    if field.endswith("_seconds") and unit in _SECONDS:
        return f"it is a number of seconds: write {_format_number(number * _SECONDS[unit])}"
    if field.endswith("_days") and unit in _SECONDS:
        return f"it is a number of days: write {_format_number(number * _SECONDS[unit] / 86400)}"
    if field.endswith("_bytes") and unit in _BYTES:
        return f"it is a number of bytes: write {_format_number(number * _BYTES[unit])}"
    return f"write the number without its unit: {found[1]}"


def _format_number(number: float) -> str:
    return f"{number:.0f}" if number == round(number) else f"{number:g}"


def yaml_hint(text: str, line_number: int, column: int, problem: str) -> str:
    """Return a hint for a line that is not YAML."""
    lines = text.splitlines()
    line = lines[line_number - 1] if 0 < line_number <= len(lines) else ""
    if "escape" in problem:
        return r" in double quotes a backslash begins an escape; write the text in single quotes, as in '\d'"
    if "${" in line and "{" in line.replace("${", ""):
        return ' inside {…} put "${NAME}" in quotes'
    if line[: max(column, 1)].strip(" ") == "\t" or line.startswith("\t"):
        return " indent with spaces, not with tabs"
    if odd := _indentation(lines, line_number):
        return odd
    if ": " in line.partition(": ")[2]:
        return ' put a text that holds ": " in quotes'
    if re.search(r"[:\-]\s+[%@`*&!]", line):
        return " put a text that begins with a special character in quotes"
    return " check the indentation and the quotes of this line and of the one before"


def _indentation(lines: list[str], number: int) -> str:
    """Whether a line, or the one before it, is indented as no line above it, and how those are."""
    for place in (number, number - 1):
        if not 0 < place <= len(lines) or not lines[place - 1].strip():
            continue
        indent = _indent(lines[place - 1])
        above = [line for line in lines[: place - 1] if line.strip() and not line.lstrip().startswith("#")]
        if not above:
            continue
        last = above[-1]
        levels = sorted({_indent(line) for line in above if _indent(line) <= max(indent, _indent(last))})
        is_new = indent > _indent(last) and last.rstrip().endswith((":", "-"))
        if indent in levels or is_new:
            continue
        told = " or ".join(str(level) for level in levels[-2:])
        return f" line {place} is indented by {indent} spaces; the lines above it by {told}"
    return ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


class Place(NamedTuple):
    """A line and a column, both counted from 1; (0, 0) where the text is not from a file."""

    line: int
    column: int


NO_PLACE = Place(0, 0)


class Problem(NamedTuple):
    """One thing to fix; sorts by its place."""

    file: str
    place: Place
    message: str

    def __str__(self) -> str:
        if self.place == NO_PLACE:
            return f"{self.file}: {self.message}"
        return f"{self.file}:{self.place.line}:{self.place.column}: {self.message}"


class InvalidConfiguration(ConfigurationError):
    """A configuration with problems; its text is one line for each, ready to be shown."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        title = "the configuration has a problem" if count == 1 else f"the configuration has {count} problems"
        super().__init__("\n".join([f"{title}:", *map(str, self.problems)]))


class Problems:
    """Collects what is found while a file is read."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []
        self._notices: list[Problem] = []

    def append_error(self, place: Place, message: str) -> None:
        """Note one problem."""
        self.found.append(Problem(self.file, place, message))

    def append_notice(self, place: Place, message: str) -> None:
        """Note something that is no error but that its author should know."""
        self._notices.append(Problem(self.file, place, message))

    @property
    def notices(self) -> list[str]:
        """All notices as text, in the order of their places."""
        return [str(notice) for notice in sorted(set(self._notices))]

    def raise_if_any(self) -> None:
        """Raise InvalidConfiguration when anything was found."""
        if self.found:
            raise InvalidConfiguration(self.found)


def suggestion(word: str, known: Sequence[str], *, otherwise: str = "") -> str:
    """`did you mean …?` for the nearest known word, else what there is (`otherwise` names it), at most twelve."""
    lowered = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), [*lowered], n=1, cutoff=0.6)
    if close:
        return f"did you mean {lowered[close[0]]}?"
    if not known:
        return f"there are no {otherwise}" if otherwise else "remove it"
    listed = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"{otherwise or 'known here'}: {listed}"
