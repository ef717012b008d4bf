"""Reads the exception that ended a Python program: the last line of its traceback.

`Traceback (most recent call last):` begins a traceback, whose last line names the exception at its beginning or after
a logger's prefix. An exception of a thread, of an object that is cleaned up or of an asyncio task ends no program.
"""

from __future__ import annotations

import re

from .readings import LogEvent

# Parts of the words (in lower case) of a line that may begin a traceback or name an exception.
FAILURE_STEMS = frozenset(b"error exception exit expired traceback failure timeout".split())
_REASON_CHARACTERS = 300
_NAME = r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Exit|Expired|Failure|Timeout)"
_AT_BEGINNING = re.compile(rf"(?:E\s+)?(?P<reason>{_NAME})(?P<rest>:.*)?\s*$", re.DOTALL)
_BEHIND_PREFIX = re.compile(rf"(?:[\])|>:] |\t)(?P<reason>{_NAME})(?P<rest>: .*|:)?\s*$", re.DOTALL)
_ANYWHERE = re.compile(rf"(?<![\w.])(?P<reason>{_NAME})(?P<rest>:.*)?\s*$", re.DOTALL)
_DIGITS = re.compile(r"\d+")
_BEGINS = "Traceback (most recent call last)"
_ENDS_NOTHING = (
    "Exception ignored in",
    "Exception in thread",
    "Task exception was never",
    "Future exception was never",
)
# Their own events say more: memory, a signal, a watchdog, a person.
_OF_OTHERS = re.compile(r"OutOfMemory|KeyboardInterrupt|SystemExit|GeneratorExit|StopIteration")


class TracebackState:
    """The traceback that a stream is in: none, one that may end the program, or one that does not."""

    __slots__ = ("is_fatal", "is_open", "prefix")

    def __init__(self) -> None:
        self.is_open = False
        self.is_fatal = True
        self.prefix = ""  # what stands before its first line, with every number as 0


def read_exception(text: str, state: TracebackState) -> LogEvent | None:
    """Return the failure that a line tells of; `state` is kept from line to line of one stream."""
    if any(text.find(words, 0, 300) >= 0 for words in _ENDS_NOTHING):
        state.is_fatal = False
        return None
    begins = text.find(_BEGINS, 0, 600)
    if begins >= 0:
        state.is_open, state.prefix = True, _shape(text[:begins])
        return None
    match = _AT_BEGINNING.match(text)
    if match is None and state.is_open and text[:1] not in " \t":
        match = _BEHIND_PREFIX.search(text[:2000]) or _behind_same_prefix(text[:2000], state.prefix)
    if match is None:
        return None
    is_fatal, state.is_open, state.is_fatal = state.is_fatal, False, True
    if not is_fatal or _OF_OTHERS.search(match.group("reason")):
        return None
    reason = (match.group("reason") + (match.group("rest") or "")).strip()
    return LogEvent("training_failed", "", None, None, {"reason": reason[:_REASON_CHARACTERS]})


def _behind_same_prefix(text: str, prefix: str) -> re.Match[str] | None:
    """The exception after what stands before each line of its traceback, such as the time at which it was printed."""
    match = _ANYWHERE.search(text) if prefix else None
    return match if match is not None and _shape(text[: match.start()]) == prefix else None


def _shape(text: str) -> str:
    return _DIGITS.sub("0", text)
