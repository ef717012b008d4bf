"""From spooled bytes to the records that a sink wants, each with its place in the spool.

An ordinal counts the records of a chunk, wanted or not, readable or not; places in the spool follow from it.
"""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple

import msgspec

from ...model.record_filter import Matcher
from ...model.records import Envelope, Record, decode_envelope
from ...plugin_api.sink_answers import Position
from ..sending.policy import Part
from .chunk import Chunk, Segment

_raw = msgspec.msgpack.Decoder(Envelope)
_encoder = msgspec.msgpack.Encoder()


class Unreadable(NamedTuple):
    """Records with the ordinals `first` (inclusive) to `last` (exclusive) that cannot be read; `body` as it is."""

    first: int
    last: int
    reason: str
    body: bytes


class Unpacked:
    """The records of a chunk that a sink wants. `ordinals` is None when they are all there are."""

    def __init__(self, chunk: Chunk, matcher: Matcher) -> None:
        self.chunk = chunk
        self.records: list[Record] = []
        self.ordinals: list[int] | None = None
        self.unreadable: list[Unreadable] = []
        self.total = chunk.records
        self._matcher = matcher
        base = 0
        for segment in chunk.segments:
            self._add(segment, base)
            base += segment.last - segment.first

    def _add(self, segment: Segment, base: int) -> None:
        records, ordinals = self._read(segment, base)
        if ordinals is None and self._matcher.takes_all(records):
            if self.ordinals is not None:
                self.ordinals.extend(range(base, base + len(records)))
            self.records.extend(records)
            return
        places = list(range(base, base + len(records))) if ordinals is None else ordinals
        if self.ordinals is None:
            self.ordinals = list(range(len(self.records)))
        chosen = list(map(self._matcher, records))
        self.ordinals.extend(compress(places, chosen))
        self.records.extend(compress(records, chosen))

    def _read(self, segment: Segment, base: int) -> tuple[list[Record], list[int] | None]:
        """The readable records of a segment, and their ordinals if some could not be read."""
        held = segment.held
        if held is not None and held.records is not None:
            return held.records[segment.first : segment.last], None
        if segment.fault:
            return self._lose(segment, base, segment.fault)
        try:
            decoded = decode_envelope(segment.body)
        except msgspec.DecodeError as error:
            return self._lose(segment, base, f"the batch cannot be read: {error}")
        records: list[Record] = list(decoded.records)
        if len(records) + len(decoded.rejected) != segment.records:
            return self._lose(segment, base, "the batch does not hold as many records as it was written with")
        if not decoded.rejected:
            if held is not None:
                held.keep(records)
            return records[segment.first : segment.last], None
        return self._around(segment, base, records, dict(decoded.rejected))

    def _around(
        self, segment: Segment, base: int, records: list[Record], rejected: dict[int, str]
    ) -> tuple[list[Record], list[int]]:
        """Keep the readable records of a segment and note the others, with their bytes."""
        envelope = _raw.decode(segment.body)
        readable = iter(records)
        kept: list[Record] = []
        ordinals: list[int] = []
        for index in range(segment.records):
            record = None if index in rejected else next(readable)
            if not segment.first <= index < segment.last:
                continue
            ordinal = base + index - segment.first
            if record is None:
                alone = msgspec.structs.replace(envelope, records=[envelope.records[index]])
                body = _encoder.encode(alone)
                self.unreadable.append(Unreadable(ordinal, ordinal + 1, rejected[index], body))
            else:
                kept.append(record)
                ordinals.append(ordinal)
        return kept, ordinals

    def _lose(self, segment: Segment, base: int, reason: str) -> tuple[list[Record], list[int]]:
        count = segment.last - segment.first
        self.unreadable.append(Unreadable(base, base + count, reason, segment.body))
        return [], []

    @property
    def packed(self) -> bytes | None:
        """All records as one envelope packed by Zstandard, if the spool has them so."""
        if len(self.chunk.segments) != 1 or self.ordinals is not None:
            return None
        segment = self.chunk.segments[0]
        return segment.packed if len(self.records) == segment.records else None

    def end_of(self, part: Part) -> int:
        """The ordinal after a part; what is not wanted and comes after the last part belongs to that one."""
        if part.last >= len(self.records):
            return self.total
        return part.last if self.ordinals is None else self.ordinals[part.last - 1] + 1

    def position(self, ordinal: int) -> Position:
        """The place in the spool after `ordinal` records of the chunk."""
        if ordinal <= 0:
            return self.chunk.start
        for segment in self.chunk.segments:
            count = segment.last - segment.first
            if ordinal <= count:
                return Position(segment.batch, segment.first + ordinal)
            ordinal -= count
        return self.chunk.end

    def finished_bytes(self, first: int, last: int) -> int:
        """Bytes of the batches that end within these ordinals."""
        size = end = 0
        for segment in self.chunk.segments:
            end += segment.last - segment.first
            if first < end <= last:
                size += segment.size
        return size
