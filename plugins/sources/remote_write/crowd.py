"""Many series whose label sets are not remembered, passed on together: what they share is looked at once for all.

A few of them, the same every time, are asked whether they were seen before. The answer holds for those that follow,
because neighbours came together before: either all are remembered or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .alone import Alone
from .attaching import NO_POD
from .enriching import Enricher
from .given import Given
from .gone import Gone, Known
from .kinds import Kinds
from .laid import Laid, Marks, Numbers
from .passed import Passed
from .sheets import Sheet, in_order, runs, sheet
from .templates import Template

# Fewer rows of one layout are quicker one by one.
_FEW_ROWS = 4
_LAYOUTS = 1 << 14


class Crowd:
    """Takes new series of a request; where they have no template, or few of their layout beside them, one by one."""

    def __init__(self, enricher: Enricher, alone: Alone) -> None:
        self._enricher = enricher
        self._alone = alone
        self._kinds = Kinds()
        self._given = Given(enricher)

    def take(self, series: Sequence[bytes], passed: Passed, then: Callable[[Gone], None] | None = None) -> None:
        """Pass on series; what `then` makes of them is to be remembered, if it is given. Raises WireError."""
        laid = Laid(series)
        slots = self._kinds.slots(laid)
        kinds = self._kinds.find(laid, slots)
        # Of what is remembered otherwise, nothing needs to be remembered here.
        again = np.zeros(len(series), np.bool_) if then is not None else self._seen_again(series, laid, kinds)
        places = np.flatnonzero(np.where(again, 0, kinds))
        given = self._given.find(series, laid, places, self._kinds.told[kinds[places]])
        sheets = self._sheets(laid, places, kinds[places], given, passed)
        left = np.ones(len(series), np.bool_)
        for which, _ in sheets:
            left[which] = False
        others = self._one_by_one(series, np.flatnonzero(left), kinds, again, slots, passed)
        cells, bounds = in_order(len(series), sheets, others)
        passed.pieces.append(cells.data)
        if then is not None:
            known: list[Known | None] = [None] * len(series)
            for place, kind, number in zip(places.tolist(), kinds[places].tolist(), given.tolist(), strict=True):
                known[place] = (self._kinds.templates[kind], self._given.attached[number])
            then(Gone(series, known, cells, bounds))

    def _seen_again(self, series: Sequence[bytes], laid: Laid, kinds: Numbers) -> Marks:
        """Which of those that have a template were seen before, as far as those say that are asked."""
        again: Marks = np.zeros(len(series), np.bool_)
        places = np.flatnonzero(self._kinds.chosen(laid) & (kinds != 0)).tolist() or np.flatnonzero(kinds)[:1].tolist()
        # Each speaks for those that follow, the first one also for those before it.
        ends = [*places[1:], len(series)]
        for place, start, end in zip(places, [0, *places[1:]], ends, strict=False):
            if self._enricher.seen.again(series[place][: self._kinds.labels[kinds[place]]]):
                again[start:end] = True
        again &= kinds != 0
        return again

    def _sheets(self, laid: Laid, places: Numbers, kinds: Numbers, given: Numbers, passed: Passed) -> list[Sheet]:
        """What goes on of series that have a template and enough of the same layout beside them."""
        layouts = self._kinds.layouts[kinds] * _LAYOUTS + self._given.groups[given]
        order = layouts.argsort(kind="stable")
        found = []
        for start, end in runs(layouts[order]):
            if end - start >= _FEW_ROWS:
                rows = order[start:end]
                template = self._kinds.templates[kinds[rows[0]]]
                ours, first = self._given.both(given[rows])
                which = places[rows]
                found.append(sheet(which, laid.rows(which, template.size), ours, first.sizes[0], template))
                passed.add(len(rows), len(rows) if first.number == NO_POD else 0)
        return found

    def _one_by_one(
        self, series: Sequence[bytes], places: Numbers, kinds: Numbers, again: Marks, slots: Numbers, passed: Passed
    ) -> dict[int, bytes]:
        """What goes on of the series at these places; templates that are found will be guessed the next time."""
        others: dict[int, bytes] = {}
        found: dict[int, Template] = {}
        pieces, passed.pieces = passed.pieces, []
        numbers = zip(places.tolist(), kinds[places].tolist(), again[places].tolist(), strict=True)
        try:
            for place, kind, seen in numbers:
                one = series[place]
                if not kind:
                    if (template := self._alone.take(one, passed)) is not None:
                        found[int(slots[place])] = template
                elif seen:
                    self._alone.remember(one, self._kinds.templates[kind], passed)
                else:
                    self._alone.attach(one, self._kinds.templates[kind], passed)
                others[place] = b"".join(passed.pieces)
                passed.pieces.clear()
        finally:
            passed.pieces = pieces
        for slot, template in found.items():
            self._kinds.learn(template, slot)
        return others
