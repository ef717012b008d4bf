"""Series whose label sets are not remembered: passed on by templates, those of one kind together.

They are walked through once, run by run, to see of which kind they are; the places of what goes on are kept free
meanwhile. A few of them, the same every time, are asked whether they were seen before. The answer holds for those that
follow, because neighbours came together before: either all are remembered or none.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise

from .attaching import Attached
from .enriching import Enricher
from .entry import Entry
from .passed import Passed
from .sheets import Sheet, Stack
from .slow_road import SlowRoad
from .tails import STAMP_SIZE, Tails
from .templates import Template, no_template


class Newcomers:
    """Takes new series; what goes on of them is in its place after `finish`."""

    def __init__(self, enricher: Enricher, tails: Tails, slow_road: SlowRoad) -> None:
        self._enricher = enricher
        self._tails = tails
        self._slow_road = slow_road
        self._last = no_template()
        self._waiting: list[Sheet] = []

    def take(self, group: Iterable[bytes], passed: Passed) -> None:
        """Add series to those that wait; those without a template are passed on. Raises WireError."""
        for _, run in groupby(group, len):
            rows = [*run]
            while rows:
                template = self._template(rows[0])
                if template is None:
                    self._slow_road.take(rows[0], None, self._tails.of(rows[0]), passed)
                    rows = rows[1:]
                    continue
                end = len(rows)
                if end > 1 and not self._fits(template, rows[-1]):
                    end = bisect(rows, False, key=lambda one: not self._fits(template, one))
                rows = rows[self._lay(template, rows[:end], passed) :]

    def finish(self, passed: Passed) -> None:
        """Pass on what waits. Raises WireError."""
        for sheet in self._waiting:
            self._pass(sheet, sheet.stack(self._tails), passed)

    def forget(self) -> None:
        """Let go of what waited: it was passed on, or the request is refused."""
        for sheet in self._waiting:
            sheet.clear()
        self._waiting.clear()

    def _template(self, one: bytes) -> Template | None:
        """The template of a series. The guess first: senders repeat the order of kinds, too."""
        template = self._last.followers.get(len(one))
        if template is None or not self._fits(template, one):
            tail = self._tails.of(one)
            template = self._enricher.templates.find(one[: -len(tail)], tail) if tail else None
            if template is None:
                return None
            self._last.follow(template)
        self._last = template
        return template

    def _fits(self, template: Template, one: bytes) -> bool:
        return one[-STAMP_SIZE:] in self._tails.stamps and template.fits(one)

    def _lay(self, template: Template, rows: list[bytes], passed: Passed) -> int:
        """Add rows to the sheets where they belong by what their pods give; how many. The first is of the kind."""
        attached = self._attached(template, rows)
        end = 0
        for sizes, same in groupby([one.sizes for one in attached]):
            part = slice(end, end := end + len([*same]))
            sheet = template.sheet(sizes, Sheet)
            if not sheet.rows:
                self._waiting.append(sheet)
            sheet.add(rows[part], attached[part], len(passed.pieces), proven=len(rows) == 1)
            passed.pieces.append(b"")
        return end

    def _attached(self, template: Template, rows: list[bytes]) -> list[Attached]:
        """What the pods of rows give, up to a row that is not of the kind after all, as far as that shows here."""
        known = self._enricher.attached
        found = [*map(known.get, [one[template.told] for one in rows])]
        for place, attached in enumerate(found) if not all(found) else ():
            if attached is None:
                # What has not been read before may be anything, unless its row is of the kind.
                if not self._fits(template, rows[place]):
                    return found[:place]  # type: ignore[return-value]
                told = rows[place][template.told]
                found[place] = known.get(told) or self._enricher.attach(told)
        return found  # type: ignore[return-value]

    def _pass(self, sheet: Sheet, stack: Stack, passed: Passed) -> None:
        apart = self._apart(sheet, stack, passed)
        goes, size, row = stack.goes, stack.size, 0
        for place, rows in sheet.runs:
            if apart:
                each = [apart.get(n, goes[n * size : (n + 1) * size]) for n in range(row, row + rows)]
                passed.pieces[place] = b"".join(each)
            else:
                passed.pieces[place] = bytes(goes[row * size : (row + rows) * size])
            row += rows
        quick = row - len(apart)
        passed.add(quick, 0 if sheet.attaches else quick)

    def _apart(self, sheet: Sheet, stack: Stack, passed: Passed) -> Mapping[int, bytes]:
        """What goes on of rows that are not of the sheet's kind, or are remembered from now on."""
        apart = {place: self._aside(sheet.rows[place], None, b"", passed) for place in stack.odd}
        labels = sheet.template.labels
        for place in self._seen_again(sheet, stack.asked):
            if place not in apart:
                one = sheet.rows[place]
                entry = self._enricher.remember(one[:labels])
                apart[place] = self._aside(one, entry, one[labels:], passed)
        return apart

    def _seen_again(self, sheet: Sheet, asked: Sequence[int]) -> list[int]:
        """The places of rows that were seen before: of those that are asked, and of their followers."""
        labels, again = sheet.template.labels, self._enricher.seen.again
        found: list[int] = []
        for place, following in pairwise((*asked, len(sheet.rows))):
            if again(sheet.rows[place][:labels]):
                found += range(place, following)
        return found

    def _aside(self, one: bytes, entry: Entry | None, tail: bytes, passed: Passed) -> bytes:
        """What goes on of a series by the slow road, which would put it behind the others."""
        others, passed.pieces = passed.pieces, []
        try:
            self._slow_road.take(one, entry, tail, passed)
            return b"".join(passed.pieces)
        finally:
            passed.pieces = others
