"""Lines made of a pattern's own parts on which backtracking shows: a beginning, much of one thing, an end.

For every repetition of a pattern there is the shortest text that leads to it, and a few texts that it repeats.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import regex

from .pattern_characters import Parsed, characters_of, is_character
from .pattern_cost import parse

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_CANDIDATES = "a0 .,:;=-_/|'\"[]{}()<>+%eE\t"
_ENDS = ("!", "\x00", "")
# Longer than the limit of a line: a machine that is busy for a moment must not refuse a good pattern.
SLOW_SECONDS = 0.25
_TRYING_SECONDS = 3.0


class Pump(NamedTuple):
    """A line that can be made of any length."""

    before: str
    repeated: str
    after: str

    def line(self, length: int) -> str:
        """The line with about so many characters."""
        return self.before + self.repeated * max(1, length // len(self.repeated)) + self.after

    def __str__(self) -> str:
        end = f" + {self.after!r}" if self.after else ""
        return f"{self.before!r} + {self.repeated!r} * n{end}"


def slow_pump(pattern: str, length: int) -> Pump | None:
    """A line of this length for which a search takes long; None if none was found."""
    try:
        compiled = regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError):
        return None
    ends = time.monotonic() + _TRYING_SECONDS
    for pump in pumps_of(pattern):
        try:
            compiled.search(pump.line(length), timeout=SLOW_SECONDS)
        except TimeoutError:
            return pump
        if time.monotonic() > ends:
            break
    return None


def pumps_of(pattern: str) -> Iterator[Pump]:
    """Lines that lead to each repetition of a pattern and repeat what it repeats, or the beginning of the pattern."""
    parsed = parse(pattern)
    seen: set[Pump] = set()
    flags = parsed.state.flags if parsed else 0  # type: ignore[attr-defined]
    whole = _shortest(parsed, flags)
    for before, repeated in itertools.chain([("", whole)] if whole else [], _repetitions(parsed, "", flags)):
        # The last end has all letters that an engine may look for before it tries.
        for end in (*_ENDS, f"!{whole}!"):
            pump = Pump(before, repeated, end)
            if repeated and pump not in seen:
                seen.add(pump)
                yield pump


def _repetitions(parts: Parsed, before: str, flags: int) -> Iterator[tuple[str, str]]:
    for part in parts:
        name, argument = str(part[0]), part[1]
        if name in _REPEATS:
            if argument[1] > 1:
                for repeated in _repeated(argument[2], flags):
                    yield before, repeated
                if before:
                    yield "", before + _shortest(argument[2], flags)
            yield from _repetitions(argument[2], before, flags)
        elif name == "SUBPATTERN":
            yield from _repetitions(argument[3], before, (flags | argument[1]) & ~argument[2])
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from _repetitions(branch, before, flags)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from _repetitions(argument[1], before, flags)
        elif name == "ATOMIC_GROUP":
            yield from _repetitions(argument, before, flags)
        before += _shortest([part], flags)


def _repeated(inner: Parsed, flags: int) -> Iterator[str]:
    """Texts that a repetition may repeat: its shortest, and the characters that belong to many sets."""
    yield _shortest(inner, flags)
    if len(inner) == 1 and is_character(inner[0]):
        allowed = characters_of(inner[0], flags)
        yield from (letter for letter in _CANDIDATES if allowed >> ord(letter) & 1)
    else:
        sets = [characters_of(part, flags) for part in _characters(inner)]
        yield from (letter for letter in _CANDIDATES[:6] if any(one >> ord(letter) & 1 for one in sets))


def _characters(parts: Parsed) -> Iterator[tuple[Any, Any]]:
    for part in parts:
        name, argument = str(part[0]), part[1]
        if is_character(part):
            yield part
        elif name in _REPEATS:
            yield from _characters(argument[2])
        elif name == "SUBPATTERN":
            yield from _characters(argument[3])
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from _characters(branch)


def _shortest(parts: Parsed, flags: int) -> str:
    """A short text that matches parts, as far as one can tell without looking around."""
    text = ""
    for part in parts:
        name, argument = str(part[0]), part[1]
        if name == "LITERAL":
            text += chr(argument)
        elif is_character(part):
            text += _member(characters_of(part, flags))
        elif name == "SUBPATTERN":
            text += _shortest(argument[3], flags)
        elif name == "ATOMIC_GROUP":
            text += _shortest(argument, flags)
        elif name == "BRANCH":
            text += min((_shortest(branch, flags) for branch in argument[1]), key=len)
        elif name in _REPEATS:
            text += _shortest(argument[2], flags) * min(int(argument[0]), 1000)
        elif name == "ASSERT" and argument[0] > 0 and part is parts[-1]:
            text += _shortest(argument[1], flags)
    return text


def _member(allowed: int) -> str:
    letters: Sequence[str] = [letter for letter in _CANDIDATES if allowed >> ord(letter) & 1]
    if letters:
        return letters[0]
    return next((chr(code) for code in range(256) if allowed >> code & 1), "")
