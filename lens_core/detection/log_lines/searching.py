"""Searches a line for a pattern in a bounded time, and quickly where the pattern begins with a known text.

A repetition without a bound (`*`, `+`, `{2,}`) repeats at most REACH times. A pattern that begins with a known text is
tried only where that text stands, and at PLACES such places at most (more for a text of one or two characters): the
`re` module looks for a literal beginning at the speed of `str.find`, but not after an assertion such as a word
boundary. A pattern for which `pattern_cost.py` proves that it then compares at most MAX_WORK characters of a line runs
on `re`; every other one runs on the slower module `regex`, which can stop after a time (`limited.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from .limited import LimitedPattern, Overruns
from .pattern_cost import work_of_search

Search = Callable[[str, int], "re.Match[str] | None"]

# The part of a line that is looked at.
MAX_CHARACTERS = 16_384
MAX_WORK = 8_000_000
REACH = 512
PLACES, PLACES_OF_SHORT_TEXTS = 16, 64
_SHORT = 3

_ASSERTIONS = re.compile(r"(?:\\b|\(\?<[!=](?:[^()\\]|\\.)*\))*")
_LITERAL = re.compile(r"(?:[A-Za-z0-9 _/:'\"<>=!@,`~%&;-]|\\[\[\]().|*+])+")
_GROUP = re.compile(rf"\(\?P<\w+>(?={_LITERAL.pattern}\))")
_QUANTIFIED = ("?", "*", "+", "{")
# The parts of a pattern's text: an escaped character, a set, the beginning of a group, a repetition, anything else.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?[^)]?)?|[*+]|\{(\d*),\}|.", re.DOTALL)


def beginning_of(pattern: str) -> str:
    """The text with which every match of a pattern begins; empty where that is not plain to see."""
    if _has_alternatives(pattern) or pattern.startswith("(?i"):
        return ""
    start = _ASSERTIONS.match(pattern)
    begin = start.end() if start is not None else 0
    group = _GROUP.match(pattern, begin)  # a named group of nothing but text
    literal = _LITERAL.match(pattern, group.end() if group is not None else begin)
    if literal is None:
        return ""
    text = literal.group()
    if pattern[literal.end() : literal.end() + 1] in _QUANTIFIED and literal.end() < len(pattern):
        text = text[:-2] if text[-2:-1] == "\\" else text[:-1]
    return re.sub(r"\\(.)", r"\1", text)


def _has_alternatives(pattern: str) -> bool:
    """Whether a `|` stands outside all brackets."""
    bare = re.sub(r"\\.|\[(?:\^?\])?(?:\\.|[^\]\\])*\]", "", pattern)
    depth = 0
    for letter in bare:
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and depth == 0:
            return True
    return False


def sought(pattern: str) -> str:
    """The beginning of a pattern's matches, if it is long enough for looking for it to be worth while."""
    beginning = beginning_of(pattern)
    return beginning if len(beginning) >= _SHORT else ""


def places_of(pattern: str) -> int:
    """At how many places a pattern is tried at most; 0 for one that may begin with anything."""
    beginning = beginning_of(pattern)
    return PLACES if len(beginning) >= _SHORT else PLACES_OF_SHORT_TEXTS if beginning else 0


@lru_cache(maxsize=4096)
def bound_repetitions(pattern: str) -> str:
    """The pattern with REACH as the bound of every repetition that has none."""
    parts: list[str] = []
    is_repeated = False
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        if text in ("*", "+") and not is_repeated:
            parts.append(f"{{{int(text == '+')},{REACH}}}")
        elif token.group(1) is not None:
            least = int(token.group(1) or 0)
            parts.append(f"{{{least},{max(least, REACH)}}}")
        else:
            parts.append(text)
        # A `?` or `+` after a repetition makes it lazy or possessive.
        is_repeated = not is_repeated and (text in ("*", "+", "?") or text[-1:] == "}" or token.group(1) is not None)
    return "".join(parts)


@lru_cache(maxsize=4096)
def is_proven(pattern: str) -> bool:
    """Whether a search of a line for the pattern, its repetitions bounded, compares at most MAX_WORK characters."""
    return work_of_search(pattern, MAX_CHARACTERS, REACH, places_of(pattern)) <= MAX_WORK


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    """The compiled pattern; every pipeline has the same ones, more of them than the `re` module remembers."""
    return re.compile(pattern)


def holder(pattern: str, name: str, overruns: Overruns) -> Callable[[str], bool]:
    """Whether a pattern is found in a text; quick for one that is nothing but known texts, `one|another`."""
    texts = [re.sub(r"\\(.)", r"\1", part) for part in pattern.split("|") if _LITERAL.fullmatch(part)]
    if len(texts) == pattern.count("|") + 1:
        return lambda text: any(map(text.__contains__, texts))
    search = searcher(pattern, name, overruns)
    return lambda text: search(text, 0) is not None


def searcher(pattern: str, name: str, overruns: Overruns) -> Search:
    """A function like `re.compile(pattern).search` whose time is bounded; `name` is the pattern's name in the log."""
    if not is_proven(pattern):
        return LimitedPattern(name, bound_repetitions(pattern), overruns).search
    compiled = _compile(bound_repetitions(pattern))
    beginning, places = beginning_of(pattern), places_of(pattern)
    if not beginning:
        return compiled.search
    match_at = compiled.match

    def search(text: str, start: int = 0) -> re.Match[str] | None:
        found = text.find(beginning, start)
        if found < 0:
            return None
        match = match_at(text, found)  # nearly always the first place is it
        return match if match is not None else search_behind(text, found)

    def search_behind(text: str, found: int) -> re.Match[str] | None:
        for _ in range(places - 1):
            found = text.find(beginning, found + 1)
            if found < 0:
                return None
            if (match := match_at(text, found)) is not None:
                return match
        return None

    return search
