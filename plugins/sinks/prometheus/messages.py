"""A write request in pieces: cut into series, divided among shards, put together again."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from lens_core.protobuf import WireError, delimited, read_varint, splitter

_Parts = splitter("WriteRequest", {"timeseries": 1, "metadata": 3})


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


def cut(body: bytes) -> Outgoing:
    """Cut a WriteRequest of 1.0. Raises google.protobuf.message.DecodeError."""
    parts: Any = _Parts.FromString(body)
    return Outgoing(list(parts.timeseries), list(parts.metadata))


def label_end(series: bytes) -> int:
    """Where the labels at the beginning of a series end. Raises WireError."""
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
