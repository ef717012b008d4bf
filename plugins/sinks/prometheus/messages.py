"""Write requests: packed as they travel; in pieces where they must be divided among shards or have bad series."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import cramjam
import msgspec
from google.protobuf.message import DecodeError

from lens_core import SeriesBatch
from lens_core.plugin_api.protobuf import WireError, delimited, read_varint, splitter

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
