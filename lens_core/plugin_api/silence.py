"""The rule of stalls: after how much silence a running job is one. The same for logs and for what trackers log."""

from __future__ import annotations

MIN_STALL_SECONDS = 60.0
STALL_FACTOR = 3.0
# The first evaluation may take this long; later ones somewhat longer than the longest so far.
EVALUATION_STALL_SECONDS = 1800.0
EVALUATION_STALL_FACTOR = 1.5


def stall_limit(usual_seconds: float, longest_pause_seconds: float, *, is_pausing: bool) -> float:
    """The seconds of silence after which a job is stalled.

    `usual_seconds` is the usual time from step to step, `longest_pause_seconds` the longest pause so far that was no
    stall. `is_pausing`: an evaluation or a checkpoint was announced after the newest step.
    """
    limit = max(MIN_STALL_SECONDS, STALL_FACTOR * usual_seconds, EVALUATION_STALL_FACTOR * longest_pause_seconds)
    return max(limit, EVALUATION_STALL_SECONDS) if is_pausing else limit
