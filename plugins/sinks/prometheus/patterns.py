"""Regular expressions of others, by Python's engine: those that it may take very long for are refused.

RE2, which the senders of such expressions are used to, takes time in proportion to the text; Python's engine tries all
ways to match. With few choices after each other, and none inside another, they are few.
"""

from __future__ import annotations

import re
import warnings

MOST_CHOICES = 3
# What counts in a pattern: an escaped letter, a class, the ends of a group, an alternative, a repeat (lazy or not).
_PIECES = re.compile(
    r"(?P<letter>\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?.)?)|(?P<close>\))|(?P<either>\|)"
    r"|(?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??)",
    re.DOTALL,
)
_IGNORE_CASE = "(?i)"


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, for `fullmatch`; `.` is any letter. Raises ValueError with what is wrong with it."""
    text = pattern.removeprefix(_IGNORE_CASE)
    flags = re.DOTALL | re.ASCII | (re.IGNORECASE if text != pattern else 0)
    try:
        with warnings.catch_warnings():
            # That `[[` may mean something else in another Python concerns nobody here.
            warnings.simplefilter("ignore", FutureWarning)
            found = re.compile(text, flags)
    except re.error as error:
        raise ValueError(f"{pattern[:40]!r} is not a regular expression: {error}") from None
    if _choices(text) > MOST_CHOICES:
        raise ValueError(f"{pattern[:40]!r} has more than {MOST_CHOICES} repeats or alternatives after each other")
    return found


class _Group:
    """State of a group: choices of the present alternative, and the largest number of an earlier one."""

    def __init__(self) -> None:
        self.present = self.most = 0
        self.has_alternatives = False

    def choices(self) -> int:
        """The most of all; alternatives are one more."""
        return max(self.present, self.most) + self.has_alternatives

    def begin_alternative(self) -> None:
        """Another one begins."""
        self.most, self.present, self.has_alternatives = max(self.present, self.most), 0, True


def _choices(pattern: str) -> int:
    """The most choices after each other. Raises ValueError for a choice that is repeated, and for what RE2 lacks."""
    groups = [_Group()]
    end_of_choice = -1
    for piece in _PIECES.finditer(pattern):
        kind, text = piece.lastgroup, piece.group()
        if kind == "open":
            if text not in ("(", "(?:"):
                raise ValueError(f"{text} is not supported in a regular expression")
            groups.append(_Group())
        elif kind == "close":
            inner = groups.pop().choices()
            groups[-1].present += inner
            end_of_choice = piece.end() if inner else end_of_choice
        elif kind == "either":
            groups[-1].begin_alternative()
        elif kind == "repeat":
            if piece.start() == end_of_choice:
                raise ValueError("a repeat of a repeat or of alternatives is not supported in a regular expression")
            groups[-1].present += 1
        elif text[1:].isdigit():
            raise ValueError("a regular expression cannot refer to what a group matched")
    return groups[0].choices() - groups[0].has_alternatives
