"""Expected goodput from failure rates, and the checkpoint interval that follows from them."""

from __future__ import annotations

from math import sqrt

_MINUTES_PER_HOUR = 60.0


def mean_hours_to_failure(nodes: int, failures_per_node_day: float) -> float:
    """The mean hours between failures of a job on so many nodes."""
    return 24.0 / (nodes * failures_per_node_day)


def expected_ettr(
    nodes: int,
    failures_per_node_day: float,
    *,
    restart_minutes: float,
    interval_minutes: float,
    write_minutes: float,
) -> float:
    """The expected share of productive time of a job that saves at an interval and restarts after each failure."""
    per_minute = 1 / (_MINUTES_PER_HOUR * mean_hours_to_failure(nodes, failures_per_node_day))
    lost = per_minute * (restart_minutes + interval_minutes / 2)
    return max(0.0, 1 - lost) / (1 + write_minutes / interval_minutes)


def best_checkpoint_seconds(write_seconds: float, seconds_to_failure: float) -> float:
    """The checkpoint interval that loses least: the Young/Daly rule."""
    return sqrt(2 * write_seconds * seconds_to_failure)
