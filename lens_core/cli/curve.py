"""A curve in the letters of a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .wording import amount, is_ascii_only

HEIGHT = 8
_WIDEST = 120
_LABEL = 10


def draw_curve(title: str, points: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """The lines of a chart of buckets, under a title with the newest value; a `!` marks what is not finite."""
    if not points:
        return [f"{title}  no points"]
    last = points[-1]["last"]
    head = f"{title}  {last if isinstance(last, str) else amount(last)}"
    finite = [point["value"] for point in points if point["value"] is not None]
    columns = [_column(share) for share in _shares(points, max(10, min(_WIDEST, width - _LABEL - 2)))]
    marks = "".join("!" if has_special else " " for _, has_special in columns)
    lines = [head] + ([f"{'':{_LABEL}} {marks.rstrip()}"] if marks.strip() else [])
    if not finite:
        return lines
    levels = [value for value, _ in columns if value is not None]
    low, high = min(levels), max(levels)
    dot, side = ("*", "|") if is_ascii_only() else ("•", "│")
    rows = [[" "] * len(columns) for _ in range(HEIGHT)]
    for place, (value, _) in enumerate(columns):
        if value is not None:
            level = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
            rows[HEIGHT - 1 - round(level * (HEIGHT - 1))][place] = dot
    labels = {0: amount(high), HEIGHT - 1: amount(low)} if high > low else {HEIGHT // 2: amount(low)}
    lines += [f"{labels.get(number, ''):>{_LABEL}}{side}{''.join(row).rstrip()}" for number, row in enumerate(rows)]
    first, newest = points[0]["iteration"], points[-1]["iteration"]
    return [*lines, f"{'':{_LABEL}} {first:,}{newest:>{max(1, len(columns) - len(f'{first:,}'))},}"]


def _shares(points: Sequence[Mapping[str, Any]], width: int) -> list[Sequence[Mapping[str, Any]]]:
    columns = min(width, len(points))
    return [
        points[column * len(points) // columns : (column + 1) * len(points) // columns] for column in range(columns)
    ]


def _column(share: Sequence[Mapping[str, Any]]) -> tuple[float | None, bool]:
    """The mean of the points of a column, and whether any of them is not finite."""
    known = [(point["value"], point["count"] - point["not_finite"]) for point in share if point["value"] is not None]
    total = sum(count for _, count in known)
    mean = sum(value * (count / total) for value, count in known) if total else None
    return mean, any(point["not_finite"] for point in share)
