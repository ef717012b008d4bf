"""The characters that one part of a parsed pattern matches, as sets of bits."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

Parsed = Sequence[tuple[Any, Any]]

CHARACTERS = (1 << 260) - 1
# Characters beyond Latin-1 are four classes: digits, other characters of words, blanks, all else.
_DIGIT, _WORD, _SPACE, _ELSE = (1 << 256, 1 << 257, 1 << 258, 1 << 259)
_IGNORECASE = int(re.IGNORECASE)


def is_character(part: tuple[Any, Any]) -> bool:
    """Whether a part is exactly one character of a line."""
    return str(part[0]) in ("LITERAL", "NOT_LITERAL", "IN", "ANY", "CATEGORY", "RANGE")


def characters_of(part: tuple[Any, Any], flags: int) -> int:
    """The characters that a part of one character can be, as bits."""
    name, argument = str(part[0]), part[1]
    if name == "LITERAL":
        return _bits(argument, flags)
    if name == "NOT_LITERAL":
        return CHARACTERS & ~_bits(argument, flags) if argument < 256 else CHARACTERS
    if name == "RANGE":
        low, high = argument
        bits = 0
        for code in range(low, min(high, 255) + 1):
            bits |= _bits(code, flags)
        return bits | (_DIGIT | _WORD | _SPACE | _ELSE if high > 255 else 0)
    if name == "CATEGORY":
        return _of_category(str(argument))
    if name == "IN":
        return _of_set(argument, flags)
    return CHARACTERS


def _of_set(items: Sequence[tuple[Any, Any]], flags: int) -> int:
    negated = bool(items) and str(items[0][0]) == "NEGATE"
    bits = 0
    for item in items[1:] if negated else items:
        found = characters_of(item, flags)
        if negated and str(item[0]) in ("LITERAL", "RANGE"):
            found &= (1 << 256) - 1  # one character of a class excludes no other of it
        bits |= found
    return CHARACTERS & ~bits if negated else bits


def characters_not_of(part: tuple[Any, Any], flags: int) -> int:
    """The characters that a part of one character is not."""
    name, argument = str(part[0]), part[1]
    if name == "LITERAL":
        return characters_of(("NOT_LITERAL", argument), flags)
    if name == "IN" and str(argument[0][0]) != "NEGATE":
        return _of_set([("NEGATE", None), *argument], flags)
    return CHARACTERS


def _of_category(name: str) -> int:
    kind = name.removeprefix("CATEGORY_").removeprefix("NOT_").removeprefix("UNI_").lower()
    bits = CATEGORIES[kind]
    return CHARACTERS & ~bits if "NOT_" in name else bits


@functools.lru_cache(maxsize=8192)
def _bits(code: int, flags: int) -> int:
    if flags & _IGNORECASE:
        return _bit(ord(chr(code).lower()[:1])) | _bit(ord(chr(code).upper()[:1])) | _bit(code)
    return _bit(code)


def _bit(code: int) -> int:
    if code < 256:
        return 1 << code
    letter = chr(code)
    return _DIGIT if letter.isdecimal() else _WORD if letter.isalnum() else _SPACE if letter.isspace() else _ELSE


def _latin(test: re.Pattern[str]) -> int:
    return sum(1 << code for code in range(256) if test.match(chr(code)))


CATEGORIES = {
    "digit": _latin(re.compile(r"\d")) | _DIGIT,
    "word": _latin(re.compile(r"\w")) | _DIGIT | _WORD,
    "space": _latin(re.compile(r"\s")) | _SPACE,
    "linebreak": 1 << 10,
}
