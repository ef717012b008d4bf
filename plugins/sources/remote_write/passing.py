"""The hot path: every series of a request to the bytes that go on.

Nearly every series was seen before and has one sample, so that it ends in one of two shapes: a double and a
timestamp of six bytes, or (value 0, which proto3 leaves out) the timestamp alone. What stands before such an end is
looked up among the label sets that are known; a hit proves that it is nothing but labels. Everything else is read
field by field, unless a template tells what it is. Values are never touched, so that every kind of NaN stays what it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING

from .alone import Alone
from .drops import Drops
from .enriching import Enricher
from .entry import Entry, head_of
from .passed import Passed
from .samples import VALUE_SIZE, VALUE_TAGS, ZERO_SIZE
from .slow_road import SlowRoad
from .tails import Tails

if TYPE_CHECKING:
    from .crowd import Crowd
    from .gone import Gone

_DOUBLE_SIZE = 8
# Fewer new series are quicker one by one.
_FEW = 24
# By so many it is judged whether all are new.
_JUDGED = 8


class Passage:
    """Takes series, as they were cut out of requests, to what goes on of them; `tails` tells how they end."""

    def __init__(self, enricher: Enricher, drops: Drops) -> None:
        self._enricher = enricher
        self.tails = Tails()
        self._slow_road = SlowRoad(enricher, drops)
        self._alone = Alone(enricher, self.tails, self._slow_road)

    def take(self, series: Sequence[bytes], passed: Passed) -> None:
        """Add these series to `passed`. Raises WireError where the request is damaged."""
        remaining = iter(series)
        while (one := self._take_known(remaining, passed)) is not None:
            place = len(series) - length_hint(remaining)
            more = self._new_after(series, place) - place
            self._take_new([one, *islice(remaining, more)], passed)

    def take_together(self, series: Sequence[bytes], passed: Passed, then: Callable[[Gone], None]) -> None:
        """Add these series, whether known or not, and tell what was found out about them. Raises WireError."""
        self._crowd.take(series, passed, then)

    def _take_known(self, series: Iterable[bytes], passed: Passed) -> bytes | None:
        """Pass on series until there is a single sample whose label set is not remembered; that one."""
        epoch = self._enricher.epoch
        stamps, zeros, pieces = self.tails.stamps, self.tails.zeros, passed.pieces
        quick = unattached = 0
        nothing = last = Entry(came=b"")
        new = None
        for one in series:
            # The guess first: senders mostly repeat the order, too. A comparison is cheaper than a look-up.
            entry = last.next
            if entry is not None and entry.epoch == epoch:
                came = entry.came
                if one.startswith(came):
                    sample = one[len(came) :]
                    if sample[_DOUBLE_SIZE:] in stamps and sample[_DOUBLE_SIZE - 1] < entry.below:
                        pieces += (entry.head, entry.goes, sample)  # type: ignore[arg-type]
                        quick += 1
                        unattached += entry.unattached
                        last = entry
                        continue
                elif entry.below and (tail := one[-ZERO_SIZE:]) in zeros and came == one[:-ZERO_SIZE] + VALUE_TAGS:
                    # Without a value; many counters stay at 0.
                    prefix: bytes = entry.prefix  # type: ignore[assignment]
                    pieces += (head_of(len(prefix) + ZERO_SIZE), prefix, tail)
                    quick += 1
                    unattached += entry.unattached
                    last = entry
                    continue
            tail = self.tails.of(one)
            entry = self._look_up(one[: -len(tail)], entry) if tail else None
            last.next = entry
            if entry is not None and (tail[10] if len(tail) == VALUE_SIZE else 0) < entry.below:
                prefix = entry.prefix  # type: ignore[assignment]
                pieces += (head_of(len(prefix) + len(tail)), prefix, tail)
                quick += 1
                unattached += entry.unattached
            elif entry is None and tail:
                new = one
                break
            else:
                self._slow_road.take(one, entry, tail, passed)
            last = entry or nothing
        passed.add(quick, unattached)
        return new

    def _take_new(self, series: Sequence[bytes], passed: Passed) -> None:
        """Pass on series that are not remembered, or few of them. Raises WireError."""
        if len(series) < _FEW:
            for one in series:
                self._alone.take(one, passed)
        else:
            self._crowd.take(series, passed)

    @cached_property
    def _crowd(self) -> Crowd:
        # Numpy takes a while to load, and 20 MiB: not for daemons to which nothing new comes.
        from .crowd import Crowd

        return Crowd(self._enricher, self._alone)

    def knows(self, series: Sequence[bytes]) -> bool:
        """Whether most of these series are remembered, judged by a few of them."""
        few = series[:: max(1, len(series) // _JUDGED)]
        return 4 * sum(map(self.is_known, few)) >= 3 * len(few)

    def _new_after(self, series: Sequence[bytes], place: int) -> int:
        """Up to where series are new, judged by a few of half as many each time: neighbours came together."""
        end = len(series)
        while any(map(self.is_known, series[end - 1 : place - 1 : -max(1, (end - place) // _JUDGED)])):
            end = place + (end - place) // 2
        return end

    def is_known(self, one: bytes) -> bool:
        """Whether a series has a single sample, and its label set is remembered."""
        tail = self.tails.of(one)
        return bool(tail) and self._look_up(one[: -len(tail)]) is not None

    def _look_up(self, block: bytes, guess: Entry | None = None) -> Entry | None:
        """The entry of a label set that is remembered."""
        epoch, came = self._enricher.epoch, block + VALUE_TAGS
        entry = guess if guess is not None and guess.came == came else self._enricher.young.get(came)
        return entry if entry is not None and entry.epoch == epoch else self._enricher.known(block)
