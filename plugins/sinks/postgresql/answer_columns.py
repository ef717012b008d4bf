"""Columns of an answer out of numpy's. Pure, no I/O."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lens_core import PointColumns

from .series import Doubles, Integers

_MILLISECOND = 1000


class Curve(Protocol):
    """The run, attempt and source that a curve is of."""

    @property
    def data_source(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...


def answer_columns(
    name: str,
    curve: Curve,
    iterations: Integers,
    times_us: Integers,
    values: Doubles,
    extras: Mapping[str, Sequence[Any]] | None = None,
    next_cursor: str = "",
) -> PointColumns:
    """Points of one metric of one curve, as answers have them: times in ms."""
    return PointColumns(
        metric_name=name,
        data_source=curve.data_source,
        run_id=curve.run_id,
        attempt=curve.attempt,
        iterations=array("q", iterations.tobytes()),
        timestamps=array("q", (times_us // _MILLISECOND).tobytes()),
        values=array("d", values.tobytes()),
        extras=dict(extras or {}),
        next_cursor=next_cursor,
    )
