"""Patterns for which no bound is proven: they run with a time limit, and are checked before they are used."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import regex

from .pattern_cost import parse
from .pumps import slow_pump

TIME_LIMIT_SECONDS = 0.05
OVERRUNS_UNTIL_PAUSED = 5
PAUSE_SECONDS = 60.0
SHOWN_CHARACTERS = 80
PROBED_CHARACTERS = 3000
_NO_LETTER = re.compile(r"[^a-z_\0]")
_CARRIERS = ("SUBPATTERN", "ATOMIC_GROUP")

logger = logging.getLogger("lens.patterns")


class LineTime:
    """The time that patterns may still take for the current line."""

    def __init__(self, seconds: float = TIME_LIMIT_SECONDS) -> None:
        self.limit = self.left = seconds


class Overruns:
    """The lines on which a detector's patterns took too long; after a few in a row they are paused for a while.

    `on_change` is called with the detector's name and the reason, or an empty reason once it is not paused any more.
    """

    def __init__(
        self,
        detector: str,
        line_time: LineTime | None = None,
        on_change: Callable[[str, str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.detector = detector
        self.line_time = line_time or LineTime()
        self._on_change = on_change
        self.count = 0
        self._in_a_row = 0
        self._paused_until = 0.0
        self._clock = clock

    @property
    def paused(self) -> str:
        """Why this detector's slow patterns are not tried at the moment; empty if they are."""
        if not self._paused_until:
            return ""
        if self._clock() >= self._paused_until:
            self._paused_until = 0.0
            logger.info("Patterns resumed. detector=%s", self.detector)
            if self._on_change is not None:
                self._on_change(self.detector, "")
            return ""
        return f"patterns took more than {self.line_time.limit:g} s on {OVERRUNS_UNTIL_PAUSED} lines in a row"

    def clear(self) -> None:
        """Record that a pattern was done in time."""
        self._in_a_row = 0

    def record_overrun(self, pattern: str, text: str) -> None:
        """Record that a pattern was stopped on a line."""
        self.count += 1
        self._in_a_row += 1
        if self._in_a_row >= OVERRUNS_UNTIL_PAUSED:
            self._in_a_row = 0
            self._paused_until = self._clock() + PAUSE_SECONDS
            logger.warning(
                "Patterns paused for %g s. detector=%s pattern=%s reason=%s line=%r",
                PAUSE_SECONDS,
                self.detector,
                pattern,
                self.paused,
                text[:SHOWN_CHARACTERS],
            )
            if self._on_change is not None:
                self._on_change(self.detector, self.paused)


class LimitedPattern:
    """A regular expression that gives up on a line when the line's time is up. `search` is that of re.Pattern."""

    def __init__(self, name: str, pattern: str, overruns: Overruns) -> None:
        self.name = name
        self._overruns = overruns
        self._pattern = regex.compile(pattern)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The first match at or after `start`; None also when the time was up or the detector is paused."""
        overruns, line = self._overruns, self._overruns.line_time
        if overruns.paused or line.left <= 0.0:
            return None
        started = time.perf_counter()
        try:
            match = self._pattern.search(text, start, timeout=line.left)
        except TimeoutError:
            line.left = 0.0
            overruns.record_overrun(self.name, text)
            return None
        line.left -= time.perf_counter() - started
        overruns.clear()
        return cast("re.Match[str] | None", match)


def why_not(pattern: str) -> str:
    """Why a pattern cannot be used to read metrics, and how to fix it; '' if it can."""
    try:
        re.compile(pattern)
        compiled = regex.compile(pattern)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    if not compiled.groupindex:
        return r"has no named group; name what it finds, for example step=(?P<iteration>\d+) loss=(?P<lm_loss>\S+)"
    if compiled.search(""):
        return "matches an empty line; let it require something"
    pump = slow_pump(pattern, PROBED_CHARACTERS)
    if pump is not None:
        return (
            f"takes too long on long lines such as {pump}; avoid a repetition inside a repetition, "
            r"and .* where \S+ or [^,]* is meant"
        )
    return ""


def required_words(pattern: str) -> tuple[str, ...]:
    """Words (runs of letters and underscores, in lower case) that stand on every line that the pattern matches.

    A word counts only where the pattern itself says that no letter stands beside it.
    """
    text = "".join(_required(parse(pattern))).lower()
    pieces = _NO_LETTER.sub(" ", text).split()
    return tuple(dict.fromkeys(piece for piece in pieces if "\0" not in piece))


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
