"""Points as CSV, piece by piece, so that memory stays bounded however many there are."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Sequence

import msgspec

from ..model.queries import PointColumns
from .point_json import special_name

CSV = "text/csv; charset=utf-8"
COLUMNS = ("metric_name", "value", "timestamp", "iteration", "data_source", "run_id", "attempt")
_AT_ONCE = 5_000
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
