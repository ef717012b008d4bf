"""A block: a finished range of a stream's rows as one array per metric, with what is extreme in it. Pure, no I/O.

Arrays are little endian: 64 bit numbers, positions 16 bit. Evenly spaced whole numbers (more than two) are the first
and the difference.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from .parts import pack_parts
from .series import Doubles, Integers, Series, extremes, total_of

BLOCK_ROWS = 4096
# The remaining rows of a quiet stream become a block from this number on.
PARTIAL_ROWS = 256
SUMMARY_POINTS = 128
POINT_BYTES = 24  # of a summary: iteration, time, value
LOWEST_STEP = -(2**63)
HIGHEST_STEP = 2**63 - 1
_SPACED_BYTES = 16
_decode_metrics = msgspec.json.Decoder(list[dict[str, float | str]]).decode
# The format of PostgreSQL's array_send for 64 bit numbers without nulls: a head, then each number with its length.
_SENT_HEAD = 20
_SENT_INTEGERS = np.dtype([("length", ">i4"), ("number", ">i8")])
_SENT_DOUBLES = np.dtype([("length", ">i4"), ("number", ">f8")])


class Column(NamedTuple):
    """One metric of a block, as its columns in the database; `total` is the sum of the values that are numbers.

    `parts` are known where steps are iterations.
    """

    metric: str
    points: int
    positions: bytes | None
    summary: bytes
    values: bytes
    total: float
    parts: bytes | None


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


class Frame(NamedTuple):
    """Rows without their metrics."""

    steps: Integers
    iterations: Integers
    times: Integers

    def make_series(self, positions: Integers | None, values: Doubles, stream: int) -> Series:
        """The points of a metric that has these values, in all rows or at some positions."""
        columns = self if positions is None else [column[positions] for column in self]
        return Series.from_rows(columns, values, stream)


class Rows:
    """Rows in the order of their steps, column by column.

    They are added piece by piece, so that no more than a piece is there as documents, which take ten times the memory.
    """

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._points: dict[str, tuple[array[int], array[float]]] = {}
        self.count = 0

    def append_rows(self, steps: bytes, iterations: bytes, times: bytes, metrics: str) -> None:
        """Add rows: sent arrays, and JSON objects with commas between them."""
        self._frames.append(Frame(sent_integers(steps), sent_integers(iterations), sent_integers(times)))
        for metric, positions, values in _by_metric(_decode_metrics(f"[{metrics}]"), self.count):
            known = self._points.setdefault(metric, (array("q"), array("d")))
            known[0].extend(positions)
            known[1].extend(_as_array(values))
        self.count += self._frames[-1].steps.size

    def frame(self) -> Frame:
        """All rows without their metrics."""
        if not self._frames:
            return Frame(*[np.empty(0, np.int64)] * 3)
        return Frame._make(map(np.concatenate, zip(*self._frames, strict=True)))

    def columns(self) -> dict[str, tuple[Integers | None, Doubles]]:
        """The positions (None: all) and values of each metric, in the order of the names."""
        found: dict[str, tuple[Integers | None, Doubles]] = {}
        for metric in sorted(self._points):
            positions, values = map(np.array, self._points[metric])
            found[metric] = (None if values.size == self.count else positions, values)
        return found


def _by_metric(
    documents: Sequence[dict[str, float | str]], first: int
) -> Iterable[tuple[str, Iterable[int], Sequence[Any]]]:
    """The values of each metric with the positions of their rows, which begin at `first`."""
    names = documents[0].keys()
    if all(document.keys() == names for document in documents):
        # The usual case. jsonb keeps keys in an order of its own, so that equal keys come in the same order.
        columns = zip(*(document.values() for document in documents), strict=True)
        return [
            (name, range(first, first + len(documents)), values) for name, values in zip(names, columns, strict=True)
        ]
    found: dict[str, tuple[list[int], list[Any]]] = {}
    for position, document in enumerate(documents, first):
        for metric, value in document.items():
            positions, values = found.setdefault(metric, ([], []))
            positions.append(position)
            values.append(value)
    return [(metric, *columns) for metric, columns in found.items()]


def _as_array(given: Sequence[Any]) -> array[float]:
    try:
        return array("d", given)
    except TypeError:  # the special values are strings
        return array("d", map(float, given))


def build_block(first_step: int, last_step: int, rows: Rows) -> Block:
    """A block of rows, at least one."""
    frame = rows.frame()
    steps, iterations, times = frame
    is_plain = np.array_equal(steps, iterations)

    def parts_of(positions: Integers | None, values: Doubles) -> bytes | None:
        where = slice(None) if positions is None else positions
        return pack_parts(iterations[where], times[where], values) if is_plain else None

    return Block(
        first_step=first_step,
        last_step=last_step,
        rows=rows.count,
        ordered=bool((iterations[1:] >= iterations[:-1]).all()),
        first_iteration=int(iterations.min()),
        last_iteration=int(iterations.max()),
        first_us=int(times.min()),
        last_us=int(times.max()),
        steps=pack_spaced(steps),
        iterations=None if is_plain else pack_spaced(iterations),
        times=pack_spaced(times),
        columns=[
            Column(
                metric,
                values.size,
                None if positions is None else positions.astype("<u2").tobytes(),
                pack_summary(frame.make_series(positions, values, 0).select(summary_positions(values))),
                values.astype("<f8").tobytes(),
                total_of(values),
                parts_of(positions, values),
            )
            for metric, (positions, values) in rows.columns().items()
        ],
    )


def summary_positions(values: Doubles) -> Integers:
    """Positions of what a summary keeps: both ends, and what is extreme in each part of so many values.

    All of so few that a summary is not longer for it: rare metrics are then read out of summaries alone.
    """
    if values.size <= SUMMARY_POINTS // 2:
        return np.arange(values.size)
    found = extremes(values, np.arange(0, values.size, SUMMARY_POINTS))
    return np.unique(np.concatenate([found, [0, values.size - 1]]))


def pack_summary(series: Series) -> bytes:
    """Points as a summary in the database: iterations, times, values."""
    return b"".join(
        [
            series.iterations.astype("<i8").tobytes(),
            series.times.astype("<i8").tobytes(),
            series.values.astype("<f8").tobytes(),
        ]
    )


def unpack_summaries(summaries: Sequence[bytes], points: Sequence[int], streams: Sequence[int]) -> Series:
    """The points of summaries, each of which stands for so many points of a stream; their steps are not known (0)."""
    counts = np.array([len(summary) // POINT_BYTES for summary in summaries], np.int64)
    thirds = [
        b"".join([data[third * len(data) // 3 : (third + 1) * len(data) // 3] for data in summaries])
        for third in range(3)
    ]
    iterations, times = (unpack_integers(data) for data in thirds[:2])
    weights = np.repeat(np.array(points) / np.maximum(counts, 1), counts)
    owners = np.repeat(np.array(streams, np.int64), counts)
    return Series(np.zeros_like(times), iterations, times, unpack_doubles(thirds[2]), owners, weights)


def pack_spaced(numbers: Integers) -> bytes:
    """Whole numbers as bytes; evenly spaced ones (more than two) as the first and the difference."""
    differences = np.diff(numbers)  # modulo 2**64, as the sums that `unpack_spaced` makes of them
    if numbers.size > 2 and (differences == differences[0]).all():
        numbers = np.array([numbers[0], differences[0]])
    return numbers.astype("<i8").tobytes()


def unpack_spaced(data: bytes, count: int) -> Integers:
    """Unpack `count` numbers that `pack_spaced` packed."""
    found = unpack_integers(data)
    if count <= 2 or len(data) != _SPACED_BYTES:
        return found
    return found[:1] + found[1:] * np.arange(count)


def unpack_integers(data: bytes) -> Integers:
    """64 bit whole numbers out of bytes."""
    return np.frombuffer(data, "<i8").astype(np.int64, copy=False)


def unpack_doubles(data: bytes) -> Doubles:
    """Doubles out of bytes."""
    return np.frombuffer(data, "<f8").astype(np.float64, copy=False)


def unpack_positions(data: bytes | None) -> Integers | None:
    """Positions of a column, None for all."""
    return None if data is None else np.frombuffer(data, "<u2").astype(np.int64)


def sent_integers(data: bytes | None) -> Integers:
    """Decode whole numbers that array_send encoded; a null is empty."""
    if data is None or len(data) < _SENT_HEAD:
        return np.empty(0, np.int64)
    return np.frombuffer(data, _SENT_INTEGERS, offset=_SENT_HEAD)["number"].astype(np.int64)


def sent_doubles(data: bytes | None) -> Doubles:
    """Decode doubles that array_send encoded; a null is empty."""
    if data is None or len(data) < _SENT_HEAD:
        return np.empty(0)
    return np.frombuffer(data, _SENT_DOUBLES, offset=_SENT_HEAD)["number"].astype(np.float64)
