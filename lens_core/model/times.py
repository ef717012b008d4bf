"""Times as senders write them: seconds, milliseconds, microseconds or nanoseconds since 1970, told by their size."""

from __future__ import annotations

MILLISECONDS = 1e11  # in seconds this is the year 5138
_MICROSECONDS = 1e14
_NANOSECONDS = 1e17
_TOO_LARGE = 1e21


def epoch_seconds(moment: float | None) -> float | None:
    """Seconds since 1970 of a time in any of the units; None stays None. Raises ValueError for what is no time."""
    if moment is None or 0.0 <= moment < MILLISECONDS:
        return moment
    if not 0.0 <= moment < _TOO_LARGE:
        raise ValueError(f"timestamp {moment!r} is no time: give seconds or milliseconds since 1970")
    for limit, factor in ((_NANOSECONDS, 1e9), (_MICROSECONDS, 1e6)):
        if moment >= limit:
            return moment / factor
    return moment / 1e3
