"""The number under which a step's row is stored, where the line itself names it and where its neighbours do."""

from __future__ import annotations

from .readings import Reading
from .stream_memory import Job, Stream

# A bar that jumps by less than this in its epoch is believed without a total.
_NO_TOTAL = 1_000_000


def number(reading: Reading, stream: Stream, job: Job) -> tuple[int, str]:
    """The row's step and what counts it.

    In this order: the line's own iteration; epoch (of the line, or of one above it) and step in it; the epoch, where
    rows are per epoch; the progress bar before it; the share of the epochs that are done; else rows are counted.
    """
    values = reading.values
    if reading.iteration is not None:
        return reading.iteration, reading.format
    epoch, step = values.get("epoch"), values.get("step_in_epoch")
    if step is not None:
        if epoch is None and stream.epoch is not None:
            epoch = values["epoch"] = stream.epoch
        per_epoch = values.get("steps_per_epoch", _NO_TOTAL)
        before = max(0.0, (epoch or 0.0) - reading.epoch_base) * per_epoch
        return int(before + step), reading.format
    if epoch is not None and (reading.sums_up_epoch or "total_epochs" in values) and epoch.is_integer():
        return int(epoch), reading.format
    if stream.bar is not None and _is_of_training(stream.bar, job):
        if stream.bar[1] is not None:
            values.setdefault("target_iteration", float(stream.bar[1]))
        return stream.bar[0], "bar"
    total, epochs = job.configured.get("target_iteration"), job.configured.get("total_epochs")
    if epoch is not None and total and epochs:
        values.setdefault("target_iteration", total)
        return round(epoch / epochs * total), "epoch"
    return stream.ordinal + 1, "ordinal"


def _is_of_training(bar: tuple[int, int | None], job: Job) -> bool:
    total = job.configured.get("target_iteration")
    return total is None or bar[1] is None or float(bar[1]) == total


def take_held(reading: Reading, stream: Stream) -> None:
    """Give a step what lines before it said about it; what it says itself stays."""
    for name, value in stream.held.items():
        reading.values.setdefault(name, value)
    stream.held.clear()
