"""The hot path: every series of a request to the bytes that go on.

Nearly every series was seen before and has one sample, so that it ends in one of two shapes: a double and a
timestamp of six bytes, or (value 0, which proto3 leaves out) the timestamp alone. What stands before such an end is
looked up among the label sets that are known; a hit proves that it is nothing but labels. Everything else is read
field by field. Values are never touched, so that every kind of NaN stays what it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from lens_core.protobuf import WireError, delimited

from .drops import Drops
from .enriching import VALUE_SIZE, ZERO_SIZE, Enricher, Entry, head_of
from .labels import RefusedSeries
from .samples import Examined, examine, split_labels

_WITH_VALUE = b"\x12\x10\x09"
_WITHOUT_VALUE = b"\x12\x07"
_STAMP_SIZE = 7
_REMEMBERED_STAMPS = 1000
_MESSAGES = 10


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


class Passage:
    """Takes series, as they were cut out of requests, to what goes on of them."""

    def __init__(self, enricher: Enricher, drops: Drops) -> None:
        self._enricher = enricher
        self._drops = drops
        self._stamps: set[bytes] = set()

    def take(self, series: Sequence[bytes], passed: Passed) -> None:
        """Add these series to `passed`. Raises WireError where the request is damaged."""
        epoch = self._enricher.epoch
        stamps, pieces = self._stamps, passed.pieces
        slow = unattached = 0
        nothing = last = Entry(block=b"")
        for one in series:
            # The guess first: senders mostly repeat the order, too. A comparison is cheaper than a look-up.
            entry = last.next
            if entry is not None and one.startswith(entry.block) and entry.epoch == epoch:
                tail = one[len(entry.block) :]
                if tail[11:] in stamps and tail[:3] == _WITH_VALUE and tail[10] < entry.below:
                    pieces += (entry.head, entry.prefix, tail)  # type: ignore[arg-type]
                    unattached += entry.unattached
                    last = entry
                    continue
            entry, tail = self._look_up(one)
            last.next = entry
            if entry is not None and (tail[10] if len(tail) == VALUE_SIZE else 0) < entry.below:
                prefix: bytes = entry.prefix  # type: ignore[assignment]
                pieces += (head_of(len(prefix) + len(tail)), prefix, tail)
                unattached += entry.unattached
            else:
                slow += 1
                self._slowly(one, entry, tail, passed)
            last = entry or nothing
        quick = len(series) - slow
        passed.series += quick
        passed.samples += quick
        passed.unattached += unattached

    def _look_up(self, series: bytes) -> tuple[Entry | None, bytes]:
        """The entry of a series that ends in one of the two shapes, and that end; None for all others."""
        tail = series[-VALUE_SIZE:]
        if tail[11:] not in self._stamps and not self._learn_stamp(tail[11:]):
            return None, b""
        if tail[:3] != _WITH_VALUE:
            tail = tail[ZERO_SIZE:]
            if tail[:2] != _WITHOUT_VALUE:
                return None, b""
        block = series[: -len(tail)]
        entry = self._enricher.young.get(block)
        if entry is not None and entry.epoch == self._enricher.epoch:
            return entry, tail
        try:
            return self._enricher.entry(block), tail
        except (WireError, RefusedSeries):
            return None, b""  # The slow road finds out what it is.

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
