"""What goes on of bytes that are series of a plate: compared with it word by word, then copied from it.

A request may begin or end within a run, and where one series became another, the run goes on behind it; so any part of
a plate can be printed. In its holes any series may stand; those are left to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..entry import head_of
from ..laid import WORD, Bytes, Numbers, Words
from ..request import series_at
from .plate import Plate, elements

# Of a value's highest byte, which is the lowest of the second word.
_SIGN = np.uint64(0x80)
# So many words that differ are looked at together.
_AT_A_TIME = 4096
_NOWHERE: Numbers = np.zeros(0, np.int64)


class Part(NamedTuple):
    """What goes on of so many series, of which so many have no pod; and how many bytes and series were taken in all.

    `pieces` are what goes on, in order; a series that fills a hole of the plate stands there as it came, as `bytes`.
    """

    printed: int
    unattached: int
    series: int
    size: int
    pieces: Sequence[Bytes | bytes]


class Printing:
    """Bytes of a request beside a plate, from one of its series on."""

    def __init__(self, plate: Plate, first: int, raw: bytes, place: int) -> None:
        self._plate = plate
        self._first = first
        self._start = int(plate.came_bounds[first])
        new = self._fill_holes(raw, place)
        end = plate.whole(self._start + len(new))
        self._base = self._start // WORD * WORD
        old = plate.came[self._base // WORD : -(-end // WORD)]
        # At the same place within a word as the old ones, which are left around them: so words can be compared.
        words = np.empty_like(old)
        words[:1], words[-1:] = old[:1], old[-1:]
        self._cells = words.view(np.uint8)
        size = end - self._start
        self._cells[self._start - self._base : end - self._base] = np.frombuffer(new, np.uint8, size)
        self._ends = plate.ends_within(first, end)
        self._taken = [ends.shape.blank(self._cells, ends.came - self._base) for ends in self._ends]
        self._labels, self._moved, wrong = self._compare(words, old)
        self._end = plate.whole(min([end, *wrong, *self._negative()]))

    def part(self) -> Part:
        """As much as fits."""
        plate, first = self._plate, self._first
        last = int(plate.came_bounds.searchsorted(self._end))
        without, end_without = plate.unattached.searchsorted((first, last)).tolist()
        holes = [(number, one) for number, one in self._holes if number <= last]
        size = self._end - self._start + sum(len(head_of(len(one))) + len(one) for _, one in holes)
        pieces = self._pieces(self._goes(int(plate.goes_bounds[first]), int(plate.goes_bounds[last])), holes)
        return Part(last - first, end_without - without, last - first + len(holes), size, pieces)

    def _fill_holes(self, raw: bytes, place: int) -> bytes | memoryview:
        """The bytes at a place, without series that stand where the plate has holes; those are `_holes`."""
        bounds = self._plate.came_bounds
        self._holes: list[tuple[int, bytes]] = []
        if not self._plate.holes:
            return memoryview(raw)[place : place + int(bounds[-1]) - self._start]
        pieces, start = [], self._start
        for number in self._plate.holes:
            if number > self._first:
                size = int(bounds[number]) - start
                pieces.append(raw[place : place + size])
                one, end = series_at(raw, place + size)
                if not one:
                    return b"".join(pieces)
                self._holes.append((number, one))
                place, start = end, start + size
        return b"".join((*pieces, raw[place : place + int(bounds[-1]) - start]))

    def _pieces(self, goes: Bytes, holes: Sequence[tuple[int, bytes]]) -> list[Bytes | bytes]:
        """What goes on, cut where series stand in holes."""
        bounds = self._plate.goes_bounds
        start = int(bounds[self._first])
        pieces: list[Bytes | bytes] = []
        done = 0
        for number, one in holes:
            place = int(bounds[number]) - start
            pieces += (goes[done:place], one)
            done = place
        return [*pieces, goes[done:]]

    def _goes(self, start: int, end: int) -> Bytes:
        goes = self._plate.goes[start:end].copy()
        labels = int(self._labels.searchsorted(self._end))
        goes[self._moved[:labels] - start] = self._cells[self._labels[:labels] - self._base]
        for ends, taken in zip(self._ends, self._taken, strict=True):
            count = int(ends.came.searchsorted(self._end))
            elements(goes, ends.shape.size)[ends.goes[:count] - start] = taken[:count]
        return goes

    def _compare(self, words: Words, old: Words) -> tuple[Numbers, Numbers, list[int]]:
        """Where bytes differ that may differ, where they go, and where the first other one does, if there is one."""
        differ = words != old
        first = int(differ.argmax()) if len(differ) else 0
        structure = self._plate.structure
        if not len(differ) or not differ[first]:
            return _NOWHERE, _NOWHERE, []
        if structure is None:
            return _NOWHERE, _NOWHERE, [self._places(words, old, np.array([first]))[0][0]]
        # By parts, because behind a series that has another size, all differs.
        differing = np.flatnonzero(differ)
        found, moved = [_NOWHERE], [_NOWHERE]
        for start in range(0, len(differing), _AT_A_TIME):
            places, differences = self._places(words, old, differing[start : start + _AT_A_TIME])
            moved.append(structure.moved(places, differences))
            right = len(moved[-1])
            found.append(places[:right])
            if right < len(places):
                return np.concatenate(found), np.concatenate(moved), [places[right]]
        return np.concatenate(found), np.concatenate(moved), []

    def _places(self, words: Words, old: Words, differing: Numbers) -> tuple[Numbers, Bytes]:
        """The bytes of words that differ: where they are, and in what they differ."""
        differences = (words[differing] ^ old[differing]).view(np.uint8)
        which = np.flatnonzero(differences)
        return self._base + differing[which // WORD] * WORD + which % WORD, differences[which]

    def _negative(self) -> list[int]:
        """Where the first value is that must not be negative, but is."""
        for ends, taken in zip(self._ends, self._taken, strict=True):
            if ends.watched.any():
                negative = ends.watched & (taken.view(np.uint64)[1::2] & _SIGN != 0)
                return list(ends.came[np.flatnonzero(negative)[:1]].tolist())
        return []
