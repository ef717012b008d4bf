"""Series that are read field by field, because nothing that is known tells what they are."""

from __future__ import annotations

from lens_core.base.protobuf import WireError, delimited

from .drops import Drops
from .enriching import Enricher
from .entry import Entry
from .labels import RefusedSeries
from .passed import Passed
from .samples import Examined, examine, split_labels

_MESSAGES = 10


class SlowRoad:
    """Takes any series to what goes on of it; exact for all that the quick roads leave."""

    def __init__(self, enricher: Enricher, drops: Drops) -> None:
        self._enricher = enricher
        self._drops = drops

    def take(self, series: bytes, entry: Entry | None, tail: bytes, passed: Passed) -> None:
        """Pass on a series; with its entry if it is known to be that and a single sample. Raises WireError."""
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
        for prefix in entry.prefixes:
            passed.pieces.append(delimited(1, prefix + examined.rest))
        passed.series += 1
        passed.samples += examined.samples
        passed.histograms += examined.histograms
        passed.exemplars += examined.exemplars
        passed.unattached += entry.unattached

    def _labels(self, series: bytes) -> dict[str, str]:
        try:
            return self._enricher.labels(split_labels(series)[0])
        except (WireError, RefusedSeries):
            return {}
