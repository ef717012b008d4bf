"""The framing of a `.wandb` file: a header of 7 bytes, then the log format of LevelDB in blocks of 32 KiB.

Header: `:W&B`, 0xBEE1 (u16), version 0. A chunk is checksum (u32), length (u16), type, data; it never crosses the end
of a block (blocks count from the start of the file), and fewer than 7 bytes at a block's end are padding. Types: 1 is
a whole record, 2, 3 and 4 are its first, middle and last part. The checksum is CRC-32 (zlib's) over type and data.
All little endian (wandb/sdk/internal/datastore.py up to 0.29, core/internal/transactionlog since).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

BLOCK = 32 * 1024
HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_CHUNK = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class Framed(NamedTuple):
    """What was read: the end of the last whole record, and how many chunks were damaged."""

    end: int
    records: int
    damaged: int


def read_records(data: bytes, start: int, take: Callable[[bytes, int], None]) -> Framed:
    """Hand the whole records in `data`, which stands at `start` of its file, to `take`, with the offset behind each.

    A chunk that is damaged is waited for as long as its block may still be written; once there are bytes behind its
    block, the rest of the block is given up, as LevelDB does.
    """
    place, end, records, damaged = 0, 0, 0, 0
    parts: list[bytes] | None = None
    size = len(data)
    while place < size:
        room = BLOCK - (start + place) % BLOCK
        if room < _CHUNK.size:
            place += room
            continue
        chunk = _chunk(data, place, room)
        if chunk is None:
            if place + room >= size:
                break
            damaged += 1
            place += room
            parts = None
            end = place
            continue
        kind, content = chunk
        place += _CHUNK.size + len(content)
        if kind in (_FULL, _FIRST):
            parts = []
        if parts is None:
            end = place  # the rest of a record whose beginning is lost
            continue
        parts.append(content)
        if kind in (_FULL, _LAST):
            take(b"".join(parts), start + place)
            parts, end = None, place
            records += 1
    return Framed(start + end, records, damaged)


def _chunk(data: bytes, place: int, room: int) -> tuple[int, bytes] | None:
    """Type and data of a chunk; None when it is not whole, or damaged."""
    if place + _CHUNK.size > len(data):
        return None
    checksum, length, kind = _CHUNK.unpack_from(data, place)
    last = place + _CHUNK.size + length
    if not _FULL <= kind <= _LAST or _CHUNK.size + length > room or last > len(data):
        return None
    if zlib.crc32(data[place + 6 : last]) != checksum:
        return None
    return kind, data[place + _CHUNK.size : last]
