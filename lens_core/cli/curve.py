"""A curve in the letters of a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .wording import amount, is_ascii_only

HEIGHT = 8
_WIDEST = 120
_LABEL = 10


def draw_curve(title: str, points: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """The lines of a chart of buckets, under a title with the newest value; a `!` marks what is not finite.

    A dot is the mean of its column; fainter ones reach from the lowest to the highest value of it.
    """
    if not points:
        return [f"{title}  no points"]
    last = points[-1]["last"]
    head = f"{title}  {last if isinstance(last, str) else amount(last)}"
    columns = [_column(share) for share in _shares(points, max(10, min(_WIDEST, width - _LABEL - 2)))]
    marks = "".join("!" if column.has_special else " " for column in columns)
    lines = [head] + ([f"{'':{_LABEL}} {marks.rstrip()}"] if marks.strip() else [])
    drawn = [(place, column) for place, column in enumerate(columns) if column.finite]
    if not drawn:
        return lines
    low, high = min(column.low for _, column in drawn), max(column.high for _, column in drawn)
    dot, faint, side = ("*", ".", "|") if is_ascii_only() else ("•", "·", "│")
    rows = [[" "] * len(columns) for _ in range(HEIGHT)]
    for place, column in drawn:
        bottom, middle, top = (_row_of(value, low, high) for value in (column.low, column.mean, column.high))
        for row in range(top, bottom + 1):
            rows[row][place] = faint
        rows[middle][place] = dot
    labels = {_row_of(value, low, high): amount(value) for value in (low, high)}
    lines += [f"{labels.get(number, ''):>{_LABEL}}{side}{''.join(row).rstrip()}" for number, row in enumerate(rows)]
    first, newest = points[0]["iteration"], points[-1]["iteration"]
    return [*lines, f"{'':{_LABEL}} {first:,}{newest:>{max(1, len(columns) - len(f'{first:,}'))},}"]


def _shares(points: Sequence[Mapping[str, Any]], width: int) -> list[Sequence[Mapping[str, Any]]]:
    columns = min(width, len(points))
    return [
        points[column * len(points) // columns : (column + 1) * len(points) // columns] for column in range(columns)
    ]


class _Column(NamedTuple):
    """Of a column the number of finite values, their mean, lowest and highest, and whether any is not finite."""

    finite: int
    mean: float
    low: float
    high: float
    has_special: bool


def _row_of(value: float, low: float, high: float) -> int:
    level = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
    return HEIGHT - 1 - round(level * (HEIGHT - 1))


def _column(share: Sequence[Mapping[str, Any]]) -> _Column:
    known = [(point, point["count"] - point["not_finite"]) for point in share if point["value"] is not None]
    total = sum(count for _, count in known)
    low, high = (
        min((point["min"] for point, _ in known), default=0.0),
        max((point["max"] for point, _ in known), default=0.0),
    )
    mean = sum(point["value"] * (count / total) for point, count in known) if total else 0.0
    return _Column(total, min(high, max(low, mean)), low, high, any(point["not_finite"] for point in share))
