"""A request's series: whole runs at once where they came before, the others through the passage."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ..enriching import Enricher
from ..entry import head_of
from ..passed import Passed
from ..passing import Passage
from ..request import series_at
from .making import PlateMaker
from .plate import elements
from .printing import Part
from .rack import Clues, Rack
from .runs import BETWEEN, LONGEST, SHORTEST, ends_of_runs, head_sizes

# Where plates were of no use, they are tried for one message of so many.
_ONE_IN = 32
_STAMP_BITS = np.uint64(16)


class Way(Enum):
    """What is done with series."""

    PRINT = "off a plate that is there"
    PASS = "one by one"
    MAKE_OF_NEW = "as new ones, and a plate is made"
    MAKE_OF_REMEMBERED = "one by one, and a plate is made of what is remembered"


class Stretch(NamedTuple):
    """Series of a request, one after the other."""

    start: int
    end: int
    way: Way
    part: Part | None = None


class Press:
    """Prints what goes on of requests off plates, as far as the `rack` has some, and has plates made."""

    def __init__(
        self,
        enricher: Enricher,
        passage: Passage,
        cached_series: int,
        *,
        of_new: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._enricher = enricher
        self._passage = passage
        self.rack = Rack(enricher, cached_series, clock)
        self._maker = PlateMaker(enricher, self.rack, passage.tails)
        self._of_new = of_new
        self._asked = 0

    @property
    def remembered(self) -> int:
        """How many series plates hold."""
        return self.rack.remembered

    def pays(self) -> bool:
        """Whether plates are of use, as far as is known; for a few messages it is tried anyway."""
        self._asked += 1
        return self.rack.pays or not self._asked % _ONE_IN

    def print(self, raw: bytes, place: int, passed: Passed, at_least: int) -> tuple[int, int]:
        """Add what goes on of the bytes of a request from a place on, while there are plates, or until it is enough.

        Where that ends, and how many series those are. Raises WireError.
        """
        self._begin()
        series = 0
        while place < len(raw) and series < at_least:
            one, _ = series_at(raw, place)
            if (part := self.rack.print(self.clues(one), raw, place)) is not None:
                self._add(part, passed)
                place += part.size
                series += part.series
            elif between := self._before_a_plate(_some_at(raw, place)):
                self._passage.take(between, passed)
                self.rack.leave_out(len(between))
                place += sum(len(head_of(len(one))) + len(one) for one in between)
                series += len(between)
            else:
                break
        return place, series

    def take(self, series: Sequence[bytes], passed: Passed) -> None:
        """Add these series. Raises WireError where the request is damaged."""
        self._begin()
        for way, group in groupby(self._divide(series), attrgetter("way")):
            stretches = list(group)
            start, end = stretches[0].start, stretches[-1].end
            if way is Way.PRINT:
                for one in stretches:
                    if one.part is not None:
                        self._add(one.part, passed)
            elif way is Way.MAKE_OF_NEW:
                make = partial(self._maker.make_of_new, ends=[one.end - start for one in stretches])
                self._passage.take_together(series[start:end], passed, make)
            else:
                self._passage.take(series[start:end], passed)
                if way is Way.MAKE_OF_REMEMBERED:
                    for one in stretches:
                        self._maker.make_of_remembered(series[one.start : one.end])

    def _divide(self, series: Sequence[bytes]) -> Iterator[Stretch]:
        """What to do with which of them."""
        raw = b"".join([part for one in series for part in (head_of(len(one)), one)])
        sizes = np.fromiter(map(len, series), np.int64, len(series))
        bounds = (sizes + head_sizes(sizes)).cumsum()
        stamps = elements(np.frombuffer(raw, np.uint8), 8)[np.maximum(bounds - 8, 0)].view(np.uint64) >> _STAMP_BITS
        ends = ends_of_runs(stamps)
        places = [0, *bounds.tolist()]
        place = 0
        while place < len(series):
            clues = self.clues(series[place])
            if (part := self.rack.print(clues, raw, places[place])) is not None:
                stretch = Stretch(place, place + part.series, Way.PRINT, part)
            elif between := self._before_a_plate(series[place : place + BETWEEN + 1]):
                stretch = Stretch(place, place + len(between), Way.PASS)
            elif not self._may_begin(series[place]) and (end := self._beginning(series, place)) > place:
                stretch = Stretch(place, end, Way.PASS)
            else:
                end = min(ends[bisect_right(ends, place)], place + LONGEST)
                stretch = Stretch(place, end, self._way(series[place:end], clues))
            if stretch.part is None:
                self.rack.leave_out(stretch.end - place)
            yield stretch
            place = stretch.end

    def _before_a_plate(self, series: Sequence[bytes]) -> Sequence[bytes]:
        """The series of these that stand before one with which a plate begins or goes on; the first one does not."""
        for number, one in enumerate(series[1:], 1):
            if self.rack.knows(self.clues(one)):
                return series[:number]
        return ()

    def _beginning(self, series: Sequence[bytes], place: int) -> int:
        """The place of the next series with which a plate may begin, if it is near."""
        near = range(place + 1, min(place + BETWEEN, len(series) - 1) + 1)
        return next((number for number in near if self._may_begin(series[number])), place)

    def _may_begin(self, one: bytes) -> bool:
        return self.clues(one).alike is not None or self._passage.is_known(one)

    def _way(self, run: Sequence[bytes], clues: Clues) -> Way:
        """What to do with a run that has no plate."""
        if len(run) < SHORTEST or not self.rack.wants(clues):
            return Way.PASS
        if self._passage.knows(run):
            way = Way.MAKE_OF_REMEMBERED
        elif self._of_new and clues.alike is not None and not self.rack.was_new(clues, len(run)):
            way = Way.MAKE_OF_NEW
        else:
            # Of series without templates none is made; they are remembered first.
            return Way.PASS
        self.rack.was_made(clues, len(run))
        return way

    def _begin(self) -> None:
        self._enricher.begin()
        self.rack.begin()

    def _add(self, part: Part, passed: Passed) -> None:
        for piece in part.pieces:
            if isinstance(piece, bytes):
                self._passage.take([piece], passed)
            else:
                passed.pieces.append(piece.data)
        passed.add(part.printed, part.unattached)
        passed.printed += part.printed

    def clues(self, one: bytes) -> Clues:
        """By what the plate of a run is found, which begins with this series."""
        tail = self._passage.tails.of(one)
        if not tail:
            return Clues(b"", None)
        block = one[: -len(tail)]
        template = self._enricher.templates.find(block, tail)
        return Clues(block, None if template is None else template.key(one))


def _some_at(raw: bytes, place: int) -> list[bytes]:
    """A few series that begin at a place."""
    some: list[bytes] = []
    one, place = series_at(raw, place)
    while one and len(some) <= BETWEEN:
        some.append(one)
        one, place = series_at(raw, place)
    return some
