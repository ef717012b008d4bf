"""The frames of an event file: TFRecord (tensorflow/core/lib/io/record_writer.h).

A frame is a length (u64), the masked CRC-32C of these eight bytes, the data, and the masked CRC-32C of the data; all
little endian. A file that is being written ends anywhere.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

try:
    from google_crc32c import value as _fast_crc
except ImportError:  # then lengths are checked, data is not: in Python that would take longer than all the rest
    _fast_crc = None

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_OVERHEAD = _HEADER.size + _FOOTER.size
_MASK = 0xA282EAD8


class Frames(NamedTuple):
    """What was read: the end of the last whole frame, how many there were, and what is wrong behind them, or ''.

    `skipped` frames were larger than what may be read at once (images, graphs): they are stepped over, unread.
    """

    end: int
    frames: int
    skipped: int
    problem: str
    has_more: bool


def read_frames(file: BinaryIO, start: int, max_bytes: int, take: Callable[[bytes, int], None]) -> Frames:
    """Hand the data of whole frames from `start` on to `take`, with the offset behind each."""
    size = os.fstat(file.fileno()).st_size
    file.seek(start)
    data = file.read(max_bytes)
    place, count, available = 0, 0, len(data)
    known: dict[int, int] = {}
    while place + _HEADER.size <= available:
        length, checksum = _HEADER.unpack_from(data, place)
        if known.get(length) != checksum:
            if masked(crc32c(data[place : place + 8])) != checksum:
                return Frames(start + place, count, 0, f"no frame begins at byte {start + place}", False)
            known[length] = checksum
        first = place + _HEADER.size
        last = first + length
        if last + _FOOTER.size > available:
            break
        content = data[first:last]
        if _fast_crc is not None and masked(_fast_crc(content)) != _FOOTER.unpack_from(data, last)[0]:
            return Frames(start + place, count, 0, f"the frame at byte {start + place} is damaged", False)
        place = last + _FOOTER.size
        take(content, start + place)
        count += 1
    return _rest(start, place, count, data, size, max_bytes)


def _rest(start: int, place: int, count: int, data: bytes, size: int, max_bytes: int) -> Frames:
    """What stands behind the last whole frame that was read: nothing yet, the next piece, or a frame too large."""
    end = start + place
    if place + _HEADER.size > len(data):
        return Frames(end, count, 0, "", end + _OVERHEAD <= size and len(data) == max_bytes)
    (length, _) = _HEADER.unpack_from(data, place)
    behind = end + length + _OVERHEAD
    if behind > size:
        return Frames(end, count, 0, "", False)
    if length + _OVERHEAD > max_bytes:
        return Frames(behind, count, 1, "", behind < size)
    return Frames(end, count, 0, "", True)


def masked(checksum: int) -> int:
    """A checksum in the form in which it is stored."""
    return (((checksum >> 15) | (checksum << 17)) + _MASK) & 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return tuple(table)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    if _fast_crc is not None:
        return int(_fast_crc(data))
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF
