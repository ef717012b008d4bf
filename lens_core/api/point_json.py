"""Points as JSON: a value that JSON cannot hold is null, with `special` beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ..queries import MetricPoint

_encoder = msgspec.json.Encoder()


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


def _special(point: MetricPoint) -> bytes:
    return _encoder.encode({**msgspec.structs.asdict(point), "value": None, "special": special_name(point.value)})
