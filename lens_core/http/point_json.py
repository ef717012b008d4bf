"""Points as JSON: a value that JSON cannot hold is null, with `special` beside it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from ..model.queries import MetricPoint, PointColumns

_encoder = msgspec.json.Encoder()
_AT_ONCE = 5_000


def encode_points(points: Sequence[MetricPoint]) -> bytes:
    """The points as the inside of a JSON array, without its brackets."""
    if all(math.isfinite(point.value) for point in points):
        return _encoder.encode(points)[1:-1]
    return b",".join(_encoder.encode(point) if math.isfinite(point.value) else _special(point) for point in points)


def special_name(value: float) -> str:
    """`NaN`, `Infinity` or `-Infinity`."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def json_value(value: float) -> float | None:
    """The value, or None for what JSON cannot hold."""
    return value if math.isfinite(value) else None


async def stream_json(head: dict[str, Any], pieces: AsyncIterator[PointColumns]) -> AsyncIterator[bytes]:
    """The answer in pieces: total_count (of all pages) and next_cursor come last, when they are known."""
    yield _encoder.encode(head)[:-1] + b',"data":['
    written = 0
    total: int | None = None
    next_cursor = ""
    async for piece in pieces:
        next_cursor = piece.next_cursor or next_cursor
        total = piece.total_count
        points = piece.points()
        for low in range(0, len(points), _AT_ONCE):
            few = points[low : low + _AT_ONCE]
            encoded = _with_extras(few, piece.extras, low) if piece.extras else encode_points(few)
            yield (b"," if written or low else b"") + encoded
        written += len(points)
    yield b'],"total_count":%d' % (written if total is None else total)
    if next_cursor:
        yield b',"next_cursor":' + _encoder.encode(next_cursor)
    yield b"}"


def _with_extras(points: Sequence[MetricPoint], extras: Mapping[str, Sequence[Any]], first: int) -> bytes:
    """The points, of which the first has this place in the extra columns, as the inside of a JSON array."""
    found = []
    for place, point in enumerate(points, first):
        described = msgspec.structs.asdict(point)
        if not math.isfinite(point.value):
            described |= {"value": None, "special": special_name(point.value)}
        found.append({**described, **{name: column[place] for name, column in extras.items()}})
    return _encoder.encode(found)[1:-1]


def _special(point: MetricPoint) -> bytes:
    return _encoder.encode({**msgspec.structs.asdict(point), "value": None, "special": special_name(point.value)})
