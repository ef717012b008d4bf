"""The step of a row that says only how many epochs are done: `{'loss': 1.5, 'epoch': 1.27}`.

Epochs are printed with two or four decimals, so that many steps have the same. Rows come at multiples of an interval:
the roundest number that the first row allows, corrected where later rows contradict it.
"""

from __future__ import annotations

import math

from .stream_memory import Job, Stream

COUNTER = "epoch"
_ROUND_NUMBERS = [digit * power for power in (10**6, 10**5, 10**4, 1000, 100, 10, 1) for digit in (5, 1)]


def steps_per_epoch(job: Job) -> float | None:
    """The steps of an epoch, as those of all epochs are known."""
    total, epochs = job.configured.get("target_iteration"), job.configured.get("total_epochs")
    return total / epochs if total and epochs else None


def step_of_epoch(epoch: float, per_epoch: float, stream: Stream) -> int:
    """The step at which so many epochs were done; more than that of the row before, unless the epoch is less."""
    step = epoch * per_epoch
    tolerance = (0.005 if round(epoch, 2) == epoch else 0.00005) * per_epoch + 0.5
    last, before = stream.last.get(COUNTER), stream.counted_epoch
    stream.counted_epoch = epoch
    if last is None or (before is not None and epoch < before):
        stream.first_row_step, stream.rows_behind = step, 0
        if stream.row_interval is None:
            stream.row_interval = _roundest(step, tolerance)
        return max(1, _multiple(step, stream.row_interval, tolerance))
    stream.rows_behind += 1
    between = (step - stream.first_row_step) / stream.rows_behind
    stream.row_interval = _roundest(between, 2 * tolerance / stream.rows_behind)
    following = last + stream.row_interval
    return (
        following
        if abs(following - step) <= tolerance
        else max(last + 1, _multiple(step, stream.row_interval, tolerance))
    )


def _multiple(step: float, interval: int, tolerance: float) -> int:
    """The multiple of an interval that is about a step, else the step."""
    nearest = round(step / interval) * interval
    return nearest if abs(nearest - step) <= tolerance else round(step)


def _roundest(number: float, tolerance: float) -> int:
    """The smallest multiple of the largest round number that is about a number; at least 1."""
    for unit in _ROUND_NUMBERS:
        candidate = max(1, math.ceil((number - tolerance) / unit)) * unit
        if candidate <= number + tolerance:
            return candidate
    return max(1, round(number))


def count_rows(epoch: float | None, stream: Stream) -> int:
    """The number of a row that nothing numbers: the next, or after a restart what rows of its epoch had before."""
    number = stream.ordinal + 1
    if not epoch:
        return number
    went_back = stream.counted_epoch is not None and epoch < stream.counted_epoch
    if stream.rows_per_epoch is not None and (went_back or stream.ordinal == 0):
        number = max(1, round(epoch * stream.rows_per_epoch))
    else:
        stream.rows_per_epoch = number / epoch
    stream.counted_epoch = epoch
    return number
