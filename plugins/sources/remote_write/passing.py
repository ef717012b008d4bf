"""The hot path: every series of a request to the bytes that go on.

Nearly every series was seen before and has one sample, so that it ends in one of two shapes: a double and a
timestamp of six bytes, or (value 0, which proto3 leaves out) the timestamp alone. What stands before such an end is
looked up among the label sets that are known; a hit proves that it is nothing but labels. Everything else is read
field by field, unless a template tells what it is. Values are never touched, so that every kind of NaN stays what it
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from .drops import Drops
from .enriching import Enricher
from .entry import Entry, head_of
from .newcomers import Newcomers
from .passed import Passed
from .samples import VALUE_SIZE, VALUE_TAGS, ZERO_SIZE
from .slow_road import SlowRoad
from .tails import Tails

_DOUBLE_SIZE = 8
# After so many that are new, it is looked whether the next one is known.
_GROUP = 256


class Passage:
    """Takes series, as they were cut out of requests, to what goes on of them."""

    def __init__(self, enricher: Enricher, drops: Drops) -> None:
        self._enricher = enricher
        self._tails = Tails()
        self._slow_road = SlowRoad(enricher, drops)
        self._newcomers = Newcomers(enricher, self._tails, self._slow_road)

    def take(self, series: Iterable[bytes], passed: Passed) -> None:
        """Add these series to `passed`. Raises WireError where the request is damaged."""
        remaining = iter(series)
        try:
            one = self._take_known(remaining, passed)
            while one is not None:
                one = self._take_new(one, remaining, passed)
                if one is not None:
                    one = self._take_known(chain((one,), remaining), passed)
            self._newcomers.finish(passed)
        finally:
            self._newcomers.forget()

    def _take_known(self, series: Iterable[bytes], passed: Passed) -> bytes | None:
        """Pass on series until there is a single sample whose label set is not remembered; that one."""
        epoch = self._enricher.epoch
        stamps, zeros, pieces = self._tails.stamps, self._tails.zeros, passed.pieces
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
            tail = self._tails.of(one)
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

    def _take_new(self, one: bytes, others: Iterator[bytes], passed: Passed) -> bytes | None:
        """Pass on a series whose label set is not remembered, and others until one is known; that one."""
        group = [one]
        while True:
            self._newcomers.take(group, passed)
            first = next(others, None)
            if first is None or not (tail := self._tails.of(first)) or self._look_up(first[: -len(tail)]) is not None:
                return first
            group = [first, *islice(others, min(2 * len(group), _GROUP) - 1)]

    def _look_up(self, block: bytes, guess: Entry | None = None) -> Entry | None:
        """The entry of a label set that is remembered."""
        epoch, came = self._enricher.epoch, block + VALUE_TAGS
        entry = guess if guess is not None and guess.came == came else self._enricher.young.get(came)
        return entry if entry is not None and entry.epoch == epoch else self._enricher.known(block)
