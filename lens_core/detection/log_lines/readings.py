"""The results of reading a line."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

# A line of these says something about its neighbours, and is no step by itself.
_OF_NEIGHBOURS = ("beside", "repeats", "announces", "announced", "evaluates")


class FrameworkHint(NamedTuple):
    """A framework that a line shows, with the confidence of the detector."""

    framework: str
    layer: str
    confidence: float
    by: str


class LogEvent(msgspec.Struct, frozen=True):
    """An event that a line reports; `framework` is empty where every framework prints such lines."""

    type: str
    framework: str
    iteration: int | None
    attempt: int | None
    details: dict[str, Any]


class Reading(msgspec.Struct):
    """One update of a line: a step's values, something that happened, a progress bar, or only hints of a framework.

    `values` have stored names and units, without the iteration. A progress bar without values is in `bar`: (done,
    total). `joins` and `sums_up_epoch` are the format's. `only_running` is an event of a job that has steps and
    no end yet. With `only_idle` `log_event` counts only while the job has no steps.
    """

    format: str = ""
    framework: str = ""
    values: dict[str, float] = {}
    iteration: int | None = None
    epoch_base: int = 0
    epoch_of_evaluation: int | None = None
    joins: str = ""
    sums_up_epoch: bool = False
    bar: tuple[int, int | None] | None = None
    log_event: LogEvent | None = None
    only_running: LogEvent | None = None
    only_idle: bool = False
    hints: tuple[FrameworkHint, ...] = ()
    text: str = ""

    @property
    def happening(self) -> LogEvent | None:
        """The former name of `log_event`, kept for tests of plugins of API 1.0."""
        return self.log_event

    @property
    def kind(self) -> str:
        """metric, event or none."""
        if self.format and self.joins not in _OF_NEIGHBOURS:
            return "metric"
        return "event" if self.log_event is not None else "none"
