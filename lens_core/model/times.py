"""Times as senders write them: seconds, milliseconds, microseconds or nanoseconds since 1970, told by their size."""

from __future__ import annotations

MILLISECONDS = 1e11  # in seconds this is the year 5138
_MICROSECONDS = 1e14
_NANOSECONDS = 1e17
# The end of the year 2199: what says that it is later is no time in any unit.
LATEST_SECONDS = 7_258_118_400.0


def epoch_seconds(moment: float | None) -> float | None:
    """Seconds since 1970 of a time in any of the units; None stays None. Raises ValueError for what is no time."""
    if moment is None or 0.0 <= moment < LATEST_SECONDS:
        return moment
    units = ((_NANOSECONDS, 1e9), (_MICROSECONDS, 1e6), (MILLISECONDS, 1e3))
    seconds = next((moment / factor for limit, factor in units if moment >= limit), moment)
    if not 0.0 <= seconds < LATEST_SECONDS:
        raise ValueError(f"timestamp {moment!r} is no time: give seconds or milliseconds since 1970")
    return seconds
