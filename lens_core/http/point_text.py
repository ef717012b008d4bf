"""Points as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
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


async def stream_json(
    head: dict[str, Any],
    pieces: AsyncIterator[PointColumns],
    tail: Callable[[], Mapping[str, Any]] | None = None,
    *,
    in_columns: bool = False,
) -> AsyncIterator[bytes]:
    """The answer in pieces: total_count (of all pages), next_cursor and `tail` come last, when they are known.

    `in_columns`: a list for each field of the points of a curve, in the place of an object for each point.
    """
    yield _encoder.encode(head)[:-1] + (b',"curves":[' if in_columns else b',"data":[')
    count, written = 0, False
    total: int | None = None
    next_cursor = ""
    async for piece in pieces:
        next_cursor = piece.next_cursor or next_cursor
        total = piece.total_count
        for encoded in _encoded_columns(piece) if in_columns else _encoded_points(piece):
            yield b"," + encoded if written else encoded
            written = True
        count += len(piece)
    yield b'],"total_count":%d' % (count if total is None else total)
    if next_cursor:
        yield b',"next_cursor":' + _encoder.encode(next_cursor)
    for name, value in tail().items() if tail else ():
        yield b',"%s":' % name.encode() + _encoder.encode(value)
    yield b"}"


def _encoded_points(piece: PointColumns) -> Iterator[bytes]:
    points = piece.points()
    for low in range(0, len(points), _AT_ONCE):
        few = points[low : low + _AT_ONCE]
        yield _with_extras(few, piece.extras, low) if piece.extras else encode_points(few)


def _encoded_columns(piece: PointColumns) -> Iterator[bytes]:
    if not len(piece):
        return
    values = piece.values.tolist()
    special = [None if value - value == 0 else special_name(value) for value in values]
    yield _encoder.encode(
        {
            **{name: getattr(piece, name) for name in ("metric_name", "data_source", "run_id", "attempt")},
            "iteration": piece.iterations.tolist(),
            "timestamp": piece.timestamps.tolist(),
            "value": values,  # what is no number is null
            **({"special": special} if any(special) else {}),
            **{name: [*column] for name, column in piece.extras.items()},
        }
    )


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


CSV = "text/csv; charset=utf-8"
COLUMNS = ("metric_name", "value", "timestamp", "iteration", "data_source", "run_id", "attempt")
_FORMULA = frozenset("=+-@\t\r")


async def stream_csv(pieces: AsyncIterator[PointColumns], extra_columns: Sequence[str] = ()) -> AsyncIterator[bytes]:
    """CSV (RFC 4180) with a header; NaN and the infinities by their names, tags as JSON."""
    yield (",".join([*COLUMNS, *extra_columns]) + "\r\n").encode()
    async for piece in pieces:
        before = _fields(piece.metric_name)
        after = _fields(piece.data_source, piece.run_id, piece.attempt)
        ends = [f"{after}\r\n"] * len(piece)
        if extra_columns:
            rows = zip(*(piece.extras[name] for name in extra_columns), strict=True)
            ends = [f"{after},{_fields(*map(_cell, row))}\r\n" for row in rows]
        lines = [
            f"{before},{value if value - value == 0 else special_name(value)},{time},{iteration},{end}"
            for value, time, iteration, end in zip(piece.values, piece.timestamps, piece.iterations, ends, strict=True)
        ]
        for low in range(0, len(lines), _AT_ONCE):
            yield "".join(lines[low : low + _AT_ONCE]).encode()


def _cell(value: object) -> object:
    """An object as JSON, an empty one and None as nothing."""
    return (msgspec.json.encode(value).decode() if value else "") if isinstance(value, dict) else value


def _no_formula(value: object) -> object:
    """A text that a spreadsheet would take for a formula, with an apostrophe in front: names come from strangers."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def _fields(*values: object) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(map(_no_formula, values))
    return line.getvalue().rstrip("\r\n")
