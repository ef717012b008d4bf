"""Arrays of numbers as bytes: little endian, evenly spaced whole numbers in 16 bytes. Pure, no I/O."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence

_SPACED_BYTES = 16


def integers(numbers: Iterable[int]) -> array[int]:
    """64 bit whole numbers."""
    return array("q", numbers)


def doubles(numbers: Iterable[float]) -> array[float]:
    """Double precision numbers."""
    return array("d", numbers)


def pack(numbers: array[int] | array[float]) -> bytes:
    """The array as bytes, little endian."""
    if sys.byteorder == "little":
        return numbers.tobytes()
    swapped = numbers[:]
    swapped.byteswap()
    return swapped.tobytes()


def unpack_integers(data: bytes) -> array[int]:
    """64 bit whole numbers out of what `pack` made."""
    found = array("q")
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def unpack_doubles(data: bytes) -> array[float]:
    """Doubles out of what `pack` made."""
    found = array("d")
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def pack_positions(positions: Sequence[int]) -> bytes:
    """Positions within a block (below 65,536) as 16 bit numbers."""
    found = array("H", positions)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def unpack_positions(data: bytes) -> array[int]:
    """What `pack_positions` made."""
    found = array("H")
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def pack_spaced(numbers: array[int]) -> bytes:
    """Whole numbers as bytes; evenly spaced ones (more than two) as the first and the difference."""
    count = len(numbers)
    if count > 2:
        difference = numbers[1] - numbers[0]
        if difference < 2**63 and _is_spaced(numbers, difference):
            return pack(array("q", (numbers[0], difference)))
    return pack(numbers)


def _is_spaced(numbers: array[int], difference: int) -> bool:
    first, count = numbers[0], len(numbers)
    if numbers[-1] != first + difference * (count - 1):
        return False
    wanted = range(first, first + difference * count, difference) if difference else [first] * count
    return numbers.tolist() == list(wanted)


def unpack_spaced(data: bytes, count: int) -> array[int]:
    """What `pack_spaced` made of `count` numbers."""
    found = unpack_integers(data)
    if count <= 2 or len(data) != _SPACED_BYTES:
        return found
    first, difference = found
    if not difference:
        return array("q", [first]) * count
    return array("q", range(first, first + difference * count, difference))


def ends_of(data: bytes, size: int, count: int) -> array[int]:
    """The first and the last (of one number only that) of what `pack_spaced` made of `count` numbers in `size` bytes.

    `data`: the first eight bytes and the last eight.
    """
    found = unpack_integers(data)
    if count > 2 and size == _SPACED_BYTES:
        return array("q", (found[0], found[0] + found[1] * (count - 1)))
    return found[:count]
