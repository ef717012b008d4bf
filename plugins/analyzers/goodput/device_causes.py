"""The error of a device that ended an attempt, if one did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...device_errors import DeviceError

# Clocks differ, and an error is seen some time after it happened: counters are read each so often, the kernel's log is
# shipped. Of an attempt without a row this long before its end.
_BEFORE_SECONDS, _BEHIND_SECONDS, _WITHOUT_ROW_SECONDS = 60.0, 120.0, 3600.0


class SeenError(NamedTuple):
    """An error of a device, when it was seen (seconds since the epoch), on which node, and of which rank."""

    time: float
    error: DeviceError
    node: str
    rank: int | None


def find_cause(
    errors: Sequence[SeenError], newest_row: float | None, end: float | None, following: float | None
) -> SeenError | None:
    """The error that ended an attempt: the first fault of hardware, else the first of the others that can end a job.

    It was seen after the newest row, because training that goes on was not ended by it, and no later than shortly
    after the end (where nobody told it: than the start of the `following` attempt).
    """
    until = end if end is not None else following
    if until is None:
        return None
    begin = newest_row - _BEFORE_SECONDS if newest_row is not None else until - _WITHOUT_ROW_SECONDS
    latest = until + _BEHIND_SECONDS
    if following is not None and end is not None:
        latest = min(latest, max(end, following))  # what comes after the next start is of the next attempt
    near = [seen for seen in errors if seen.error.can_stop and begin <= seen.time <= latest]
    return min(near, key=lambda seen: (not seen.error.of_hardware, seen.time), default=None)
