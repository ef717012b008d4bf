"""Messages of remote write 1.0 and 2.0.

From remote write 1.0 to 2.0: names and values once, in a table of symbols.

Field numbers: prometheus/docs, remote write 2.0 specification, io.prometheus.write.v2.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import cramjam
import msgspec
from google.protobuf.message import DecodeError

from lens_core import SeriesBatch
from lens_core.plugin_api.protobuf import Field, WireError, delimited, fields, numeric, read_varint, splitter, varint

_Parts = splitter("WriteRequest", {"timeseries": 1, "metadata": 3})
_Series = splitter("TimeSeries", {"samples": 2, "exemplars": 3, "histograms": 4})


class Outgoing(msgspec.Struct, frozen=True):
    """Series and metadata of one request, each as its message's bytes."""

    series: Sequence[bytes]
    metadata: Sequence[bytes] = ()

    def body(self) -> bytes:
        """The WriteRequest of 1.0."""
        parts = [delimited(1, one) for one in self.series]
        return b"".join([*parts, *(delimited(3, one) for one in self.metadata)])

    def halves(self) -> tuple[Outgoing, Outgoing]:
        """Two halves; the metadata goes with the first. There must be two series at least."""
        middle = len(self.series) // 2
        return Outgoing(self.series[:middle], self.metadata), Outgoing(self.series[middle:])


class Packed(msgspec.Struct, frozen=True):
    """A request as it travels: a snappy block of a WriteRequest of 1.0, and the number of its series."""

    block: bytes
    series: int

    def message(self) -> Outgoing:
        """Its pieces. Raises WireError."""
        try:
            return split_request(bytes(cramjam.snappy.decompress_raw(self.block)))
        except cramjam.DecompressionError as error:
            raise WireError(f"not a snappy block: {error}") from None


def pack_message(message: Outgoing) -> Packed:
    """Pack a message."""
    return Packed(bytes(cramjam.snappy.compress_raw(message.body())), len(message.series))


def packed_record(record: SeriesBatch) -> Packed:
    """The request of a record. Raises WireError for one that no store could read."""
    if record.compression == "snappy":
        return Packed(record.body, record.series)
    if record.compression:
        raise WireError(f"the compression {record.compression!r} is not known")
    return pack_message(split_request(record.body))


def split_request(body: bytes) -> Outgoing:
    """Cut a WriteRequest of 1.0. Raises WireError."""
    try:
        parts: Any = _Parts.FromString(body)
    except DecodeError as error:
        raise WireError(f"not a write request: {error}") from None
    return Outgoing(list(parts.timeseries), list(parts.metadata))


def counts(series: Sequence[bytes]) -> tuple[int, int, int]:
    """Count samples, exemplars and histograms in series that a store could read."""
    parts: Any = _Series.FromString(b"".join(series))
    return len(parts.samples), len(parts.exemplars), len(parts.histograms)


def label_end(series: bytes) -> int:
    """Return where the labels at the beginning of a series end. Raises WireError."""
    place = 0
    size = len(series)
    while place < size and series[place] == 0x0A:
        length, place = read_varint(series, place + 1)
        place += length
    if place > size:
        raise WireError("the series ends inside a label")
    return place


def divide(message: Outgoing, shards: int) -> list[Outgoing]:
    """One part for each shard; a series always goes to the same one. Parts may be empty. Raises WireError."""
    parts: list[list[bytes]] = [[] for _ in range(shards)]
    for one in message.series:
        parts[zlib.crc32(one[: label_end(one)]) % shards].append(one)
    first = Outgoing(parts[0], message.metadata)
    return [first, *(Outgoing(part) for part in parts[1:])]


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
