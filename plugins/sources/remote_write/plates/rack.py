"""Plates that are kept, found by the first series of a run, or by one within it that is expected next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from ..enriching import ROTATE_SECONDS, Enricher
from ..request import series_at
from ..seen import Seen
from ..tails import STAMP_SIZE
from .plate import Plate
from .printing import Part, Printing
from .runs import SHORTEST

# Fewer series of a plate are quicker one by one.
_FEWEST = 8
# So many of those that follow in a plate are expected next.
_EXPECTED = 4
_REMEMBERED_EXPECTED = 1024
# Of runs that begin alike, so many are made in a generation: what is another one each time has no use for plates.
_REMADE = 6
# After so many breaks in a row, a plate is made anew.
_BREAKS = 4
# After so often in a row that one came after the other, two become one.
_TIMES = 3

Key: TypeAlias = "int | bytes"


class Clues(NamedTuple):
    """By what a plate may be found: the labels of a series as they are, and what it has in common with others."""

    block: bytes
    alike: int | None

    @property
    def first(self) -> Key:
        """What is the same for most."""
        return self.block if self.alike is None else self.alike


class Generation:
    """Plates by their clues; `series` is how many they hold together."""

    def __init__(self) -> None:
        self.series = 0
        self._plates: dict[Key, tuple[Plate, ...]] = {}

    def of(self, clues: Clues) -> tuple[Plate, ...]:
        """The plates of these clues."""
        found = self._plates.get(clues.block, ())
        return found if clues.alike is None else found + self._plates.get(clues.alike, ())

    def keep(self, plate: Plate) -> None:
        """Keep one more, which is tried first."""
        self._plates[plate.key] = (plate, *self._plates.get(plate.key, ()))
        self.series += plate.count

    def drop(self, plate: Plate) -> bool:
        """Keep it no longer; whether it was kept."""
        plates = self._plates.get(plate.key, ())
        # By identity: plates hold arrays, which do not compare as one.
        left = tuple(one for one in plates if one is not plate)
        if len(left) == len(plates):
            return False
        self.series -= plate.count
        if left:
            self._plates[plate.key] = left
        else:
            del self._plates[plate.key]
        return True

    def forget(self) -> None:
        """Keep none; others may still know which one came next, so that chain must be cut."""
        for plates in self._plates.values():
            for plate in plates:
                plate.next = (None, 0)
        self._plates.clear()
        self.series = 0


class Rack:
    """Two generations of plates: what was not used since the last rotation but one is forgotten.

    Rotates when a generation holds as many series as label sets may be remembered, and at least every ten minutes.
    """

    def __init__(self, enricher: Enricher, cached_series: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._enricher = enricher
        self._cached_series = cached_series
        self._clock = clock
        self._came = Seen(cached_series // SHORTEST)
        self._made: Counter[Key] = Counter()
        self._new: set[tuple[Key, int]] = set()
        # Plates of so many series may be made before any is used, and in each generation again.
        self._credit = cached_series
        self._young, self._old = Generation(), Generation()
        self._expected: dict[bytes, tuple[Plate, int]] = {}
        self._rotated_at = clock()
        self._before: tuple[Plate | None, int] = (None, 0)
        self._between = 0

    @property
    def remembered(self) -> int:
        """How many series are held."""
        return self._young.series + self._old.series

    def begin(self) -> None:
        """Before a request: forget what is old."""
        now = self._clock()
        if self._young.series >= self._cached_series or now - self._rotated_at >= ROTATE_SECONDS:
            self._old.forget()
            self._old, self._young, self._rotated_at = self._young, Generation(), now
            self._expected.clear()
            self._made.clear()
            self._new.clear()
            self._credit = self._cached_series

    def print(self, clues: Clues, raw: bytes, place: int) -> Part | None:
        """What goes on of series at a place, as far as a plate fits, if one does."""
        for plate, first in self.candidates(clues):
            if not self._is_right(plate):
                self._forget(plate)
            elif plate.may_fit(first, raw, place):
                part = Printing(plate, first, raw, place).part()
                after = place + part.size
                if part.printed >= _FEWEST or after == len(raw):
                    self._use(plate, first, first + part.printed, raw, after)
                    self._follow(plate if first == 0 else None, raw, place)
                    self._before = (plate if first + part.printed == plate.count else None, id(raw))
                    self._between = 0
                    self._credit = min(self._credit + part.printed, self._cached_series)
                    return part
        return None

    def knows(self, clues: Clues) -> bool:
        """Whether a plate begins with such a series, or is expected to go on with it."""
        return clues.block in self._expected or bool(self._young.of(clues) or self._old.of(clues))

    def leave_out(self, series: int) -> None:
        """So many series are taken otherwise, before it goes on."""
        self._between += series

    @property
    def pays(self) -> bool:
        """Whether plates are of use: they cost, and earn what is printed off them."""
        return self._credit > 0

    def wants(self, clues: Clues) -> bool:
        """Whether there should be a plate of a run that begins so: there is no use for one of what comes once."""
        return self._came.again(clues.first) and self.pays and self._made[clues.first] < _REMADE

    def was_new(self, clues: Clues, series: int) -> bool:
        """Whether a run of so many series that begins so was new before; from now on, it was."""
        run = (clues.first, series)
        was_new = run in self._new
        self._new.add(run)
        return was_new

    def was_made(self, clues: Clues, series: int) -> None:
        """Of a run that begins so, it was tried to make plates."""
        self._made[clues.first] += 1
        self._credit -= series

    def add(self, plate: Plate) -> None:
        """Keep a plate."""
        self._young.keep(plate)

    def candidates(self, clues: Clues) -> Iterator[tuple[Plate, int]]:
        """Plates that may fit, and with which of their series."""
        plate, number = self._expected.get(clues.block, (None, 0))
        # A plate may have got holes meanwhile; then it does not fit there.
        if plate is not None and number < plate.count:
            yield plate, number
        for generation in (self._young, self._old):
            for plate in generation.of(clues):
                yield plate, 0

    def _use(self, plate: Plate, first: int, then: int, raw: bytes, place: int) -> None:
        """A plate was printed up to a series, and the request goes on at a place."""
        if then < plate.count and place < len(raw):
            self._break(plate, then, series_at(raw, place)[0])
        elif not first and then == plate.count:
            plate.breaks = 0
        if plate.breaks >= _BREAKS:
            self._drop(plate)
            return
        if self._old.drop(plate):
            self._young.keep(plate)
        if len(self._expected) >= _REMEMBERED_EXPECTED:
            self._expected.clear()
        # It may go on there the next time, or behind what lies in the way.
        for number in range(then, min(then + _EXPECTED, plate.count)):
            self._expected[plate.block(number)] = (plate, number)

    def _follow(self, plate: Plate | None, raw: bytes, place: int) -> None:
        """Make one plate of two, if this one always comes after the other, and is of the same target."""
        before, of = self._before
        one, _ = series_at(raw, place)
        if plate is None or before is None or of != id(raw) or raw[place - STAMP_SIZE : place] != one[-STAMP_SIZE:]:
            return
        times = before.next[1] + 1 if before.next[0] is plate else 1
        before.next = (plate, times)
        if times >= _TIMES and before.may_be_followed_by(plate, self._between):
            self._forget(plate)
            self._drop(before)
            before.append(plate, self._between)
            self._young.keep(before)

    def _break(self, plate: Plate, number: int, one: bytes) -> None:
        """Not this series of a plate came, but one that is to be told from it."""
        if number and plate.may_have_a_hole and one.startswith(plate.block(number)):
            self._drop(plate)
            plate.make_hole(number)
            self._young.keep(plate)
        else:
            plate.breaks += 1

    def _forget(self, plate: Plate) -> None:
        self._drop(plate)
        self._expected = {block: expected for block, expected in self._expected.items() if expected[0] is not plate}

    def _drop(self, plate: Plate) -> None:
        plate.next = (None, 0)
        if not self._young.drop(plate):
            self._old.drop(plate)

    def _is_right(self, plate: Plate) -> bool:
        """Whether the directory still knows the same pods."""
        epoch = self._enricher.epoch
        if plate.epoch != epoch:
            if any(self._enricher.pod(keys) != number for keys, number in plate.pods.items()):
                return False
            plate.epoch = epoch
        return True
