"""Runs of series as they came and as they went on, to print off what comes with the same structure later.

Senders repeat runs of series: the next time their samples differ and, where label sets are new, values of labels. So a
run is compared as a whole with an old one, its samples blanked, and what is equal needs no other look (`printing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lens_core.base.protobuf import read_varint

from ..finding import Keys
from ..laid import WORD, Bytes, Marks, Numbers, Words
from ..samples import VALUE_SIZE, VALUE_TAIL, ZERO_SIZE, ZERO_TAIL
from .patching import Gap, Structure
from .runs import BETWEEN, LONGEST

# There are at least so many series for each hole.
SERIES_PER_HOLE = 16
# A series so far behind the first one is looked at before all are.
_LOOKED_AT = 23


class Shape(NamedTuple):
    """What a series ends in if it has a single sample: so many bytes, in whole words, of which `kept` never change."""

    size: int
    kept: Words

    def blank(self, cells: Bytes, places: Numbers) -> npt.NDArray[np.void]:
        """Take ends out of a run's bytes, and leave only what never changes of them."""
        ends = elements(cells, self.size)
        taken = ends[places]
        blank = taken.view(np.uint64).reshape(len(places), len(self.kept)) & self.kept
        ends[places] = blank.view(taken.dtype).ravel()
        return taken


# With a value, and without because it is 0. Of a timestamp, the bits stay that make it six bytes long.
VALUE = Shape(16, np.frombuffer(b"\xff" + b"\0" * 8 + VALUE_TAIL.mask[-7:], np.uint64))
ZERO = Shape(8, np.frombuffer(ZERO_TAIL.mask[-8:], np.uint64))


class Ends(NamedTuple):
    """Where the ends of one shape are: in the run as it came and as it goes on; which must not be negative."""

    shape: Shape
    came: Numbers
    goes: Numbers
    watched: Marks

    def within(self, start: int, end: int) -> Ends:
        """Those between two places of the run as it came."""
        those = slice(*self.came.searchsorted((start, end)).tolist())
        return Ends(self.shape, self.came[those], self.goes[those], self.watched[those])

    def followed_by(self, others: Ends, came: int, goes: int) -> Ends:
        """These, and others that begin there."""
        return Ends(
            self.shape,
            np.concatenate((self.came, others.came + came)),
            np.concatenate((self.goes, others.goes + goes)),
            np.concatenate((self.watched, others.watched)),
        )

    def without(self, came: Gap, goes: Gap) -> Ends:
        """The others, where a series was taken out."""
        others = (self.came < came.start) | (self.came >= came.end)
        return Ends(self.shape, came.closed(self.came[others]), goes.closed(self.goes[others]), self.watched[others])


@dataclass(slots=True)
class Plate:
    """A run of series: `came` is how they came, their samples blanked, `goes` how they went on.

    `key` is what the first has in common with others of which this may be the plate. `came_bounds` and `goes_bounds`
    are the ends of series, from 0 on. `unattached` are the numbers of those without a pod. `pods` are the numbers that
    were found by keys, right for one epoch of the directory. With a `structure`, values of labels may differ. `holes`
    are the numbers of those before which another series comes, of whatever kind. `breaks` is how often in a row
    something else came before the end, `next` which plate came after it, so often in a row.
    """

    key: int | bytes
    came: Words
    goes: Bytes
    came_bounds: Numbers
    goes_bounds: Numbers
    values: Ends
    zeros: Ends
    unattached: Numbers
    pods: dict[Keys, int]
    epoch: int
    structure: Structure | None
    holes: list[int]
    breaks: int = 0
    next: tuple[Plate | None, int] = (None, 0)

    @property
    def count(self) -> int:
        """How many series."""
        return len(self.came_bounds) - 1

    def ends_within(self, first: int, end: int) -> list[Ends]:
        """Where samples are, from the first series so far; kinds of which there are none are left out."""
        start = int(self.came_bounds[first])
        found = (ends.within(start, end) for ends in (self.values, self.zeros) if len(ends.came))
        return [ends for ends in found if len(ends.came)]

    @property
    def may_have_a_hole(self) -> bool:
        """Whether one more is no hindrance: with many, it is quicker to take series one by one."""
        return (len(self.holes) + 1) * SERIES_PER_HOLE <= self.count

    def whole(self, place: int) -> int:
        """The end of the last series that lies before a place of the run as it came."""
        return int(self.came_bounds[self.came_bounds.searchsorted(place, "right") - 1])

    def block(self, number: int) -> bytes:
        """The labels of a series, as they came."""
        raw = self._raw(number)
        end = int(self.came_bounds[number + 1]) - VALUE.size
        place = int(self.values.came.searchsorted(end))
        with_value = place < len(self.values.came) and self.values.came[place] == end
        return raw[read_varint(raw, 1)[1] : -VALUE_SIZE if with_value else -ZERO_SIZE]

    def may_fit(self, first: int, raw: bytes, place: int) -> bool:
        """Whether the bytes at a place look like series from this one on: by one that is some further."""
        number = min(first + _LOOKED_AT, self.count - 1)
        old = self._raw(number)[: -VALUE.size]
        start = place + int(self.came_bounds[number] - self.came_bounds[first])
        new = raw[start : start + len(old)]
        if new == old or len(new) < len(old):
            return True
        head = read_varint(old, 1)[1]
        if self.structure is None or new[:head] != old[:head]:
            return False
        return self.structure.alike_in(number, new[head:], old[head:])

    def make_hole(self, number: int) -> None:
        """Leave a series out, but not the first, because it is not always the same."""
        came, goes = Gap(*self.came_bounds[number : number + 2]), Gap(*self.goes_bounds[number : number + 2])
        self.came = words_of(came.taken_out(self.came.view(np.uint8)[: int(self.came_bounds[-1])]))
        self.goes = goes.taken_out(self.goes)
        self.came_bounds = came.closed(np.delete(self.came_bounds, number))
        self.goes_bounds = goes.closed(np.delete(self.goes_bounds, number))
        self.values, self.zeros = self.values.without(came, goes), self.zeros.without(came, goes)
        self.unattached = Gap(number, number + 1).closed(self.unattached[self.unattached != number])
        if self.structure is not None:
            self.structure = self.structure.without(number, came, goes)
        holes = [hole - (hole > number) for hole in self.holes] + [number]
        self.holes = sorted(hole for hole in holes if hole < self.count)

    def may_be_followed_by(self, other: Plate, between: int) -> bool:
        """Whether both can be one, with so many others between them."""
        return self.count + other.count <= LONGEST and between <= BETWEEN and self is not other

    def append(self, other: Plate, between: int) -> None:
        """Take over a plate whose series always come next, behind so many others."""
        came, goes, count = int(self.came_bounds[-1]), int(self.goes_bounds[-1]), self.count
        cells = (self.came.view(np.uint8)[:came], other.came.view(np.uint8)[: int(other.came_bounds[-1])])
        self.came = words_of(np.concatenate(cells))
        self.goes = np.concatenate((self.goes, other.goes))
        self.came_bounds = np.concatenate((self.came_bounds, other.came_bounds[1:] + came))
        self.goes_bounds = np.concatenate((self.goes_bounds, other.goes_bounds[1:] + goes))
        self.values = self.values.followed_by(other.values, came, goes)
        self.zeros = self.zeros.followed_by(other.zeros, came, goes)
        self.unattached = np.concatenate((self.unattached, other.unattached + count))
        self.pods = {**self.pods, **other.pods}
        self.holes += [count] * between + [hole + count for hole in other.holes]
        self.next = other.next
        # With one that has none, label sets are the same each time.
        others = other.structure
        mine, self.structure = self.structure, None
        if mine is not None and others is not None:
            self.structure = mine.followed_by(others, came, goes)

    def _raw(self, number: int) -> bytes:
        start, end = self.came_bounds[number : number + 2].tolist()
        return self.came.view(np.uint8)[start:end].tobytes()


def blanked(raw: bytes, ends: Sequence[Ends]) -> Words:
    """A run without its samples, as words; zeros follow."""
    words = words_of(np.frombuffer(raw, np.uint8))
    for some in ends:
        some.shape.blank(words.view(np.uint8), some.came)
    return words


def words_of(cells: Bytes) -> Words:
    """A copy of bytes, as words; zeros follow."""
    words: Words = np.zeros(-(-len(cells) // WORD), np.uint64)
    words.view(np.uint8)[: len(cells)] = cells
    return words


def elements(cells: Bytes, size: int) -> npt.NDArray[np.void]:
    """From each place on so many bytes as one element; nothing is copied."""
    return np.ndarray((max(0, len(cells) - size + 1),), f"V{size}", cells, 0, (1,))
