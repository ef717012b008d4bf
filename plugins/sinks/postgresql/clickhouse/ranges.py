"""The roll-up: of each range of steps of a metric its first and last point, the lowest, the highest, the first NaN.

A range is written with the versions in it, a part of it with each batch, and the parts are merged to the least of each
tuple: in any order, however often they come. So it is exact as long as no version was replaced by another, which
`lens_stream.overwritten` tells of a stream. The time of a point is the earliest that was written, as that of a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..series import Integers, Series, extremes
from .native import Column, Texts
from .schema import NO_METRIC, NO_TIME, RANGE_BITS
from .versions import BITS_OF_NAN, times_of, values_of

_NO_BITS = np.uint64(2**64 - 1)
# Tuples, of which the least is kept. Steps and bits are inverted where the greatest is meant.
_BY_STEP = np.dtype([("step", "<i8"), ("time", "<i8"), ("bits", "<u8")])
_BY_BITS = np.dtype([("bits", "<u8"), ("step", "<i8"), ("time", "<i8")])
_NOTHING = np.dtype([("step", "<i8"), ("time", "<i8")])
POINTS = {"first": _BY_STEP, "last": _BY_STEP, "lowest": _BY_BITS, "highest": _BY_BITS, "no_number": _NOTHING}
RANGE_TYPE = np.dtype([("stream", "<u8"), *POINTS.items()])
_Found = npt.NDArray[Any]


def ranges_of(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The ranges of some versions, which are in the order of `versions.sorted_order`."""
    metrics = columns["metric"]
    assert isinstance(metrics, Texts)
    stream, step, bits = (np.asarray(columns[name]) for name in ("stream", "step", "bits"))
    codes: _Found = metrics.codes
    time: _Found = times_of(columns)
    if NO_METRIC in metrics.distinct:
        kept = np.flatnonzero(codes != metrics.distinct.index(NO_METRIC))
        stream, codes, step, bits, time = (column[kept] for column in (stream, codes, step, bits, time))
    if not step.size:
        return {"stream": stream}
    part = step >> RANGE_BITS
    starts = np.flatnonzero(
        np.append(True, (stream[1:] != stream[:-1]) | (codes[1:] != codes[:-1]) | (part[1:] != part[:-1]))
    )
    ends = np.append(starts[1:], step.size) - 1
    numbers = _number_steps(step, starts)
    lasts = np.searchsorted(numbers, numbers[ends])  # of equal steps the first has the earliest time
    is_nan = bits == BITS_OF_NAN
    found: dict[str, _Found] = {
        "first": _as_tuples(_BY_STEP, step=step[starts], time=time[starts], bits=bits[starts]),
        "last": _as_tuples(_BY_STEP, step=~step[lasts], time=time[lasts], bits=bits[lasts]),
    }
    for name, wanted in (("lowest", np.where(is_nan, _NO_BITS, bits)), ("highest", np.where(is_nan, _NO_BITS, ~bits))):
        least = np.minimum.reduceat(wanted, starts)
        place = _first_places(wanted == np.repeat(least, np.diff(starts, append=step.size)), starts)
        is_none = least == _NO_BITS
        found[name] = _as_tuples(
            _BY_BITS,
            bits=least,
            step=np.where(is_none, NO_TIME, step[place]),
            time=np.where(is_none, NO_TIME, time[place]),
        )
    has_nan = np.logical_or.reduceat(is_nan, starts)
    place = _first_places(is_nan | ~np.repeat(has_nan, np.diff(starts, append=step.size)), starts)
    found["no_number"] = _as_tuples(
        _NOTHING, step=np.where(has_nan, step[place], NO_TIME), time=np.where(has_nan, time[place], NO_TIME)
    )
    return {"stream": stream[starts], "metric": Texts(metrics.distinct, codes[starts]), "part": part[starts], **found}


def _number_steps(step: _Found, starts: Integers) -> Integers:
    """A number for each distinct step of each range, ascending."""
    is_new = np.append(True, step[1:] != step[:-1])
    is_new[starts] = True
    return np.cumsum(is_new)


def _first_places(is_wanted: npt.NDArray[np.bool_], starts: Integers) -> Integers:
    """The first wanted position of each range, which has one."""
    positions = np.flatnonzero(is_wanted)
    return positions[np.searchsorted(positions, starts)]


def _as_tuples(dtype: np.dtype[Any], **columns: _Found) -> _Found:
    found = np.empty(next(iter(columns.values())).size, dtype)
    for name, column in columns.items():
        found[name] = column
    return found


def thin_ranges(found: _Found, place: int, points: int) -> Series:
    """The points of one stream's ranges, merged or not, as `thin` leaves them: both ends and what is extreme in each
    range; each stands for as many of the `points` as the others."""
    first, last, lowest, highest, nan = (found[name] for name in POINTS)
    step = np.concatenate([first["step"], ~last["step"], lowest["step"], highest["step"], nan["step"]])
    time = np.concatenate([first["time"], last["time"], lowest["time"], highest["time"], nan["time"]])
    bits = np.concatenate(
        [first["bits"], last["bits"], lowest["bits"], ~highest["bits"], np.full(found.size, BITS_OF_NAN, np.uint64)]
    )
    is_some = np.ones(step.size, np.bool_)
    is_some[2 * found.size :] = (step[2 * found.size :] != NO_TIME) | (time[2 * found.size :] != NO_TIME)
    step, time, bits = step[is_some], time[is_some], bits[is_some]
    order = np.argsort(step, kind="stable")  # five columns that are in order, which is what it is fast with
    step, time, bits = step[order], time[order], bits[order]
    starts = np.flatnonzero(np.append(True, step[1:] != step[:-1]))
    step, time, values = step[starts], np.minimum.reduceat(time, starts), values_of(bits[starts])
    part = step >> RANGE_BITS
    is_kept = np.zeros(step.size, np.bool_)
    is_kept[extremes(values, np.flatnonzero(np.append(True, part[1:] != part[:-1])))] = True
    is_kept[[0, -1]] = True
    kept = np.flatnonzero(is_kept)
    series = Series.from_rows((step[kept], step[kept], time[kept]), values[kept], place)
    return series._replace(weights=np.full(kept.size, points / kept.size))
