"""An upper bound for the work that the module `re` does to search a line for a pattern, proven from its parsed form.

`re` backtracks: a pattern may need time that grows with the square of a line's length, or exponentially. The bound here
counts the characters that are compared at one position of the line, over all ways to match each part. A repetition has
one way on only if what follows it cannot begin with a character that it repeats; the text from which such a repetition
starts is scanned once, however many positions are tried, if something must precede it that it cannot contain.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .pattern_characters import CATEGORIES, CHARACTERS, Parsed, characters_not_of, characters_of, is_character

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser

# The end of the line, which is no character but may come next.
_END = 1 << 260
_ANY = CHARACTERS | _END
# The largest number of scans of a text if the scans of neighbouring positions cannot overlap.
_SCANS = 4
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_UNROLLED = 64


class Cost(NamedTuple):
    """Characters compared by a part of a pattern, and in how many ways it can end."""

    work: float
    ways: float


def parse(pattern: str) -> Parsed:
    """The parsed pattern; empty where it uses what only the module `regex` knows."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed: Parsed = _parser.parse(pattern)
            return parsed
    except (re.error, RecursionError, OverflowError):
        return ()


def work_of_search(pattern: str, length: int, reach: int, places: int) -> float:
    """The most characters that a search of a line of this length compares; infinite where nothing is proven.

    `reach` is how often a repetition without a bound repeats at most; `places` is the number of positions at which
    the pattern is tried, 0 for every one that has its first letters.
    """
    parsed = parse(pattern)
    if not parsed:
        return math.inf if pattern else 1.0
    try:
        flags = int(parsed.state.flags)  # type: ignore[attr-defined]
        cost = _Analysis(reach).of_sequence(list(parsed), _ANY, flags, before=0, can_fail=False)
    except (RecursionError, OverflowError):
        return math.inf
    if _is_anchored(parsed):
        return cost.work + length
    return cost.work * (places or length / _spacing(parsed)) + length


class _Analysis:
    def __init__(self, reach: int) -> None:
        self._reach = reach

    def of_sequence(self, parts: Parsed, follow: int, flags: int, before: int, can_fail: bool) -> Cost:
        """The cost of parts one after another.

        `before` are the characters one of which must stand right before, `follow` those that may come next; `can_fail`
        is whether what comes after can refuse a text, so that other ways to match these parts are tried.
        """
        follows, fails = self._follows(parts, follow, flags), self._fails(parts, can_fail)
        total, ways = 0.0, 1.0
        letters = ""
        is_run = False  # whether the ways end at positions next to each other
        for index, part in enumerate(parts):
            if str(part[1]) == "AT_BOUNDARY" and not follows[index + 1] & ~CATEGORIES["word"]:
                before = CHARACTERS & ~CATEGORIES["word"]
            cost = self._of_part(part, follows[index + 1], flags, before, fails[index + 1])
            if is_run and str(part[0]) == "LITERAL":
                letters += chr(part[1])
                cost = Cost(2.0 / len(letters), 1.0)  # the letters stand at few of these positions
            else:
                if letters:
                    ways = max(1.0, ways / _period(letters))
                is_run = is_run and not letters and cost.ways <= 1.0 and is_character(part)
                letters = ""
            total += ways * cost.work
            if fails[index + 1] and cost.ways > 1.0:
                is_run = ways <= 1.0 and _is_of_characters(part)
                ways *= cost.ways
            before = self._separator(part, before, flags)
            if total == math.inf or ways > 1e12:
                return Cost(math.inf, math.inf)
        return Cost(total, max(1.0, ways / _period(letters)) if letters else ways)

    def _follows(self, parts: Parsed, follow: int, flags: int) -> list[int]:
        """The characters that may come at each part, and after the last."""
        follows = [follow]
        for part in reversed(parts):
            follows.append(first_of([part], follows[-1], flags))
        return follows[::-1]

    def _fails(self, parts: Parsed, can_fail: bool) -> list[bool]:
        """Whether what begins at each part, and after the last, can refuse a text."""
        fails = [can_fail]
        for part in reversed(parts):
            fails.append(fails[-1] or _can_fail(part))
        return fails[::-1]

    def _of_part(self, part: tuple[Any, Any], follow: int, flags: int, before: int, can_fail: bool) -> Cost:
        name, argument = str(part[0]), part[1]
        if name == "SUBPATTERN":
            _, added, removed, inner = argument
            return self.of_sequence(inner, follow, (flags | int(added)) & ~int(removed), before, can_fail)
        if name == "BRANCH":
            return self._of_branches(argument[1], follow, flags, before, can_fail)
        if name in _REPEATS:
            return self._of_repeat(name, argument, follow, flags, before, can_fail)
        if name == "ATOMIC_GROUP":
            return Cost(self.of_sequence(argument, _ANY, flags, before, False).work + 1.0, 1.0)
        if name in ("ASSERT", "ASSERT_NOT"):
            return Cost(self.of_sequence(argument[1], _ANY, flags, before, False).work + 1.0, 1.0)
        if name in ("GROUPREF", "GROUPREF_EXISTS"):
            return Cost(math.inf, math.inf)
        return Cost(1.0, 1.0)

    def _of_branches(self, branches: Sequence[Parsed], follow: int, flags: int, before: int, can_fail: bool) -> Cost:
        costs = [self.of_sequence(branch, follow, flags, before, can_fail) for branch in branches]
        firsts = [first_of(branch, follow, flags) for branch in branches]
        work = sum(cost.work for cost in costs)
        if _are_disjoint(firsts):
            return Cost(work, max(cost.ways for cost in costs))
        return Cost(work, sum(cost.ways for cost in costs))

    def _of_repeat(
        self, name: str, argument: tuple[Any, Any, Parsed], follow: int, flags: int, before: int, can_fail: bool
    ) -> Cost:
        least, most, inner = int(argument[0]), int(argument[1]), argument[2]
        most = max(least, self._reach) if most >= int(_parser.MAXREPEAT) else most
        repeated = characters_in(inner, flags)
        leaves = not (first_of(inner, 0, flags) & follow)
        is_one = name == "POSSESSIVE_REPEAT" or leaves or not can_fail
        scanned = float(min(most, _SCANS)) if before and not before & repeated else float(most)
        if len(inner) == 1 and is_character(inner[0]):
            return Cost(2.0 * max(scanned, 1.0), 1.0 if is_one else most - least + 1.0)
        again = first_of(inner, follow, flags) if most > 1 else 0
        one = self.of_sequence(inner, again | follow, flags, before, can_fail or most > 1)
        if most > _UNROLLED and (one.ways > 1.0 or is_nullable(inner)):
            return Cost(math.inf, math.inf)
        if one.ways <= 1.0:
            return Cost((one.work + 1.0) * max(scanned, 1.0), 1.0 if is_one else most - least + 1.0)
        work, ways = 0.0, 1.0
        for _ in range(most):
            work, ways = one.work + one.ways * work, one.ways * ways + 1.0
        return Cost(work, ways)

    def _separator(self, part: tuple[Any, Any], before: int, flags: int) -> int:
        """The characters one of which stands before what follows a part; 0 where there need be none nearby."""
        name, argument = str(part[0]), part[1]
        if is_character(part):
            return characters_of(part, flags)
        if name == "SUBPATTERN":
            inner_flags = (flags | argument[1]) & ~argument[2]
            for inner in argument[3]:
                before = self._separator(inner, before, inner_flags)
            return before
        if name in _REPEATS:
            least, _, inner = argument
            if least >= 1 and len(inner) == 1 and is_character(inner[0]):
                return characters_of(inner[0], flags)
            return before | characters_in(inner, flags) if before and least == 0 else 0
        if name == "BRANCH":
            return self._separator_of_branches(argument[1], before, flags)
        if name == "ASSERT_NOT" and argument[0] < 0 and len(argument[1]) == 1 and is_character(argument[1][0]):
            return characters_not_of(argument[1][0], flags)
        return before if name in ("AT", "ASSERT", "ASSERT_NOT") else 0

    def _separator_of_branches(self, branches: Sequence[Parsed], before: int, flags: int) -> int:
        found = 0
        for branch in branches:
            if _is_anchored(branch):
                continue  # one position of a line, which cannot make up many scans
            one = before
            for part in branch:
                one = self._separator(part, one, flags)
            if not one:
                return 0
            found |= one
        return found


def first_of(parts: Parsed, follow: int, flags: int) -> int:
    """The characters with which parts, and what follows them where they may be empty, can begin."""
    for part in reversed(parts):
        follow = _first_of_part(part, follow, flags)
    return follow


def _first_of_part(part: tuple[Any, Any], follow: int, flags: int) -> int:
    name, argument = str(part[0]), part[1]
    if is_character(part):
        return characters_of(part, flags)
    if name == "SUBPATTERN":
        return first_of(argument[3], follow, (flags | argument[1]) & ~argument[2])
    if name == "BRANCH":
        return functools.reduce(operator.or_, (first_of(branch, follow, flags) for branch in argument[1]))
    if name in _REPEATS:
        return first_of(argument[2], follow, flags) | (follow if argument[0] == 0 else 0)
    if name == "ATOMIC_GROUP":
        return first_of(argument, follow, flags)
    if name == "AT":
        return _END | 1 << 10 if "END" in str(argument) else follow
    if name == "ASSERT" and argument[0] > 0:
        return follow & first_of(argument[1], _ANY, flags)
    if name == "ASSERT_NOT" and argument[0] > 0 and len(argument[1]) == 1 and is_character(argument[1][0]):
        return follow & (characters_not_of(argument[1][0], flags) | _END)
    return _ANY if "GROUPREF" in name else follow


def characters_in(parts: Parsed, flags: int) -> int:
    """All characters that may stand in a match of parts."""
    found = 0
    for part in parts:
        name, argument = str(part[0]), part[1]
        if is_character(part):
            found |= characters_of(part, flags)
        elif name not in ("AT", "ASSERT", "ASSERT_NOT"):
            inner = list(_inner(part))
            found |= _ANY if not inner else 0
            for one in inner:
                found |= characters_in(one, flags | (argument[1] if name == "SUBPATTERN" else 0))
    return found


def is_nullable(parts: Parsed) -> bool:
    """Whether parts may match the empty text."""
    for part in parts:
        name, argument = str(part[0]), part[1]
        if is_character(part):
            return False
        if name == "BRANCH" and not any(is_nullable(branch) for branch in argument[1]):
            return False
        if name in _REPEATS and argument[0] > 0 and not is_nullable(argument[2]):
            return False
        if name in ("SUBPATTERN", "ATOMIC_GROUP") and not is_nullable(next(_inner(part))):
            return False
    return True


def _inner(part: tuple[Any, Any]) -> Iterator[Parsed]:
    name, argument = str(part[0]), part[1]
    if name == "BRANCH":
        yield from argument[1]
    elif name in ("SUBPATTERN", *_REPEATS):
        yield argument[-1]
    elif name == "ATOMIC_GROUP":
        yield argument


def _can_fail(part: tuple[Any, Any]) -> bool:
    """Whether a part can refuse a text: one that may be left out cannot."""
    name, argument = str(part[0]), part[1]
    if name in _REPEATS:
        return bool(argument[0] > 0)
    if name == "SUBPATTERN":
        return any(_can_fail(inner) for inner in argument[3])
    return True


def _are_disjoint(sets: Sequence[int]) -> bool:
    seen = 0
    for one in sets:
        if one & seen:
            return False
        seen |= one
    return True


def _is_anchored(parsed: Parsed) -> bool:
    """Whether a pattern matches only at the beginning of a line."""
    for part in parsed:
        name, argument = str(part[0]), part[1]
        if name == "AT":
            return str(argument) in ("AT_BEGINNING", "AT_BEGINNING_STRING")
        if name not in ("ASSERT", "ASSERT_NOT"):
            return name == "SUBPATTERN" and _is_anchored(argument[3])
    return False


def _spacing(parsed: Parsed) -> int:
    """The least distance between two positions at which the letters stand with which every match begins."""
    return _period(_leading_letters(parsed))


def _period(letters: str) -> int:
    """The least distance between two positions at which letters stand."""
    letters = letters.lower()
    periods = (shift for shift in range(1, len(letters)) if letters.startswith(letters[shift:]))
    return next(periods, max(1, len(letters)))


def _is_of_characters(part: tuple[Any, Any]) -> bool:
    """Whether a part is a repetition of one character, perhaps in a group."""
    if str(part[0]) == "SUBPATTERN":
        return len(part[1][3]) == 1 and _is_of_characters(part[1][3][0])
    return str(part[0]) in _REPEATS and len(part[1][2]) == 1 and is_character(part[1][2][0])


def _leading_letters(parsed: Parsed) -> str:
    letters = ""
    for part in parsed:
        name, argument = str(part[0]), part[1]
        if name == "LITERAL":
            letters += chr(argument)
        elif name == "SUBPATTERN" and (letters or not _is_at_most_one(part)):
            inner = _leading_letters(argument[3])
            letters += inner
            if len(inner) < len(argument[3]):
                return letters
        elif name in ("AT", "ASSERT", "ASSERT_NOT") or (not letters and _is_at_most_one(part)):
            continue
        else:
            return letters
    return letters


def _is_at_most_one(part: tuple[Any, Any]) -> bool:
    """Whether a part is one character or none."""
    if str(part[0]) == "BRANCH":
        return all(len(branch) == 0 or (len(branch) == 1 and _is_at_most_one(branch[0])) for branch in part[1][1])
    if str(part[0]) == "SUBPATTERN":
        return len(part[1][3]) == 1 and _is_at_most_one(part[1][3][0])
    return is_character(part) or str(part[0]) == "AT"
