"""Parts of a curve: what is known of every 128 points that follow each other, kept beside a block. Pure, no I/O."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lens_core import PointColumns

from .answer_columns import answer_columns
from .series import Doubles, Integers
from .streams import Stream

PART_POINTS = 128
# Times are microseconds since the epoch. Mean, lowest and highest are of the finite values; 0 without any.
_PART = np.dtype(
    [
        ("iteration", "<i8"),
        ("time", "<i8"),
        *((name, "<f8") for name in ("mean", "lowest", "highest", "last")),
        ("finite", "u1"),
    ]
)
Parts = npt.NDArray[np.void]


def pack_parts(iterations: Integers, times: Integers, values: Doubles) -> bytes | None:
    """The parts of a block's points, in the order of their iterations; None for points that are less than one."""
    if values.size < PART_POINTS:
        return None
    starts = np.arange(0, values.size, PART_POINTS)
    counts = np.diff(starts, append=values.size)
    is_finite = np.isfinite(values)
    found = np.zeros(starts.size, _PART)
    found["iteration"], found["time"] = iterations[starts + counts - 1], times[starts + counts - 1]
    found["last"] = values[starts + counts - 1]
    found["finite"] = finite = np.add.reduceat(is_finite, starts, dtype=np.int64)
    lowest = np.minimum.reduceat(np.where(is_finite, values, np.inf), starts)
    highest = np.maximum.reduceat(np.where(is_finite, values, -np.inf), starts)
    # Shares of the mean, not a sum: that of large values would be infinite.
    shares = np.where(is_finite, values, 0.0) / np.repeat(np.maximum(finite, 1), counts)
    has_numbers = finite > 0
    found["mean"] = np.where(has_numbers, np.clip(np.add.reduceat(shares, starts), lowest, highest), 0.0)
    found["lowest"], found["highest"] = np.where(has_numbers, lowest, 0.0), np.where(has_numbers, highest, 0.0)
    return found.tobytes()


def part_columns(name: str, stream: Stream, packed: Sequence[bytes], points: Sequence[int]) -> PointColumns:
    """The parts of blocks as columns, each block with its number of points: means, and beside them what is known."""
    found: Parts = np.frombuffer(b"".join(packed), _PART)
    counts = _counts(points)
    finite = found["finite"].astype(np.int64)
    extras: dict[str, array[Any]] = {name: array("d", found[field].tobytes()) for name, field in _EXTRAS.items()}
    whole = {"steps": counts, "count": counts, "not_finite": counts - finite}
    extras.update({name: array("q", column.tobytes()) for name, column in whole.items()})
    return answer_columns(name, stream, found["iteration"], found["time"], found["mean"], extras)


_EXTRAS = {"min": "lowest", "max": "highest", "last": "last"}


def _counts(points: Sequence[int]) -> Integers:
    """Return the number of points of each part of blocks with so many points."""
    sizes = np.array(points, np.int64)
    ends = np.cumsum(-(-sizes // PART_POINTS))
    found = np.full(ends[-1], PART_POINTS, np.int64)
    found[ends - 1] -= -sizes % PART_POINTS
    return found
