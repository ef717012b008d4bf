"""Quick regular-expression search: a pattern that must begin with a known text is tried only where that text stands.

The `re` module looks for a literal beginning at the speed of `str.find`, but not behind an assertion such as a word
boundary; there it tries every position. Patterns here almost always begin like that.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Search = Callable[[str, int], "re.Match[str] | None"]

_ASSERTIONS = re.compile(r"(?:\\b|\(\?<!(?:[^()\\]|\\.)*\))*")
_LITERAL = re.compile(r"(?:[A-Za-z0-9 _/:'\"<>=!@,`~%&;-]|\\[\[\]().|*+])+")
_GROUP = re.compile(rf"\(\?P<\w+>(?={_LITERAL.pattern}\))")
_QUANTIFIED = ("?", "*", "+", "{")


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
    return beginning if len(beginning) >= 3 else ""


def holder(pattern: str) -> Callable[[str], bool]:
    """Whether a pattern is found in a text; quick for one that is nothing but known texts, `one|another`."""
    texts = [re.sub(r"\\(.)", r"\1", part) for part in pattern.split("|") if _LITERAL.fullmatch(part)]
    if len(texts) == pattern.count("|") + 1:
        return lambda text: any(one in text for one in texts)
    search = re.compile(pattern).search
    return lambda text: search(text) is not None


def searcher(pattern: str) -> Search:
    """A function like `re.compile(pattern).search`, quick for patterns that begin with a known text."""
    compiled = re.compile(pattern)
    beginning = sought(pattern)
    if not beginning:
        return compiled.search

    def search(text: str, start: int = 0) -> re.Match[str] | None:
        found = text.find(beginning, start)
        return compiled.search(text, found) if found >= 0 else None

    return search
