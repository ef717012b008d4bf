"""Points as an Arrow IPC stream.

Just enough of FlatBuffers (https://flatbuffers.dev/internals) to write the messages of an Arrow stream.

Offsets point forward: a table is written, then what it refers to, and the places of the offsets are filled in.

Points as an Arrow IPC stream, one record batch per piece.

Written here because the stream needs so little: the columns are the bytes of the arrays that the store answers, and
pyarrow would take 70 MB of the daemon. Format: https://arrow.apache.org/docs/format/Columnar.html (metadata version 5).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..model.queries import PointColumns

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


ARROW = "application/vnd.apache.arrow.stream"
_CONTINUATION = b"\xff\xff\xff\xff"
_END = _CONTINUATION + bytes(4)
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_INT, _FLOAT, _TEXT, _TIMESTAMP = 2, 3, 5, 10
_TEXTS = ("metric_name", "data_source", "run_id")


async def stream_arrow(pieces: AsyncIterator[PointColumns]) -> AsyncIterator[bytes]:
    """metric_name, value, timestamp (ms, UTC), iteration, data_source, run_id, attempt; the texts by dictionary."""
    yield _message(_SCHEMA, _schema(), b"")
    texts = {name: _Texts(number) for number, name in enumerate(_TEXTS)}
    if_empty = b"".join(known.message() for known in texts.values())
    async for piece in pieces:
        if not len(piece):
            continue
        if_empty = b""
        numbers = {name: known.number_of(getattr(piece, name)) for name, known in texts.items()}
        for known in texts.values():
            if known.has_grown:
                yield known.message()
        yield _record_batch(piece, numbers)
    yield if_empty + _END


class _Texts:
    """The values of a text column so far; a new one replaces the dictionary by a longer one."""

    def __init__(self, identity: int) -> None:
        self._identity = identity
        self._numbers: dict[str, int] = {}
        self.has_grown = False

    def number_of(self, text: str) -> int:
        """The place of a text in the dictionary."""
        self.has_grown |= text not in self._numbers
        return self._numbers.setdefault(text, len(self._numbers))

    def message(self) -> bytes:
        """The dictionary as it is now."""
        self.has_grown = False
        encoded = [text.encode() for text in self._numbers]
        offsets = [0]
        for text in encoded:
            offsets.append(offsets[-1] + len(text))
        buffers = [b"", struct.pack(f"<{len(offsets)}i", *offsets), b"".join(encoded)]
        header, body = _encode_record_batch(len(encoded), [len(encoded)], buffers)
        return _message(_DICTIONARY, Table({0: Scalar("q", self._identity), 1: header}), body)


def _schema() -> Table:
    integer = _int_type(64)
    fields = [
        _field("metric_name", _TEXT, Table(), dictionary=0),
        _field("value", _FLOAT, Table({0: Scalar("h", 2)})),
        _field("timestamp", _TIMESTAMP, Table({0: Scalar("h", 1), 1: "UTC"})),
        _field("iteration", _INT, integer),
        _field("data_source", _TEXT, Table(), dictionary=1),
        _field("run_id", _TEXT, Table(), dictionary=2),
        _field("attempt", _INT, _int_type(32)),
    ]
    return Table({0: Scalar("h", 0), 1: fields})


def _int_type(bits: int) -> Table:
    return Table({0: Scalar("i", bits), 1: Scalar("?", True)})


def _field(name: str, kind: int, type_: Table, dictionary: int | None = None) -> Table:
    field = Table({0: name, 1: Scalar("?", False), 2: Scalar("B", kind), 3: type_, 5: []})
    if dictionary is not None:
        field.fields[4] = Table({0: Scalar("q", dictionary), 1: _int_type(32)})
    return field


def _record_batch(piece: PointColumns, numbers: dict[str, int]) -> bytes:
    count = len(piece)
    columns = (
        _repeated(numbers["metric_name"], count),
        _little_endian(piece.values),
        _little_endian(piece.timestamps),
        _little_endian(piece.iterations),
        _repeated(numbers["data_source"], count),
        _repeated(numbers["run_id"], count),
        _repeated(piece.attempt, count),
    )
    header, body = _encode_record_batch(
        count, [count] * len(columns), [part for column in columns for part in (b"", column)]
    )
    return _message(_BATCH, header, body)


def _repeated(number: int, count: int) -> bytes:
    return struct.pack("<i", number) * count


def _little_endian(numbers: array[int] | array[float]) -> bytes:
    if sys.byteorder == "little":
        return numbers.tobytes()
    swapped = numbers[:]
    swapped.byteswap()
    return swapped.tobytes()


def _encode_record_batch(count: int, lengths: Sequence[int], buffers: Sequence[bytes]) -> tuple[Table, bytes]:
    """A RecordBatch and its body: the buffers, each padded to eight bytes; nothing is null."""
    places, body, at = [], [], 0
    for data in buffers:
        padding = -len(data) % 8
        places.append((at, len(data)))
        body += [data, bytes(padding)]
        at += len(data) + padding
    header = Table({0: Scalar("q", count), 1: Pairs([(length, 0) for length in lengths]), 2: Pairs(places)})
    return header, b"".join(body)


def _message(kind: int, header: Table, body: bytes) -> bytes:
    metadata = encode(Table({0: Scalar("h", 4), 1: Scalar("B", kind), 2: header, 3: Scalar("q", len(body))}))
    return _CONTINUATION + struct.pack("<i", len(metadata)) + metadata + body
