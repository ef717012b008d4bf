from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.plugin_api.protobuf import (
    DELIMITED,
    WireError,
    delimited,
    fields,
    numeric,
    packed,
    read_varint,
    varint,
    zigzag,
)

numbers = st.integers(0, 2**64 - 1)


@given(numbers)
def test_number_comes_back(number: int) -> None:
    assert read_varint(varint(number), 0) == (number, len(varint(number)))


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), st.one_of(numbers, st.binary(max_size=20)))))
def test_fields_come_back(message: list[tuple[int, int | bytes]]) -> None:
    parts = [numeric(tag, value) if isinstance(value, int) else delimited(tag, value) for tag, value in message]
    found = list(fields(b"".join(parts)))
    assert [(field.number, field.value) for field in found] == message
    assert [b"".join(parts)[field.start : field.end] for field in found] == parts


@given(st.binary(max_size=60))
def test_garbage_raises_nothing_else(data: bytes) -> None:
    try:
        found = list(fields(data))
    except WireError:
        return
    assert b"".join(data[field.start : field.end] for field in found) == data


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05abc", b"\x80" * 11, b"\x0b", b"\x00\x00", b"\x09abc"])
def test_damaged_messages_are_noticed(data: bytes) -> None:
    with pytest.raises(WireError):
        list(fields(data))


@given(st.lists(numbers, max_size=8))
def test_packed_numbers(values: list[int]) -> None:
    assert packed(b"".join(map(varint, values)), DELIMITED) == values


@pytest.mark.parametrize(("coded", "number"), [(0, 0), (1, -1), (2, 1), (4294967295, -2147483648)])
def test_zigzag(coded: int, number: int) -> None:
    assert zigzag(coded) == number
