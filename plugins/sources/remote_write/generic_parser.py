"""Any series, field by field: exact for everything that the hot path leaves. And what is forwarded of a request."""

from __future__ import annotations

from collections import Counter

import msgspec

from lens_core.plugin_api.protobuf import WireError, delimited

from .drops import Drops
from .enriching import Enricher
from .forward import LabelSet, Output
from .labels import RefusedSeries
from .samples import examine, split_labels

_MESSAGES = 10


class ForwardedBatch(msgspec.Struct):
    """The forwarded part of one request, in `output`, with its counts.

    Of the series `received`, so many were `known`: their entry was in the label-set table.
    """

    output: Output
    received: int = 0
    known: int = 0
    series: int = 0
    samples: int = 0
    histograms: int = 0
    exemplars: int = 0
    unattached: int = 0
    dropped: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    messages: list[str] = []

    def append_series(self, field: bytes) -> None:
        """Append a series, or metadata, with its tag."""
        self.output.append_bytes(field, 0, len(field))

    def view(self) -> memoryview:
        """Return a view of the output, valid until something is appended."""
        return memoryview(self.output.buffer)[: self.output.size]


class GenericParser:
    """Parses series and forwards what is to be forwarded of them; notes what is dropped or refused."""

    def __init__(self, enricher: Enricher, drops: Drops) -> None:
        self._enricher = enricher
        self._drops = drops

    def parse(self, series: bytes, entry: LabelSet | None, batch: ForwardedBatch) -> None:
        """Forward one series; with the entry of the labels that it begins with, if that is known. Raises WireError."""
        try:
            block, rest = split_labels(series)
            if entry is None or entry.received != block:
                entry = self._enricher.label_set(block)
            examined = examine(rest, drop_negative=entry.negative > 0)
        except RefusedSeries as error:
            batch.refused[error.reason] += 1
            self._drops.drop(error.reason, 1, lambda: self._labels(series))
            if len(batch.messages) < _MESSAGES:
                batch.messages.append(str(error))
            return
        if examined.dropped:
            batch.dropped += examined.dropped
            self._drops.drop("negative", examined.dropped, lambda: self._enricher.labels(block))
            if not examined.rest:
                return
        if entry.reason:
            held = examined.samples + examined.histograms
            batch.dropped += held
            self._drops.drop(entry.reason, held, lambda: self._enricher.labels(block))
            return
        for labels in (entry.forwarded_labels(), *entry.copies):
            if labels is not None:
                batch.append_series(delimited(1, labels + examined.rest))
        batch.series += 1
        batch.samples += examined.samples
        batch.histograms += examined.histograms
        batch.exemplars += examined.exemplars
        batch.unattached += entry.pod is None

    def _labels(self, series: bytes) -> dict[str, str]:
        try:
            return self._enricher.labels(split_labels(series)[0])
        except (WireError, RefusedSeries):
            return {}
