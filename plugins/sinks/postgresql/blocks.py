"""A block: a finished range of a stream's rows as one array per metric, with what is extreme in it. Pure, no I/O."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from .arrays import pack, pack_positions, pack_spaced, unpack_doubles, unpack_integers

BLOCK_ROWS = 4096
# What is left of a stream that has gone quiet becomes a block from so many rows on.
PARTIAL_ROWS = 256
SUMMARY_POINTS = 128
# A span, the next coarser level, holds so many blocks, or spans of the level below. A part of a summary is in the one
# below it about the lowest and the highest of each part, so that one part comes of so many parts there, too.
SPAN_PARTS = 16
_SPAN_POINTS = 2 * SPAN_PARTS
_POINT_BYTES = 24  # of a summary: iteration, time, value
LOWEST_STEP = -(2**63)
_decode_metrics = msgspec.json.Decoder(list[dict[str, float | str]]).decode
_decode_integers = msgspec.json.Decoder(list[int]).decode


class Column(NamedTuple):
    """One metric of a block, as its columns in the database; `total` is the sum of the values that are numbers."""

    metric: str
    points: int
    positions: bytes | None
    summary: bytes
    values: bytes
    total: float


class Block(NamedTuple):
    """A block, as its columns in the database. Times are microseconds since the epoch."""

    first_step: int
    last_step: int
    rows: int
    ordered: bool
    first_iteration: int
    last_iteration: int
    first_us: int
    last_us: int
    steps: bytes
    iterations: bytes | None
    times: bytes
    columns: list[Column]


class Series(NamedTuple):
    """Points of one metric of one stream, in the order of their steps; times are microseconds since the epoch."""

    iterations: array[int]
    times: array[int]
    values: array[float]
    steps: array[int]

    @staticmethod
    def empty() -> Series:
        """No points."""
        return Series(array("q"), array("q"), array("d"), array("q"))

    def extend(self, other: Series) -> None:
        """Add what comes after."""
        self.iterations.extend(other.iterations)
        self.times.extend(other.times)
        self.values.extend(other.values)
        self.steps.extend(other.steps)

    def at(self, positions: Sequence[int]) -> Series:
        """The same values, of which the positions among the others are given."""
        return Series(
            array("q", [self.iterations[p] for p in positions]),
            array("q", [self.times[p] for p in positions]),
            self.values,
            array("q", [self.steps[p] for p in positions]),
        )

    def select(self, positions: Sequence[int]) -> Series:
        """Those at the given positions."""
        return Series(
            array("q", [self.iterations[p] for p in positions]),
            array("q", [self.times[p] for p in positions]),
            array("d", [self.values[p] for p in positions]),
            array("q", [self.steps[p] for p in positions]),
        )

    def part(self, low: int, high: int) -> Series:
        """Those from position `low` up to, not with, `high`."""
        return Series(self.iterations[low:high], self.times[low:high], self.values[low:high], self.steps[low:high])


class _Points(NamedTuple):
    """One metric of rows: which of them have it, and its values."""

    positions: array[int]
    values: array[float]


class Rows:
    """Rows in the order of their steps, column by column; times are microseconds since the epoch.

    They are added piece by piece, so that no more than a piece is there as documents, which take ten times the memory.
    """

    def __init__(self) -> None:
        self.steps, self.iterations, self.times = array("q"), array("q"), array("q")
        self.points: dict[str, _Points] = {}

    def add(self, steps: str, iterations: str, times: str, metrics: str) -> None:
        """Rows as comma-separated numbers and JSON objects: one text for each column costs least on both sides."""
        first = len(self.steps)
        self.steps.extend(_decode_integers(f"[{steps}]"))
        self.iterations.extend(_decode_integers(f"[{iterations}]"))
        self.times.extend(_decode_integers(f"[{times}]"))
        for metric, positions, values in _by_metric(_decode_metrics(f"[{metrics}]"), first):
            points = self.points.setdefault(metric, _Points(array("H"), array("d")))
            points.positions.extend(positions)
            points.values.extend(_doubles(values))


def _by_metric(
    documents: Sequence[dict[str, float | str]], first: int
) -> Iterable[tuple[str, Iterable[int], Sequence[float | str]]]:
    """The values of each metric with the positions of their rows, which begin at `first`."""
    names = documents[0].keys()
    if all(document.keys() == names for document in documents):
        # The usual case. jsonb keeps keys in an order of its own, so that equal keys come in the same order.
        columns = zip(*(document.values() for document in documents), strict=True)
        return [
            (name, range(first, first + len(documents)), values) for name, values in zip(names, columns, strict=True)
        ]
    found: dict[str, tuple[list[int], list[float | str]]] = {}
    for position, document in enumerate(documents, first):
        for metric, value in document.items():
            present = found.get(metric)
            if present is None:
                present = found[metric] = ([], [])
            present[0].append(position)
            present[1].append(value)
    return [(metric, *columns) for metric, columns in found.items()]


def _doubles(given: Sequence[Any]) -> array[float]:
    try:
        return array("d", given)
    except TypeError:  # the special values are strings
        return array("d", map(float, given))


def build_block(first_step: int, last_step: int, rows: Rows) -> Block:
    """A block of rows, at least one."""
    iterations = rows.iterations.tolist()
    return Block(
        first_step=first_step,
        last_step=last_step,
        rows=len(rows.steps),
        ordered=iterations == sorted(iterations),
        first_iteration=min(iterations),
        last_iteration=max(iterations),
        first_us=min(rows.times),
        last_us=max(rows.times),
        steps=pack_spaced(rows.steps),
        iterations=None if rows.steps == rows.iterations else pack_spaced(rows.iterations),
        times=pack_spaced(rows.times),
        columns=[_column(metric, rows.points[metric], rows) for metric in sorted(rows.points)],
    )


def _column(metric: str, points: _Points, rows: Rows) -> Column:
    values = points.values
    everywhere = len(values) == len(rows.steps)
    kept = _telling(values, SUMMARY_POINTS)
    at = kept if everywhere else [points.positions[position] for position in kept]
    summary = Series(
        array("q", [rows.iterations[p] for p in at]),
        array("q", [rows.times[p] for p in at]),
        array("d", [values[p] for p in kept]),
        array("q"),
    )
    packed = None if everywhere else pack_positions(points.positions)
    return Column(metric, len(values), packed, pack_summary(summary), pack(values), total_of(values))


def total_of(values: Sequence[float]) -> float:
    """The sum of values as exact as can be, without those that are NaN; infinities of both signs have none (NaN)."""
    numbers = values if math.isfinite(sum(values)) else [value for value in values if value == value]
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):  # beyond the largest double on the way, or infinities of both signs
        return float(sum(numbers))


def _telling(values: array[float], part: int) -> list[int]:
    """Positions of what a summary keeps: both ends, and what is extreme in each part of so many values.

    All of so few that a summary is not longer for it: rare metrics are then read out of summaries alone.
    """
    if len(values) <= part // 2:
        return list(range(len(values)))
    parts = range(0, len(values), part)
    return sorted({0, len(values) - 1, *(p for low in parts for p in extremes(values, low, low + part))})


def coarser(series: Series, level: int, wanted: int) -> Series:
    """Points of a level (0: all) as coarse as those of another above it, so that they have the same weight."""
    if level >= wanted or not series.values:
        return series
    part = _SPAN_POINTS if level else SUMMARY_POINTS
    return coarser(series.select(_telling(series.values, part)), level + 1, wanted)


def points_of_part(level: int) -> int:
    """Of how many points a summary of a level keeps the extremes, or of fewer."""
    points: int = SUMMARY_POINTS * SPAN_PARTS ** (level - 1)
    return points


def extremes(values: array[float], low: int, high: int) -> list[int]:
    """Positions of the lowest, the highest and the first NaN of a range of values, in their order, each once."""
    part = values[low:high]
    lowest, highest = min(part), max(part)
    total = sum(part)
    if total == total:  # without NaN; infinities of both signs make one too, and are then looked at singly
        return sorted({low + part.index(lowest), low + part.index(highest)})
    numbers = [(value, position) for position, value in enumerate(part, low) if value == value]
    kept = {min(numbers)[1], max(numbers, key=lambda n: n[0])[1]} if numbers else set()
    nan = next((position for position, value in enumerate(part, low) if value != value), None)
    return sorted(kept if nan is None else kept | {nan})


def holds_all(summary: str, points: str) -> str:
    """Whether a summary holds all points, in SQL: the names of the two columns."""
    return f"octet_length({summary}) = {_POINT_BYTES} * {points}"


def pack_summary(series: Series) -> bytes:
    """Points as a summary in the database."""
    return pack(series.iterations) + pack(series.times) + pack(series.values)


def summary_series(summaries: Sequence[bytes]) -> Series:
    """The points of summaries, one after the other; their steps are not known (zero)."""
    ends = [len(summary) // 3 for summary in summaries]
    iterations = b"".join([data[:end] for data, end in zip(summaries, ends, strict=True)])
    times = b"".join([data[end : 2 * end] for data, end in zip(summaries, ends, strict=True)])
    values = b"".join([data[2 * end :] for data, end in zip(summaries, ends, strict=True)])
    return Series(
        unpack_integers(iterations), unpack_integers(times), unpack_doubles(values), array("q", bytes(len(values)))
    )
