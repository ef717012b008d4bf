"""Prefilter of lines: a look-up, instead of a search, of the formats to try on a line.

What a line says depends on its words, and a process prints the same few sentences repeatedly with other numbers
in them. So a line's *row* (its letters in lower case, blanks for all else) is looked up first among the rows that were
nobody's before, at the speed of C. A new row is cut into words; it is nobody's if no declaration asks for them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence, Set
from typing import TypeVar

import msgspec

from .bars import BAR_TEXT
from .checkpoints import CHECKPOINT_OBJECTS, CHECKPOINT_VERBS
from .compiled import CompiledEvent, CompiledFormat, CompiledMark, CompiledTable
from .exceptions import FAILURE_STEMS
from .general import TEXTS_OF_NUMBERS
from .general_words import MEASURE_STEMS, WORDS, may_count
from .resuming import LOADED_OBJECTS, LOADING_VERBS, RESUMING_VERBS
from .words import OF_PREFIXES, rarest, row_of, rows_of

BAR_WORD = b"it"
_MEMO_LIMIT = 8192
_ROWS_LIMIT = 4096
_IDLE_LIMIT = 16_384
# Longer rows hardly come again, and would cost memory.
_ROW_BYTES = 1024
_NOTHING: frozenset[int] = frozenset()
_OF_CHECKPOINTS = CHECKPOINT_VERBS | CHECKPOINT_OBJECTS | RESUMING_VERBS | LOADING_VERBS | LOADED_OBJECTS
# Words that are left of a line of numbers: those of prefixes and of timestamps.
_MOST_PREFIXES = 4
_MOST_OF_SERVICE = 2
_OF_PREFIXES = OF_PREFIXES | {b"t", b"z", b"f", b"p"}


def _any_of(texts: Iterable[bytes]) -> re.Pattern[bytes]:
    """A pattern of these texts, grouped by their first letters: it is compared at few places of a row."""
    groups = itertools.groupby(sorted(texts), key=lambda text: text[:1])
    return re.compile(
        b"|".join(first + b"(?:" + b"|".join(text[1:] for text in group) + b")" for first, group in groups)
    )


# Parts of words that make a line one for the general reader or the reader of exceptions; most rows have none.
_STEMS = _any_of(MEASURE_STEMS | FAILURE_STEMS)


class Declared(msgspec.Struct, frozen=True):
    """All that is declared, ready to run, in the order in which it is tried."""

    formats: Sequence[CompiledFormat]
    events: Sequence[CompiledEvent]
    marks: Sequence[CompiledMark]
    tables: Sequence[CompiledTable]

    def all(self) -> Iterable[CompiledFormat | CompiledEvent | CompiledMark | CompiledTable]:
        """Everything."""
        return itertools.chain(self.formats, self.events, self.marks, self.tables)


class Candidates(msgspec.Struct, frozen=True):
    """The formats, events and marks to try on a line with certain words.

    Of `needed` one must stand on a line, else nothing of it can be found there; empty if that cannot be said.
    `general`: the words may be a counter's or a measure's. `failure`: one of them may name an exception. `checkpoint`:
    they may say that a checkpoint is written or taken up.
    """

    formats: tuple[CompiledFormat, ...]
    events: tuple[CompiledEvent, ...]
    marks: tuple[CompiledMark, ...]
    tables: tuple[CompiledTable, ...]
    bar: bool
    number: int
    has_only_marks: bool
    needed: tuple[str, ...]
    general: bool = False
    failure: bool = False
    checkpoint: bool = False


class Prefilter:
    """Finds the declarations to try on each line; remembers rows and sets of words within bounds."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._asked = frozenset(word for item in declared.all() for word in item.words) | {BAR_WORD}
        # A colour code without its ESC glues its final "m" to the next word; see strip_colours.
        self._triggers = self._asked | {b"m" + word for word in self._asked}
        keys = {rarest(item.words) for item in declared.all() if item.words} | {BAR_WORD}
        self._keys = frozenset(keys | {b"m" + word for word in keys})
        self._known = self._triggers | WORDS | _OF_CHECKPOINTS
        # Words that stood on a row without a stem and that nobody asks for: a row is what it is without them.
        self._idle: set[bytes] = set()
        self._numbers = itertools.count()
        # Lines of numbers alone; almost all lack the text that they need.
        self._two_numbers = Candidates(
            *((), (), (), ()), False, next(self._numbers), False, TEXTS_OF_NUMBERS, general=True
        )
        # Somebody's own pattern may hold no word at all; then every line is shown to it.
        self._wordless = any(not item.words for item in declared.all())
        self._sets: dict[tuple[frozenset[bytes], bool, bool], Candidates | None] = {}
        # The same for the words that are not idle on a row without a stem, if they are no counter's or measure's.
        self._plain: dict[tuple[bytes, ...], Candidates | None] = {}
        # Rows that say nothing, and those that may; together they are bounded.
        self._nobodys: set[bytes] = set()
        self._rows: dict[bytes, Candidates] = {}
        self._room = _ROWS_LIMIT

    def filter_lines(self, texts: Sequence[str], reported: Set[int] = _NOTHING) -> list[tuple[int, Candidates]]:
        """Return the lines that may say something, by index; the others say nothing that is not `reported` yet."""
        nobodys, known, learn = self._nobodys, self._rows.get, self._find_in_row
        return [
            (index, found)
            for index, row in enumerate(rows_of(texts))
            if row not in nobodys
            and (found := known(row) or learn(row)) is not None
            and found.number not in reported
            and not (found.needed and _lacks_all(texts[index], found.needed))
        ]

    def find_candidates(self, text: str) -> Candidates | None:
        """Return the candidates for one line; None if there are none."""
        row = row_of(text)
        found = None if row in self._nobodys else self._rows.get(row) or self._find_in_row(row)
        return None if found is None or (found.needed and _lacks_all(text, found.needed)) else found

    def words_of(self, text: str) -> frozenset[bytes]:
        """The words of a line that some declaration asks for."""
        found = self._triggers.intersection(row_of(text).split())
        return frozenset(found | {word[1:] for word in found if word not in self._asked}) & self._asked

    def _find_in_row(self, row: bytes) -> Candidates | None:
        """Return the candidates for a row that is new, or too long for the cache."""
        words = row.split()
        # Most new rows are sentences that came before, with other ids in them.
        asked = tuple(itertools.filterfalse(self._idle.__contains__, words))
        found = self._plain.get(asked, ...)
        if found is ...:
            found = self._of_new_words(row, words)
        if len(words) <= _MOST_PREFIXES and _may_be_two_numbers(row, words):
            found = self._with_two_numbers(found)
        if len(row) > _ROW_BYTES:
            return found
        self._room -= 1
        if self._room < 0:
            self._room = _ROWS_LIMIT
            self._nobodys.clear()
            self._rows.clear()
        if found is None:
            self._nobodys.add(row)
        else:
            self._rows[row] = found
        return found

    def _with_two_numbers(self, found: Candidates | None) -> Candidates:
        """Return the candidates for a row without words beside those of prefixes, which may be two numbers."""
        if found is None:
            return self._two_numbers
        needed = (*found.needed, *TEXTS_OF_NUMBERS) if found.needed else ()
        return msgspec.structs.replace(found, general=True, needed=needed, has_only_marks=False)

    def _of_new_words(self, row: bytes, words: Sequence[bytes]) -> Candidates | None:
        """Return the candidates for a row by its words and stems; remembers what is the same for others like it."""
        stems: Sequence[bytes] = _STEMS.findall(row)
        known = self._known.intersection(words)
        is_plain = not stems and WORDS.isdisjoint(known)
        general = not is_plain and may_count(stems, words, known)
        failure = not FAILURE_STEMS.isdisjoint(stems)
        found = None
        checkpoint = _may_tell_of_checkpoint(known)
        if general or failure or checkpoint or self._wordless or not self._keys.isdisjoint(known):
            found = self._of_words(known, general, failure)
        if not stems and len(row) <= _ROW_BYTES:
            self._add_idle(set(words) - known)
        if is_plain:
            if len(self._plain) >= _MEMO_LIMIT:
                self._plain.clear()
            self._plain[tuple(word for word in words if word in known)] = found
        return found

    def _add_idle(self, words: Set[bytes]) -> None:
        """Remember words that nobody asks for."""
        if len(self._idle) >= _IDLE_LIMIT:
            self._idle.clear()
        self._idle.update(words)

    def _of_words(self, known: frozenset[bytes], general: bool, failure: bool) -> Candidates | None:
        key = (known, general, failure)
        made = self._sets.get(key, ...)
        if made is not ...:
            return made
        if len(self._sets) >= _MEMO_LIMIT:
            self._sets.clear()
        found = self._triggers & known
        words = found | {word[1:] for word in found if word[:1] == b"m"}
        checkpoint = _may_tell_of_checkpoint(known)
        self._sets[key] = made = self._standing_on(words, general, failure, checkpoint)
        return made

    def _standing_on(
        self, words: frozenset[bytes], general: bool, failure: bool, checkpoint: bool
    ) -> Candidates | None:
        formats, events = _items_of_words(self._declared.formats, words), _items_of_words(self._declared.events, words)
        marks, tables = _items_of_words(self._declared.marks, words), _items_of_words(self._declared.tables, words)
        bar = BAR_WORD in words
        says = bool(formats or events or tables) or general or failure or checkpoint
        if not (says or bar or marks):
            return None
        needed = () if general or failure or checkpoint else _needed(formats, events, marks, tables, bar)
        only_marks = not (says or bar)
        return Candidates(
            formats, events, marks, tables, bar, next(self._numbers), only_marks, needed, general, failure, checkpoint
        )


def _may_tell_of_checkpoint(words: Set[bytes]) -> bool:
    """Whether words may say that a checkpoint is written, or that training goes on from one."""
    if not RESUMING_VERBS.isdisjoint(words):
        return True
    if not LOADING_VERBS.isdisjoint(words) and not LOADED_OBJECTS.isdisjoint(words):
        return True
    return not (CHECKPOINT_VERBS.isdisjoint(words) or CHECKPOINT_OBJECTS.isdisjoint(words))


def _may_be_two_numbers(row: bytes, words: Sequence[bytes]) -> bool:
    """Whether a row has no words beside those of prefixes; a service of docker-compose has a name of its own."""
    if _OF_PREFIXES.issuperset(words):
        return True
    return (
        row[:1] != b" " and row[-4:] == b"    " and sum(word not in _OF_PREFIXES for word in words) <= _MOST_OF_SERVICE
    )


def _lacks_all(text: str, needed: tuple[str, ...]) -> bool:
    """Whether none of these stands on a line, nor can come to stand there when colours or an envelope are opened."""
    for one in needed:
        if one in text:
            return False
    return text[:1] != "{" and "\x1b" not in text and "[0m" not in text and "[39m" not in text


def _needed(
    formats: Sequence[CompiledFormat],
    events: Sequence[CompiledEvent],
    marks: Sequence[CompiledMark],
    tables: Sequence[CompiledTable],
    bar: bool,
) -> tuple[str, ...]:
    """The texts with which all these begin, and a bar's own; none if one of them may begin with anything."""
    beginnings = dict.fromkeys(item.beginning for items in (formats, events, marks) for item in items)
    if tables or "" in beginnings:
        return ()
    return (*beginnings, BAR_TEXT) if bar else tuple(beginnings)


Item = TypeVar("Item", CompiledFormat, CompiledEvent, CompiledMark, CompiledTable)


def _items_of_words(items: Iterable[Item], words: frozenset[bytes]) -> tuple[Item, ...]:
    """The items all of whose words are there, and where these stand alone no others."""
    return tuple(
        item for item in items if item.words <= words and not (item.is_alone and words - item.words - OF_PREFIXES)
    )
