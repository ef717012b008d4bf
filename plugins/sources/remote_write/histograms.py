"""Whether a native histogram makes sense: buckets as many as its spans say, and as many observations as it counts."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

from lens_core.plugin_api.protobuf import DELIMITED, FIXED64, VARINT, WireError, fields, packed, zigzag

CUSTOM_BUCKETS = -53
STALE_NAN = struct.pack("<Q", 0x7FF0000000000002)
_SUM, _SCHEMA = 3, 4
_COUNT_INT, _COUNT_FLOAT, _ZERO_INT, _ZERO_FLOAT = 1, 2, 6, 7
_NEGATIVE = (8, 9, 10)
_POSITIVE = (11, 12, 13)
_CUSTOM_VALUES = 16
_SPANS = frozenset({8, 11})
_WHOLE = frozenset({9, 12})
_REAL = frozenset({10, 13, 16})


class BadHistogram(ValueError):
    """A histogram that contradicts itself."""


def check_histogram(message: bytes) -> None:
    """Raise BadHistogram or WireError; a stale marker (its sum says so) is always right."""
    single, lists = _split_histogram(message)
    total = single.get(_SUM, b"\0" * 8)
    if total == STALE_NAN:
        return
    schema = zigzag(single.get(_SCHEMA, 0))
    if not -4 <= schema <= 8 and schema != CUSTOM_BUCKETS:
        raise BadHistogram(f"schema {schema} does not exist")
    if schema == CUSTOM_BUCKETS:
        _check_custom(single, lists)
    counted = sum(_buckets(lists, *side) for side in (_NEGATIVE, _POSITIVE))
    if _COUNT_FLOAT in single:
        return
    counted += single.get(_ZERO_INT, 0)
    count = single.get(_COUNT_INT, 0)
    # Observations of NaN are in the count and in no bucket.
    if count < counted or (count != counted and not math.isnan(_double(total))):
        raise BadHistogram(f"{counted:g} observations in buckets, but a count of {count}")


def _split_histogram(message: bytes) -> tuple[dict[int, Any], dict[int, list[Any]]]:
    single: dict[int, Any] = {}
    lists: dict[int, list[Any]] = {}
    for field in fields(message):
        if field.number in _SPANS:
            if field.kind != DELIMITED:
                raise WireError("a span has the wrong type")
            parts = {part.number: part.value for part in fields(field.value) if part.kind == VARINT}
            lists.setdefault(field.number, []).append((zigzag(parts.get(1, 0)), parts.get(2, 0)))
        elif field.number in _WHOLE:
            lists.setdefault(field.number, []).extend(map(zigzag, packed(field.value, field.kind)))
        elif field.number in _REAL:
            lists.setdefault(field.number, []).extend(_doubles(field.value))
        else:
            _check_kind(field.number, field.kind)
            single[field.number] = field.value
    return single, lists


def _check_kind(number: int, kind: int) -> None:
    wanted = FIXED64 if number in (_COUNT_FLOAT, _SUM, 5, _ZERO_FLOAT) else VARINT
    if number <= 17 and kind != wanted:
        raise WireError("a field of a histogram has the wrong type")


def _double(value: bytes) -> float:
    return float(struct.unpack("<d", value)[0])


def _doubles(value: Any) -> list[float]:
    if not isinstance(value, bytes) or len(value) % 8:
        raise WireError("a list of floating-point numbers is damaged")
    return list(struct.unpack(f"<{len(value) // 8}d", value))


def _buckets(lists: Mapping[int, list[Any]], spans: int, deltas: int, counts: int) -> float:
    """Observations of one side. Raises BadHistogram."""
    held: list[float] = list(accumulate(lists.get(deltas, []))) or lists.get(counts, [])
    announced = lists.get(spans, [])
    if sum(length for _, length in announced) != len(held):
        raise BadHistogram("the spans do not fit the number of buckets")
    if any(offset < 0 for offset, _ in announced[1:]):
        raise BadHistogram("a span overlaps the one before it")
    if any(count < 0 for count in held):
        raise BadHistogram("a bucket has a negative count")
    return sum(held)


def _check_custom(single: Mapping[int, Any], lists: Mapping[int, list[Any]]) -> None:
    bounds = lists.get(_CUSTOM_VALUES, [])
    if any(not first < second for first, second in pairwise(bounds)):
        raise BadHistogram("the bounds of its buckets do not rise")
    if any(lists.get(number) for number in _NEGATIVE) or single.get(_ZERO_INT, 0):
        raise BadHistogram("custom buckets have no negative side and no zero")
