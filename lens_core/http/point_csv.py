"""Points as CSV, piece by piece, so that memory stays bounded however many there are."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator

from ..model.queries import PointColumns
from .point_json import special_name

CSV = "text/csv; charset=utf-8"
COLUMNS = ("metric_name", "value", "timestamp", "iteration", "data_source", "run_id", "attempt")
_AT_ONCE = 5_000
_FORMULA = frozenset("=+-@\t\r")


async def stream_csv(pieces: AsyncIterator[PointColumns]) -> AsyncIterator[bytes]:
    """CSV (RFC 4180) with a header; NaN and the infinities by their names."""
    yield (",".join(COLUMNS) + "\r\n").encode()
    async for piece in pieces:
        before = _fields(piece.metric_name)
        after = _fields(piece.data_source, piece.run_id, piece.attempt)
        lines = [
            f"{before},{value if value - value == 0 else special_name(value)},{time},{iteration},{after}\r\n"
            for value, time, iteration in zip(piece.values, piece.timestamps, piece.iterations, strict=True)
        ]
        for low in range(0, len(lines), _AT_ONCE):
            yield "".join(lines[low : low + _AT_ONCE]).encode()


def _no_formula(value: object) -> object:
    """A text that a spreadsheet would take for a formula, with an apostrophe in front: names come from strangers."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def _fields(*values: object) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(map(_no_formula, values))
    return line.getvalue().rstrip("\r\n")
