"""What the engine says about a line."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

# A line of these says something about its neighbours, and is no step by itself.
_OF_NEIGHBOURS = ("repeats", "announces", "announced")


class Sign(NamedTuple):
    """A line shows this framework, so sure."""

    framework: str
    layer: str
    confidence: float
    by: str


class Happening(msgspec.Struct, frozen=True):
    """An event that a line tells of; `framework` is empty where anybody prints such lines."""

    type: str
    framework: str
    iteration: int | None
    attempt: int | None
    details: dict[str, Any]


class Reading(msgspec.Struct):
    """One update of a line: a step's values, something that happened, a progress bar, or only signs of a framework.

    `values` have stored names and units, without the iteration. A progress bar without values is in `bar`: (done,
    total). `joins` and `sums_up_epoch` are the format's.
    """

    format: str = ""
    framework: str = ""
    values: dict[str, float] = {}
    iteration: int | None = None
    epoch_base: int = 0
    joins: str = ""
    sums_up_epoch: bool = False
    bar: tuple[int, int | None] | None = None
    happening: Happening | None = None
    signs: tuple[Sign, ...] = ()
    text: str = ""

    @property
    def kind(self) -> str:
        """metric, event or none."""
        if self.format and self.joins not in _OF_NEIGHBOURS:
            return "metric"
        return "event" if self.happening is not None else "none"
