"""Patterns that somebody wrote in a configuration: matched with a time limit, and looked at before they are used."""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, cast

import regex

try:
    from re import _parser as _re_parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _re_parser

TIME_LIMIT_SECONDS = 0.05
TIMEOUTS_UNTIL_PAUSED = 5
_PROBE_LENGTH = 3000
# Longer than the limit of a line: a machine that is busy for a moment must not refuse a good pattern.
_PROBE_LIMIT_SECONDS = 0.2
_PROBING_SECONDS = 0.6
_PROBE_UNITS = ("a", "A", "0", " ", "_", ".", "a ", "aA0 ", "0.")
_NO_LETTER = re.compile(r"[^a-z_\0]")
_CARRIERS = ("SUBPATTERN", "ATOMIC_GROUP")

logger = logging.getLogger("lens.patterns")


class LimitedPattern:
    """A regular expression that gives up on a line after a time limit, and altogether after too many of them in a row.

    `search` and `groupindex` are those of re.Pattern. The paused pattern finds nothing any more; that is logged once.
    """

    def __init__(self, name: str, pattern: str, time_limit_seconds: float = TIME_LIMIT_SECONDS) -> None:
        self.name = name
        self.timeouts = 0
        self.paused = ""
        self._in_a_row = 0
        self._limit = time_limit_seconds
        self._pattern = regex.compile(pattern)
        self.groupindex: Mapping[str, int] = self._pattern.groupindex

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The first match at or behind `start`; None also when the time was up."""
        if self.paused:
            return None
        try:
            match = self._pattern.search(text, start, timeout=self._limit)
        except TimeoutError:
            self._timed_out()
            return None
        self._in_a_row = 0
        return cast("re.Match[str] | None", match)

    def _timed_out(self) -> None:
        self.timeouts += 1
        self._in_a_row += 1
        if self._in_a_row >= TIMEOUTS_UNTIL_PAUSED:
            self.paused = f"took more than {self._limit:g} s on {self._in_a_row} lines in a row"
            logger.warning("Pattern paused. pattern=%s reason=%s", self.name, self.paused)


def why_not(pattern: str) -> str:
    """Why a pattern cannot be used to read metrics, and how to mend it; '' if it can."""
    try:
        re.compile(pattern)
        compiled = regex.compile(pattern)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    if not compiled.groupindex:
        return r"has no named group; name what it finds, for example step=(?P<iteration>\d+) loss=(?P<lm_loss>\S+)"
    if compiled.search(""):
        return "matches an empty line; let it require something"
    ends = time.monotonic() + _PROBING_SECONDS
    for probe in _probes(pattern):
        try:
            compiled.search(probe, timeout=_PROBE_LIMIT_SECONDS)
        except TimeoutError:
            shown = probe[:6]
            return (
                f"takes too long on long lines such as {shown!r}…; avoid a repetition inside a repetition, "
                r"and .* where \S+ or [^,]* is meant"
            )
        if time.monotonic() > ends:
            break
    return ""


def _probes(pattern: str) -> Iterator[str]:
    """Long lines on which a pattern that backtracks too much shows it."""
    literals = "".join(_literals(_parse(pattern)))
    units = dict.fromkeys([*_PROBE_UNITS, *literals, literals]) if literals else dict.fromkeys(_PROBE_UNITS)
    for unit in [*units][:40]:
        line = unit * (_PROBE_LENGTH // len(unit))
        yield line + "!"
        if literals:
            yield f"{line}!{literals}!"
            yield literals + line + "!"


def required_words(pattern: str) -> tuple[str, ...]:
    """Words (runs of letters and underscores, in lower case) that stand on every line that the pattern matches.

    A word counts only where the pattern itself says that no letter stands beside it.
    """
    text = "".join(_required(_parse(pattern))).lower()
    pieces = _NO_LETTER.sub(" ", text).split()
    return tuple(dict.fromkeys(piece for piece in pieces if "\0" not in piece))


def _parse(pattern: str) -> Any:
    """The parsed pattern; empty where it uses what only the module regex knows."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _re_parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return ()


def _required(parsed: Any) -> Iterator[str]:
    r"""The letters of every match in their order; a NUL where anything may stand, a blank for \b and \s."""
    yield "\0"
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            yield chr(argument)
        elif name in _CARRIERS:
            inner = argument[-1] if isinstance(argument, tuple) else argument
            yield from _required(inner)
        elif (name == "AT" and str(argument) == "AT_BOUNDARY") or _is_blanks(name, argument):
            yield " "
        else:
            yield "\0"
    yield "\0"


def _is_blanks(name: str, argument: Any) -> bool:
    r"""Whether this is \s, or \s+."""
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, _, inner = argument
        return least >= 1 and len(inner) == 1 and _is_blanks(str(inner[0][0]), inner[0][1])
    return name == "IN" and [str(item) for _, item in argument] == ["CATEGORY_SPACE"]


def _literals(parsed: Any) -> Iterator[str]:
    """All literal characters of a pattern, wherever they stand."""
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            yield chr(argument)
        elif name in (*_CARRIERS, "MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from _literals(argument[-1] if isinstance(argument, tuple) else argument)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from _literals(branch)
