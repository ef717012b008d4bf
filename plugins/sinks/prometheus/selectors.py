"""Selectors of series (`match[]`), and the patterns in them.

Regular expressions of others, by Python's engine: those that it may take very long for are refused.

RE2, which the senders of such expressions are used to, takes time in proportion to the text; Python's engine tries all
ways to match. With few choices after each other, and none inside another, they are few.

Series selectors, as `match[]` of a federation holds them: `name{label="value", other!~"a|b"}`.

Grammar: prometheus.io/docs, querying basics, instant vector selectors. Regular expressions must match the whole value.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from lens_core import BadRequest

MOST_CHOICES = 3
# Counted elements of a pattern: an escaped letter, a class, the end of a group, an alternative, a repeat (lazy or not).
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


METRIC_NAME = "__name__"
_MAX_LETTERS = 2000
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SPACE = re.compile(r"\s*")
_OPERATOR = re.compile(r"=~|!~|!=|=")
_TEXT = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`")
_ESCAPE = re.compile(r"\\(?:x(?P<byte>[0-9a-fA-F]{2})|u(?P<point>[0-9a-fA-F]{4})|(?P<letter>.))", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'"}

Selector: TypeAlias = Callable[[Mapping[str, str]], bool]


class _Matcher(NamedTuple):
    label: str
    holds: Callable[[str], bool]


def any_of(texts: Sequence[str]) -> Selector:
    """Whether labels (the metric's name is `__name__`) are selected by one of these. Raises BadRequest."""
    selectors = [_selector(text) for text in texts]
    return lambda labels: any(all(one.holds(labels.get(one.label, "")) for one in each) for each in selectors)


def _selector(text: str) -> list[_Matcher]:
    try:
        if len(text) > _MAX_LETTERS:
            raise ValueError(f"has more than {_MAX_LETTERS} letters")
        matchers = _Reader(text).read()
        if all(one.holds("") for one in matchers):
            raise ValueError("selects everything: it needs a matcher that an empty value does not match")
    except ValueError as error:
        raise BadRequest(f"match[]={text[:200]!r}: {error}") from None
    return matchers


class _Reader:
    """Reads one selector from left to right; raises ValueError."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def read(self) -> list[_Matcher]:
        """All of it."""
        name = self._match_pattern(_NAME)
        matchers = [_matcher(METRIC_NAME, "=", name)] if name else []
        if self._match_letter("{"):
            while not self._match_letter("}"):
                matchers.append(self._read_matcher())
                if not self._match_letter(",") and not self._next_is("}"):
                    raise self._unexpected("a comma or }")
        self._match_pattern(_SPACE)
        if self._place < len(self._text):
            raise self._unexpected("the end")
        if sum(one.label == METRIC_NAME for one in matchers) > 1 and name:
            raise ValueError("names the metric twice")
        return matchers

    def _read_matcher(self) -> _Matcher:
        label = self._match_pattern(_LABEL) or self._raise_missing("the name of a label")
        operator = self._match_pattern(_OPERATOR) or self._raise_missing("one of = != =~ !~")
        quoted = self._match_pattern(_TEXT) or self._raise_missing("a text in quotes")
        return _matcher(label, operator, _unquoted(quoted))

    def _match_pattern(self, pattern: re.Pattern[str]) -> str:
        """Match the pattern here, after blanks; '' if it does not match."""
        start = self._skip_blanks()
        found = pattern.match(self._text, start)
        if found is None:
            return ""
        self._place = found.end()
        return found.group()

    def _match_letter(self, letter: str) -> bool:
        if not self._next_is(letter):
            return False
        self._place = self._skip_blanks() + 1
        return True

    def _next_is(self, letter: str) -> bool:
        return self._text.startswith(letter, self._skip_blanks())

    def _skip_blanks(self) -> int:
        found = _SPACE.match(self._text, self._place)
        return found.end() if found is not None else self._place

    def _raise_missing(self, wanted: str) -> str:
        raise self._unexpected(wanted)

    def _unexpected(self, wanted: str) -> ValueError:
        rest = self._text[self._skip_blanks() :]
        return ValueError(f"expected {wanted}, found {rest[:20]!r}" if rest else f"expected {wanted} at the end")


def _unquoted(quoted: str) -> str:
    if quoted[0] == "`":
        return quoted[1:-1]
    return _ESCAPE.sub(_unescaped, quoted[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    letter, number = found["letter"], found["byte"] or found["point"]
    if number:
        return chr(int(number, 16))
    if letter not in _LETTERS:
        raise ValueError(f"\\{letter} is not an escape")
    return _LETTERS[letter]


def _matcher(label: str, operator: str, value: str) -> _Matcher:
    if operator in ("=", "!="):
        return _Matcher(label, (lambda found: found == value) if operator == "=" else (lambda found: found != value))
    matches = compiled(value).fullmatch
    if operator == "=~":
        return _Matcher(label, lambda found: matches(found) is not None)
    return _Matcher(label, lambda found: matches(found) is None)
