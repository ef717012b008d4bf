"""Reads TensorBoard's event files: frames of a file, events of a frame.

The frames of an event file: TFRecord (tensorflow/core/lib/io/record_writer.h).

A frame is a length (u64), the masked CRC-32C of these eight bytes, the data, and the masked CRC-32C of the data; all
little endian. A file that is being written ends anywhere.

Scalars out of events: protobuf by hand (tensorflow/core/util/event.proto, framework/summary.proto, tensor.proto).

Event: 1 wall_time (double), 2 step, 5 summary. Summary: 1 value. Value: 1 tag, 2 simple_value (float), 8 tensor,
9 metadata. Metadata: 1 plugin_data (1 plugin_name), 4 data_class (1 is scalar). Tensor: 1 dtype, 4 content, 5 floats,
6 doubles, 7 ints, 10 int64s, 11 bools, 16 uint32s, 17 uint64s, 13 halves.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

from lens_core.plugin_api.protobuf import DELIMITED, FIXED32, FIXED64, WireError, fields, packed, read_varint

try:
    from google_crc32c import value as _fast_crc
except ImportError:  # then lengths are checked, data is not: in Python that would take longer than all the rest
    _fast_crc = None

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_OVERHEAD = _HEADER.size + _FOOTER.size
_MASK = 0xA282EAD8


class Frames(NamedTuple):
    """The frames read: the end of the last whole frame, their number, and the fault after them, or ''.

    `skipped` frames were larger than what may be read at once (images, graphs): they are stepped over, unread.
    """

    end: int
    frames: int
    skipped: int
    problem: str
    has_more: bool


def read_frames(file: BinaryIO, start: int, max_bytes: int, take: Callable[[bytes, int], None]) -> Frames:
    """Hand the data of whole frames from `start` on to `take`, with the offset after each."""
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
    return _unread_frames(start, place, count, data, size, max_bytes)


def _unread_frames(start: int, place: int, count: int, data: bytes, size: int, max_bytes: int) -> Frames:
    """Classify the bytes after the last whole frame: nothing yet, the next piece, or a frame too large."""
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


def _crc_table() -> tuple[int, ...]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return tuple(table)


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    if _fast_crc is not None:
        return int(_fast_crc(data))
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


# step, wall time in seconds, tag, value
Take = Callable[[int, float, str, float], None]

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_SCALARS = b"scalars"
_DATA_CLASS_SCALAR = 1
_CONTENT = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 17: "<H", 19: "<e"}
_CONTENT |= {22: "<I", 23: "<Q"}
_BFLOAT16 = 14
_WHOLE_NUMBERS = (7, 10, 11, 16, 17)


class EventReader:
    """Reads events; keeps the texts of tags, which come repeatedly."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._tags: dict[bytes, str] = {}

    def read_scalars(self, event: bytes) -> None:
        """Hand every scalar of an event to `take`. Raises lens_core.plugin_api.protobuf.WireError for a damaged one."""
        try:
            usual = self._read_usual(event)
        except (struct.error, IndexError):
            usual = False  # it ends early; the careful way says so
        if not usual:
            self._read_any(event)

    def _read_usual(self, event: bytes) -> bool:
        """Time, step and one value of at most 127 bytes with nothing but a short tag and a float: most events."""
        place = 10
        step = 0
        if event[0] != 0x09:
            return False
        if event[9] == 0x10:
            step = event[10]
            place = 12
            if step > 0x7F:
                step, place = read_varint(event, 10)
                place += 1
        left = len(event) - place
        # Every length must say what the one around it leaves room for.
        if event[place - 1] != 0x2A or event[place] != left - 1 or left > 0x80 or event[place + 1] != 0x0A:
            return False
        middle = place + 5 + event[place + 4]
        if event[place + 2] != left - 3 or event[place + 3] != 0x0A or middle + 5 != len(event):
            return False
        if event[middle] != 0x15 or step >= 1 << 63:
            return False
        name = event[place + 5 : middle]
        tag = self._tags.get(name) or self._decode_name(name)
        self._take(step, _DOUBLE.unpack_from(event, 1)[0], tag, _FLOAT.unpack_from(event, middle + 1)[0])
        return True

    def _read_any(self, event: bytes) -> None:
        wall = 0.0
        step = 0
        place = 0
        size = len(event)
        try:
            while place < size:
                tag = event[place]
                if tag == 0x09:
                    (wall,) = _DOUBLE.unpack_from(event, place + 1)
                    place += 9
                elif tag == 0x10:
                    step, place = read_varint(event, place + 1)
                elif tag == 0x2A:
                    length, place = read_varint(event, place + 1)
                    self._summary(event, place, place + length, step, wall)
                    place += length
                else:
                    # A graph, a version, a session's start: nothing after it matters that comes before a summary.
                    self._any_order(event)
                    return
        except (struct.error, IndexError):
            raise WireError("the event ends too early") from None

    def _any_order(self, event: bytes) -> None:
        """An event with other fields: read in whatever order they stand."""
        found = {field.number: field for field in fields(event)}
        if 5 in found and found[5].kind == DELIMITED:
            wall = _DOUBLE.unpack(found[1].value)[0] if 1 in found and found[1].kind == FIXED64 else 0.0
            step = found[2].value if 2 in found and found[2].kind == 0 else 0
            self._summary(found[5].value, 0, len(found[5].value), step, wall)

    def _summary(self, data: bytes, place: int, end: int, step: int, wall: float) -> None:
        if step >= 1 << 63:
            step -= 1 << 64
        while place < end:
            if data[place] != 0x0A:
                raise WireError("a summary holds something else than values")
            length, place = read_varint(data, place + 1)
            last = place + length
            # The usual value: a tag shorter than 128 bytes, then a float, and nothing else.
            middle = place + 2 + data[place + 1]
            if data[place] == 0x0A and middle + 5 == last and data[middle] == 0x15:
                name = data[place + 2 : middle]
                tag = self._tags.get(name) or self._decode_name(name)
                self._take(step, wall, tag, _FLOAT.unpack_from(data, middle + 1)[0])
            else:
                self._parse_value(data[place:last], step, wall)
            place = last

    def _parse_value(self, value: bytes, step: int, wall: float) -> None:
        name = b""
        number: float | None = None
        is_scalar = True
        for field in fields(value):
            if field.number == 1 and field.kind == DELIMITED:
                name = field.value
            elif field.number == 2 and field.kind == FIXED32:
                (number,) = _FLOAT.unpack(field.value)
            elif field.number == 8 and field.kind == DELIMITED:
                number = read_tensor(field.value)
            elif field.number == 9 and field.kind == DELIMITED:
                is_scalar = _says_scalar(field.value)
        if number is not None and name and is_scalar:
            self._take(step, wall, self._decode_name(name), number)

    def _decode_name(self, name: bytes) -> str:
        text = self._tags.get(name)
        if text is None:
            if len(self._tags) > 100_000:
                self._tags.clear()
            self._tags[name] = text = name.decode("utf-8", "replace")
        return text


def _says_scalar(metadata: bytes) -> bool:
    """Whether metadata belong to a scalar; newer files leave them out after the first value, so that none says yes."""
    plugin = b""
    data_class = 0
    for field in fields(metadata):
        if field.number == 1 and field.kind == DELIMITED:
            plugin = next((inner.value for inner in fields(field.value) if inner.number == 1), b"")
        elif field.number == 4 and field.kind == 0:
            data_class = field.value
    return plugin == _SCALARS or data_class == _DATA_CLASS_SCALAR or not (plugin or data_class)


def read_tensor(tensor: bytes) -> float | None:
    """The one number of a tensor; None when it has none or several, or no numbers."""
    kind = 0
    content = b""
    numbers: list[float] = []
    for field in fields(tensor):
        if field.number == 1 and field.kind == 0:
            kind = field.value
        elif field.number == 4 and field.kind == DELIMITED:
            content = field.value
        elif field.number in (5, 6):
            numbers += _reals(field.value, field.kind, _FLOAT if field.number == 5 else _DOUBLE)
        elif field.number in _WHOLE_NUMBERS:
            numbers += map(_signed, packed(field.value, field.kind))
        elif field.number == 13:
            numbers += [_half(bits, kind) for bits in packed(field.value, field.kind)]
    if content:
        return _from_content(content, kind)
    return numbers[0] if len(numbers) == 1 else None


def _reals(value: bytes, kind: int, layout: struct.Struct) -> list[float]:
    if kind not in (DELIMITED, FIXED32, FIXED64) or len(value) % layout.size:
        raise WireError("a list of numbers has the wrong size")
    return [found for (found,) in layout.iter_unpack(value)]


def _signed(number: int) -> float:
    return float(number - (1 << 64) if number >= 1 << 63 else number)


def _half(bits: int, kind: int) -> float:
    if kind == _BFLOAT16:
        return float(_FLOAT.unpack(struct.pack("<I", (bits & 0xFFFF) << 16))[0])
    return float(struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0])


def _from_content(content: bytes, kind: int) -> float | None:
    if kind == _BFLOAT16 and len(content) == 2:
        return _half(int.from_bytes(content, "little"), kind)
    layout = _CONTENT.get(kind)
    if layout is None or struct.calcsize(layout) != len(content):
        return None
    return float(struct.unpack(layout, content)[0])
