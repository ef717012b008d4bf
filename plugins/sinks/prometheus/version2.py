"""From remote write 1.0 to 2.0: names and values once, in a table of symbols.

Field numbers: prometheus/docs, remote write 2.0 specification, io.prometheus.write.v2.
"""

from __future__ import annotations

from lens_core.plugin_api.protobuf import Field, delimited, fields, numeric, varint

from .messages import Outgoing

_SAMPLES, _EXEMPLARS, _HISTOGRAMS = 2, 3, 4
_SUFFIXES = ("_bucket", "_count", "_sum")


def to_version2(message: Outgoing) -> bytes:
    """The Request of 2.0. Raises WireError."""
    return _Writer(message).body()


class _Writer:
    def __init__(self, message: Outgoing) -> None:
        self._message = message
        self._symbols: dict[bytes, int] = {b"": 0}
        self._labels: dict[bytes, bytes] = {}
        self._metadata = self._read_metadata()

    def body(self) -> bytes:
        series = [delimited(5, self._series(one)) for one in self._message.series]
        symbols = [delimited(4, symbol) for symbol in self._symbols]
        return b"".join([*symbols, *series])

    def _symbol(self, text: bytes) -> int:
        return self._symbols.setdefault(text, len(self._symbols))

    def _read_metadata(self) -> dict[bytes, bytes]:
        found = {}
        for message in self._message.metadata:
            parts = {field.number: field.value for field in fields(message)}
            texts = ((3, parts.get(4, b"")), (4, parts.get(5, b"")))
            kind = numeric(1, parts[1]) if parts.get(1) else b""
            refs = b"".join(numeric(number, self._symbol(text)) for number, text in texts if text)
            found[parts.get(2, b"")] = kind + refs
        return found

    def _series(self, message: bytes) -> bytes:
        refs: list[bytes] = []
        rest: list[bytes] = []
        name = b""
        for field in fields(message):
            if field.number == 1:
                refs.append(self._pack_label(field))
                name = name or _metric_name(field.value)
            elif field.number == _SAMPLES:
                rest.append(message[field.start : field.end])
            elif field.number == _EXEMPLARS:
                rest.append(delimited(4, self._exemplar(field.value)))
            elif field.number == _HISTOGRAMS:
                rest.append(delimited(3, field.value))
        metadata = self._metadata_of(name)
        if metadata:
            rest.append(delimited(5, metadata))
        return delimited(1, b"".join(refs)) + b"".join(rest)

    def _pack_label(self, field: Field) -> bytes:
        """The two references of a label, packed."""
        known = self._labels.get(field.value)
        if known is None:
            parts = {part.number: part.value for part in fields(field.value)}
            name, value = self._symbol(parts.get(1, b"")), self._symbol(parts.get(2, b""))
            known = self._labels[field.value] = varint(name) + varint(value)
        return known

    def _exemplar(self, message: bytes) -> bytes:
        refs: list[bytes] = []
        rest: list[bytes] = []
        for field in fields(message):
            if field.number == 1:
                refs.append(self._pack_label(field))
            else:
                rest.append(message[field.start : field.end])
        return (delimited(1, b"".join(refs)) if refs else b"") + b"".join(rest)

    def _metadata_of(self, name: bytes) -> bytes:
        if name in self._metadata:
            return self._metadata[name]
        for suffix in _SUFFIXES:
            if name.endswith(suffix.encode()):
                return self._metadata.get(name[: -len(suffix)], b"")
        return b""


def _metric_name(label: bytes) -> bytes:
    parts = {part.number: part.value for part in fields(label)}
    return parts.get(2, b"") if parts.get(1) == b"__name__" else b""
