"""The hot path: every series of a request to the bytes that go on.

Nearly every series was seen before and has one sample, so that it ends in one of two shapes: a double and a
timestamp of six bytes, or (value 0, which proto3 leaves out) the timestamp alone. What stands before such an end is
looked up among the label sets that are known; a hit proves that it is nothing but labels. Everything else is read
field by field, unless a template tells what it is. Values are never touched, so that every kind of NaN stays what it
is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import msgspec

from lens_core.protobuf import WireError, delimited

from .drops import Drops
from .enriching import Enricher
from .entry import Entry, head_of
from .labels import RefusedSeries
from .samples import VALUE_SIZE, VALUE_TAGS, ZERO_SIZE, ZERO_TAGS, Examined, examine, split_labels
from .templates import Template, no_template

_DOUBLE_SIZE = 8
_STAMP_SIZE = 7
_REMEMBERED_STAMPS = 1000
_MESSAGES = 10
# After so many that are new, it is looked whether the next one is known.
_GROUP = 32
# One in sixteen is asked whether it was seen before.
_ASKED = 15


class Passed(msgspec.Struct):
    """What became of the series of one request; `pieces` joined are the time series that go on."""

    pieces: list[bytes] = []
    series: int = 0
    samples: int = 0
    histograms: int = 0
    exemplars: int = 0
    unattached: int = 0
    dropped: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    messages: list[str] = []

    def add(self, single: int, unattached: int) -> None:
        """Count series of a single sample, of which so many have no pod."""
        self.series += single
        self.samples += single
        self.unattached += unattached


class Passage:
    """Takes series, as they were cut out of requests, to what goes on of them."""

    def __init__(self, enricher: Enricher, drops: Drops) -> None:
        self._enricher = enricher
        self._drops = drops
        self._stamps: set[bytes] = set()
        self._last = no_template()
        self._again: bool | None = None

    def take(self, series: Iterable[bytes], passed: Passed) -> None:
        """Add these series to `passed`. Raises WireError where the request is damaged."""
        remaining = iter(series)
        one = self._take_known(remaining, passed)
        while one is not None:
            one = self._take_new(one, remaining, passed)
            if one is not None:
                one = self._take_known(chain((one,), remaining), passed)

    def _take_known(self, series: Iterable[bytes], passed: Passed) -> bytes | None:
        """Pass on series until there is a single sample whose label set is not remembered; that one."""
        epoch = self._enricher.epoch
        stamps, pieces = self._stamps, passed.pieces
        quick = unattached = 0
        nothing = last = Entry(came=b"")
        new = None
        for one in series:
            # The guess first: senders mostly repeat the order, too. A comparison is cheaper than a look-up.
            entry = last.next
            if entry is not None and one.startswith(entry.came) and entry.epoch == epoch:
                sample = one[len(entry.came) :]
                if sample[_DOUBLE_SIZE:] in stamps and sample[_DOUBLE_SIZE - 1] < entry.below:
                    pieces += (entry.head, entry.goes, sample)  # type: ignore[arg-type]
                    quick += 1
                    unattached += entry.unattached
                    last = entry
                    continue
            tail = self._tail(one)
            entry = self._look_up(one[: -len(tail)], entry) if tail else None
            last.next = entry
            if entry is not None and (tail[10] if len(tail) == VALUE_SIZE else 0) < entry.below:
                prefix: bytes = entry.prefix  # type: ignore[assignment]
                pieces += (head_of(len(prefix) + len(tail)), prefix, tail)
                quick += 1
                unattached += entry.unattached
            elif entry is None and tail:
                new = one
                break
            else:
                self._slowly(one, entry, tail, passed)
            last = entry or nothing
        passed.add(quick, unattached)
        return new

    def _take_new(self, one: bytes, others: Iterator[bytes], passed: Passed) -> bytes | None:
        """Pass on a series whose label set is not remembered, and others until one is known; that one."""
        group = [one]
        self._again = None
        while True:
            self._pass_group(group, passed)
            first = next(others, None)
            if first is None or not (tail := self._tail(first)) or self._look_up(first[: -len(tail)]) is not None:
                return first
            group = [first, *islice(others, min(2 * len(group), _GROUP) - 1)]

    def _pass_group(self, group: Iterable[bytes], passed: Passed) -> None:
        """Pass on series by their templates, which costs little more than what is remembered.

        The first and a few others, the same every time, are asked whether they were seen before. The answer holds for
        those that follow, because neighbours came together before: either all are remembered or none.
        """
        stamps, pieces, attached_to = self._stamps, passed.pieces, self._enricher.attached
        quick = unattached = 0
        last, again = self._last, self._again
        for one in group:
            # The guess first, as with those that are known.
            template = last.next
            if template is None or one[-_STAMP_SIZE:] not in stamps or not template.fits(one):
                template = self._find(one, passed)
                if template is None:
                    continue
                last.next = template
            last = template
            before, middle, after, told = template.cut(one)
            if again is None or not hash(before) & _ASKED:
                again = self._enricher.seen.again(one[: template.labels])
            if again:
                self._slowly(one, self._enricher.remember(one[: template.labels]), one[template.labels :], passed)
                continue
            attached = attached_to.get(told) or self._enricher.attach(told)
            quick += 1
            if attached.size:
                pieces += (head_of(len(one) + attached.size), before, attached.pod, middle, attached.workload, after)
            else:
                pieces += (head_of(len(one)), one)
                unattached += 1
        self._last, self._again = last, again
        passed.add(quick, unattached)

    def _find(self, series: bytes, passed: Passed) -> Template | None:
        """The template of a series; without one it is passed on by the slow road."""
        tail = self._tail(series)
        template = self._enricher.templates.find(series[: -len(tail)], tail) if tail else None
        if template is None:
            self._slowly(series, None, tail, passed)
        return template

    def _tail(self, series: bytes) -> bytes:
        """The end of a series, if it has one of the two shapes; else nothing."""
        tail = series[-VALUE_SIZE:]
        if tail[11:] not in self._stamps and not self._learn_stamp(tail[11:]):
            return b""
        if tail[:3] == VALUE_TAGS:
            return tail
        tail = tail[ZERO_SIZE:]
        return tail if tail[:2] == ZERO_TAGS else b""

    def _look_up(self, block: bytes, guess: Entry | None = None) -> Entry | None:
        """The entry of a label set that is remembered."""
        epoch, came = self._enricher.epoch, block + VALUE_TAGS
        entry = guess if guess is not None and guess.came == came else self._enricher.young.get(came)
        return entry if entry is not None and entry.epoch == epoch else self._enricher.known(block)

    def _slowly(self, series: bytes, entry: Entry | None, tail: bytes, passed: Passed) -> None:
        """Pass on a series that needs a closer look; with its entry if it is known to be that and a single sample."""
        try:
            if entry is not None and not entry.negative:
                block, examined = entry.block, Examined(tail, 1, 0, 0, 0)
            else:
                block, examined, entry = self._examine(series)
        except RefusedSeries as error:
            passed.refused[error.reason] += 1
            self._drops.drop(error.reason, 1, lambda: self._labels(series))
            if len(passed.messages) < _MESSAGES:
                passed.messages.append(str(error))
            return
        if examined.dropped:
            passed.dropped += examined.dropped
            self._drops.drop("negative", examined.dropped, lambda: self._enricher.labels(block))
            if not examined.rest:
                return
        held = examined.samples + examined.histograms
        if entry.reason:
            passed.dropped += held
            self._drops.drop(entry.reason, held, lambda: self._enricher.labels(block))
            return
        self._pass(entry, examined, passed)

    def _examine(self, series: bytes) -> tuple[bytes, Examined, Entry]:
        block, rest = split_labels(series)
        entry = self._enricher.entry(block)
        return block, examine(rest, drop_negative=entry.negative), entry

    def _pass(self, entry: Entry, examined: Examined, passed: Passed) -> None:
        prefixes = entry.copies if entry.prefix is None else (entry.prefix, *entry.copies)
        for prefix in prefixes:
            passed.pieces.append(delimited(1, prefix + examined.rest))
        passed.series += 1
        passed.samples += examined.samples
        passed.histograms += examined.histograms
        passed.exemplars += examined.exemplars
        passed.unattached += entry.unattached

    def _learn_stamp(self, stamp: bytes) -> bool:
        """Remember an end that is a field 2 with a number of six bytes; requests have few different timestamps."""
        if len(stamp) != _STAMP_SIZE or stamp[0] != 0x10 or stamp[6] > 0x7F or min(stamp[1:6]) < 0x80:
            return False
        if len(self._stamps) >= _REMEMBERED_STAMPS:
            self._stamps.clear()
        self._stamps.add(stamp)
        return True

    def _labels(self, series: bytes) -> dict[str, str]:
        try:
            return self._enricher.labels(split_labels(series)[0])
        except (WireError, RefusedSeries):
            return {}
