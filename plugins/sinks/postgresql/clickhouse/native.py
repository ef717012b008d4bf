"""Blocks of columns in ClickHouse's format Native, made out of numpy arrays without a look at single values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

_LOW_CARDINALITY_VERSION = np.uint64(1).tobytes()
# The keys stand in the column itself; then comes the width of their numbers.
_ADDITIONAL_KEYS = 0x200
_WIDTHS = {0: "<u1", 1: "<u2", 2: "<u4"}


class Texts(NamedTuple):
    """A column of texts that are few: the distinct ones, and for each row which of them it is."""

    distinct: Sequence[str]
    codes: npt.NDArray[np.uint32]


# Bytes and arrays.
Block: TypeAlias = Sequence[Any]
Column: TypeAlias = npt.NDArray[Any] | Texts | Sequence[str]


def encode_block(kinds: Mapping[str, str], columns: Mapping[str, Column], count: int) -> Block:
    """One block: columns of `count` rows with their kinds; an array is of numbers of the kind's width.

    It comes in pieces, which are copied once, when they are sent. The fields of a structured array, which is a column
    of tuples, stand one after the other.
    """
    pieces: list[Any] = [_encode_size(len(columns)), _encode_size(count)]
    for name, column in columns.items():
        pieces += [_encode_text(name), _encode_text(kinds[name])]
        if isinstance(column, Texts):
            width = int(len(column.distinct) > 2**8) + int(len(column.distinct) > 2**16)
            pieces += [_LOW_CARDINALITY_VERSION, np.uint64(_ADDITIONAL_KEYS | width).tobytes()]
            pieces.append(np.uint64(len(column.distinct)).tobytes())
            pieces += [*map(_encode_text, column.distinct), np.uint64(count).tobytes()]
            pieces.append(np.ascontiguousarray(column.codes, _WIDTHS[width]))
        elif not isinstance(column, np.ndarray):
            pieces.append(b"".join(map(_encode_text, column)))
        elif column.dtype.names:
            pieces += [np.ascontiguousarray(column[field]) for field in column.dtype.names]
        else:
            pieces.append(np.ascontiguousarray(column))
    return pieces


def _encode_text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return _encode_size(len(data)) + data


def _encode_size(size: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    found = bytearray()
    while size >= 0x80:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    found.append(size)
    return bytes(found)
