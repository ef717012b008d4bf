"""Just enough of FlatBuffers (https://flatbuffers.dev/internals) to write the messages of an Arrow stream.

Offsets point forward: a table is written, then what it refers to, and the places of the offsets are filled in.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

_OFFSET = 4


@dataclass(frozen=True)
class Scalar:
    """A number in a format of the module struct."""

    format: str
    number: int


@dataclass(frozen=True)
class Pairs:
    """A vector of structs of two 64 bit numbers."""

    items: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Table:
    """A table: values by the number of their field."""

    fields: dict[int, Value] = field(default_factory=dict)


Value: TypeAlias = "Scalar | str | Table | Pairs | list[Table]"


def encode(root: Table) -> bytes:
    """A buffer with this root, padded to a multiple of eight bytes."""
    data = bytearray(_OFFSET)
    struct.pack_into("<I", data, 0, _put_table(data, root))
    _align(data, 8)
    return bytes(data)


def _put_table(data: bytearray, table: Table) -> int:
    places, size = _layout(table)
    slots = max(places, default=-1) + 1
    vtable_size = 4 + 2 * slots
    _align(data, 8, ahead=vtable_size)
    data += struct.pack("<HH", vtable_size, size)
    data += struct.pack(f"<{slots}H", *(places.get(slot, 0) for slot in range(slots)))
    position = len(data)
    data += struct.pack("<i", vtable_size) + bytes(size - 4)
    for slot, value in table.fields.items():
        place = position + places[slot]
        if isinstance(value, Scalar):
            struct.pack_into(f"<{value.format}", data, place, value.number)
        else:
            struct.pack_into("<I", data, place, _append_value(data, value) - place)
    return position


def _layout(table: Table) -> tuple[dict[int, int], int]:
    """Lay out a table: the offset of each field, and the table's size."""
    places, size = {}, _OFFSET
    for slot, value in table.fields.items():
        width = struct.calcsize(f"<{value.format}") if isinstance(value, Scalar) else _OFFSET
        size += -size % width
        places[slot] = size
        size += width
    return places, size


def _append_value(data: bytearray, value: str | Table | Pairs | list[Table]) -> int:
    if isinstance(value, Table):
        return _put_table(data, value)
    if isinstance(value, str):
        _align(data, 4)
        position, text = len(data), value.encode()
        data += struct.pack("<I", len(text)) + text + b"\0"
        return position
    if isinstance(value, Pairs):
        _align(data, 8, ahead=4)
        position = len(data)
        data += struct.pack("<I", len(value.items)) + b"".join(struct.pack("<qq", *item) for item in value.items)
        return position
    _align(data, 4)
    position = len(data)
    data += struct.pack("<I", len(value)) + bytes(_OFFSET * len(value))
    for number, table in enumerate(value):
        place = position + _OFFSET * (number + 1)
        struct.pack_into("<I", data, place, _put_table(data, table) - place)
    return position


def _align(data: bytearray, size: int, ahead: int = 0) -> None:
    """Pad so that what comes `ahead` bytes later begins at a multiple of `size`."""
    data += bytes(-(len(data) + ahead) % size)
