"""The protobuf wire format by hand: enough to read, cut and write messages without generated files.

Generated files register in one pool for the whole process, where two packages with the same message clash; here a
message's parts stay the bytes that they were, so that what is not understood is passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are not a protobuf message."""


class Field(NamedTuple):
    """One field: a number for VARINT, else the bytes of its value; `start` and `end` enclose tag and value."""

    number: int
    kind: int
    value: Any
    start: int
    end: int


def varint(number: int) -> bytes:
    """A number below 2**64 in base 128, lowest digits first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """The number at a place and the place after it. Raises WireError."""
    number = shift = 0
    try:
        while True:
            byte = data[place]
            place += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFFFFFFFFFFFFFF, place
            shift += 7
            if shift > 63:
                raise WireError("a number has more than ten bytes")
    except IndexError:
        raise WireError("the message ends inside a number") from None


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message in their order. Raises WireError where it is damaged."""
    place = 0
    size = len(data)
    while place < size:
        start = place
        tag, place = read_varint(data, place)
        kind = tag & 7
        value: Any
        if kind == VARINT:
            value, place = read_varint(data, place)
        else:
            first, place = _extent(data, place, kind)
            if place > size:
                raise WireError("the message ends inside a field")
            value = data[first:place]
        if not 0 < tag >> 3 < 1 << 29:
            raise WireError("a field has an impossible number")
        yield Field(tag >> 3, kind, value, start, place)


def _extent(data: bytes, place: int, kind: int) -> tuple[int, int]:
    if kind == DELIMITED:
        length, place = read_varint(data, place)
        return place, place + length
    if kind == FIXED64:
        return place, place + 8
    if kind == FIXED32:
        return place, place + 4
    raise WireError(f"wire type {kind} is not used by this protocol")


def delimited(number: int, value: bytes) -> bytes:
    """A field that holds text, bytes or a message."""
    return varint(number << 3 | DELIMITED) + varint(len(value)) + value


def numeric(number: int, value: int) -> bytes:
    """A field that holds a whole number (negative ones as 64-bit two's complement)."""
    return varint(number << 3 | VARINT) + varint(value & 0xFFFFFFFFFFFFFFFF)


def packed(value: Any, kind: int) -> list[int]:
    """The numbers of a repeated field, packed or not."""
    if kind == VARINT:
        return [value]
    if kind != DELIMITED:
        raise WireError("a list of numbers has the wrong type")
    found = []
    place = 0
    while place < len(value):
        number, place = read_varint(value, place)
        found.append(number)
    return found


def zigzag(number: int) -> int:
    """A signed number from its zigzag form (sint32, sint64)."""
    return (number >> 1) ^ -(number & 1)


def splitter(name: str, numbers: Mapping[str, int]) -> Any:
    """A message class that cuts a message into its repeated fields, each part as bytes; C speed, a pool of its own.

    `numbers` gives the fields to cut out. Its `FromString` raises google.protobuf.message.DecodeError.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=f"lens/{name}.proto", package="lens", syntax="proto3")
    message = file.message_type.add(name=name)
    for field, number in numbers.items():
        message.field.add(
            name=field,
            number=number,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lens.{name}"))
