"""From remote write 2.0 (names and values once in a table of symbols) to the messages of 1.0.

Field numbers: prometheus/docs, remote write 2.0 specification, io.prometheus.write.v2. Samples and histograms keep
their bytes: what 2.0 added to them (start timestamps) are fields that a reader of 1.0 skips.
"""

from __future__ import annotations

from collections.abc import Sequence

from lens_core.plugin_api.encoding import too_large
from lens_core.plugin_api.protobuf import DELIMITED, VARINT, Field, WireError, delimited, fields, numeric, packed

_REFS, _SAMPLES, _HISTOGRAMS, _EXEMPLARS, _METADATA = 1, 2, 3, 4, 5
_HISTOGRAM, _GAUGE_HISTOGRAM, _SUMMARY = 3, 4, 5
_SUFFIXES = ("_bucket", "_count", "_sum")


def as_version1(series: Sequence[bytes], translator: Translator | None) -> bytes:
    """A request of 1.0 with these series, which the translator reads if they are of 2.0. Raises WireError."""
    return b"".join([delimited(1, one if translator is None else translator.series(one)) for one in series])


class Translator:
    """Translates the series of one request; collects their metadata, once for each family.

    A reference takes a byte where its symbol may take megabytes, so that the labels of all series are limited, too.
    """

    def __init__(self, symbols: Sequence[bytes], limit_bytes: int) -> None:
        if not symbols or symbols[0]:
            raise WireError("the first symbol is not the empty text")
        self._symbols = symbols
        self._limit = self._left = limit_bytes
        self._labels: dict[tuple[int, int], bytes] = {}
        self._metadata: dict[str, bytes] = {}
        self._noted: set[tuple[str, bytes]] = set()

    @property
    def metadata(self) -> list[bytes]:
        """Messages MetricMetadata of 1.0."""
        return list(self._metadata.values())

    def series(self, message: bytes) -> bytes:
        """A TimeSeries of 1.0. Raises WireError, or PayloadTooLarge."""
        refs: list[int] = []
        rest: list[bytes] = []
        metadata: bytes | None = None
        for field in fields(message):
            if field.number == _REFS:
                refs += packed(field.value, field.kind)
                continue
            if field.number > _METADATA:
                continue  # the created timestamp of early drafts
            if field.kind != DELIMITED:
                raise WireError("a part of a series has the wrong type")
            if field.number == _SAMPLES:
                rest.append(message[field.start : field.end])
            elif field.number == _HISTOGRAMS:
                rest.append(delimited(4, field.value))
            elif field.number == _EXEMPLARS:
                rest.append(delimited(3, self._exemplar(field.value)))
            else:
                metadata = field.value
        if metadata is not None:
            self._record_metadata(self._metric_name(refs), metadata)
        return self._block(refs) + b"".join(rest)

    def _symbol(self, reference: int) -> bytes:
        try:
            return self._symbols[reference]
        except IndexError:
            raise WireError(f"there is no symbol {reference}") from None

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise too_large(self._limit)

    def _block(self, refs: list[int]) -> bytes:
        if len(refs) % 2:
            raise WireError("the number of label references is odd")
        known = self._labels
        pairs = zip(refs[::2], refs[1::2], strict=True)
        labels = [known.get(pair) or self._translate_label(pair) for pair in pairs]
        self._spend(sum(map(len, labels)))
        return b"".join(labels)

    def _translate_label(self, pair: tuple[int, int]) -> bytes:
        name, value = self._symbol(pair[0]), self._symbol(pair[1])
        self._spend(len(name) + len(value))
        label = self._labels[pair] = delimited(1, delimited(1, name) + delimited(2, value))
        return label

    def _exemplar(self, message: bytes) -> bytes:
        refs: list[int] = []
        rest: list[bytes] = []
        for field in fields(message):
            if field.number == 1:
                refs += packed(field.value, field.kind)
            else:
                rest.append(message[field.start : field.end])
        return self._block(refs) + b"".join(rest)

    def _metric_name(self, refs: list[int]) -> str:
        for name, value in zip(refs[::2], refs[1::2], strict=False):
            if self._symbol(name) == b"__name__":
                return self._symbol(value).decode(errors="replace")
        return ""

    def _record_metadata(self, name: str, message: bytes) -> None:
        if (name, message) in self._noted:
            return
        self._noted.add((name, message))
        numbers = {field.number: _decode_number(field) for field in fields(message)}
        kind = numbers.get(1, 0)
        help_text, unit = self._symbol(numbers.get(3, 0)), self._symbol(numbers.get(4, 0))
        if not name or not (kind or help_text or unit):
            return
        family = _family(name) if kind in (_HISTOGRAM, _GAUGE_HISTOGRAM, _SUMMARY) else name
        parts = [numeric(1, kind)] if kind else []
        self._spend(len(family) + len(help_text) + len(unit))
        parts += [delimited(2, family.encode())]
        parts += [delimited(number, text) for number, text in ((4, help_text), (5, unit)) if text]
        self._metadata.setdefault(family, b"".join(parts))


def _decode_number(field: Field) -> int:
    if field.kind != VARINT:
        raise WireError("a part of the metadata has the wrong type")
    return int(field.value)


def _family(name: str) -> str:
    return next((name[: -len(suffix)] for suffix in _SUFFIXES if name.endswith(suffix)), name)
