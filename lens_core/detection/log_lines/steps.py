"""The number under which a step's row is stored, where the line itself names it and where its neighbours do."""

from __future__ import annotations

from .general import ANNOUNCEMENT
from .readings import Reading
from .stream_memory import Job, Stream

_MAX_NAMES = 256


def number(reading: Reading, stream: Stream, job: Job) -> tuple[int, str]:
    """The row's step and what counts it.

    In this order: the line's own iteration; epoch (of the line, or of one above it) and step in it; the epoch, where
    rows are per epoch; the step that a line above announced; the progress bar before it; the share of the epochs that
    is done; else rows are counted.
    """
    values = reading.values
    if reading.iteration is not None and reading.bar is None:
        return reading.iteration, reading.format
    if reading.bar is not None:
        reading.iteration = None
        values.pop("target_iteration", None)
    epoch, step = values.get("epoch"), values.get("step_in_epoch")
    if step is not None:
        if epoch is None and stream.epoch is not None:
            epoch = values["epoch"] = stream.epoch
        return _of_epoch_and_step(reading, epoch, int(step), stream, job), reading.format
    if epoch is not None and (reading.sums_up_epoch or "total_epochs" in values) and epoch.is_integer():
        return int(epoch), reading.format
    return _of_neighbours(reading, epoch, stream, job)


def _of_epoch_and_step(reading: Reading, epoch: float | None, step: int, stream: Stream, job: Job) -> int:
    """The step of the whole training, from the epoch and the step in it.

    Where the epoch's length is not printed, it is what was counted of the epochs before.
    """
    per_epoch = reading.values.get("steps_per_epoch")
    if per_epoch is not None and per_epoch == job.configured.get("target_iteration"):
        reading.values["target_iteration"] = reading.values.pop("steps_per_epoch")
        return step
    if per_epoch is not None:
        return int(max(0.0, (epoch or 0.0) - reading.epoch_base) * per_epoch + step)
    if stream.epoch_counted is not None and epoch is not None and epoch > stream.epoch_counted:
        if step <= stream.step_counted:
            stream.steps_before_epoch += stream.step_counted
    elif epoch is not None and stream.epoch_counted is not None and epoch < stream.epoch_counted:
        stream.steps_before_epoch = 0
    stream.epoch_counted, stream.step_counted = epoch, step
    return stream.steps_before_epoch + step


def _of_neighbours(reading: Reading, epoch: float | None, stream: Stream, job: Job) -> tuple[int, str]:
    """The step of a row that names none: announced, on a bar, by the share of the epochs that is done, or counted."""
    values = reading.values
    if stream.announced is not None and set(stream.announced_names).isdisjoint(values):
        if stream.announced_target is not None:
            values.setdefault("target_iteration", stream.announced_target)
        stream.announced_names = [*stream.announced_names, *values][:_MAX_NAMES]
        return stream.announced, ANNOUNCEMENT
    bar = stream.bar
    if bar is not None and _counts_rows(bar, stream, job):
        stream.bar_total = bar[1]
        if epoch:
            stream.steps_per_epoch = bar[0] / epoch
        if bar[1] is not None:
            values.setdefault("target_iteration", float(bar[1]))
        return bar[0], "bar"
    if stream.bar_total is not None:
        values.setdefault("target_iteration", float(stream.bar_total))
        last = stream.last.get("bar", 0)
        expected = round(epoch * stream.steps_per_epoch) if epoch and stream.steps_per_epoch else 0
        return max(last + 1, min(expected, stream.bar_total)), "bar"
    total, epochs = job.configured.get("target_iteration"), job.configured.get("total_epochs")
    if epoch is not None and total and epochs:
        values.setdefault("target_iteration", total)
        return round(epoch / epochs * total), "epoch"
    return stream.ordinal + 1, "ordinal"


def _counts_rows(bar: tuple[int, int | None], stream: Stream, job: Job) -> bool:
    """Whether a bar counts the steps of the rows: its total is the training's, and it moved on since the last row."""
    done, total = bar
    goal = job.configured.get("target_iteration")
    if goal is not None and total is not None and float(total) != goal:
        return False
    last = stream.last.get("bar")
    if stream.bar_total is None or last is None:
        return True
    if total == stream.bar_total:
        return done != last
    # Another total: the first bar was another work's, if this one is longer, goes on and has not ended.
    return total is not None and total > stream.bar_total and last < done < total


def apply_held(reading: Reading, stream: Stream) -> None:
    """Give a step what lines before it said about it; what it says itself stays."""
    for name, value in stream.held.items():
        reading.values.setdefault(name, value)
    stream.held.clear()
