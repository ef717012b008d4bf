"""The number under which a step's row is stored, where the line itself names it and where its neighbours do."""

from __future__ import annotations

import re

from .bars import BAR_TEXT, last_bar
from .epoch_steps import COUNTER, count_rows, step_of_epoch, steps_per_epoch
from .general import ANNOUNCEMENT, EPOCH, FORMAT, NUMBERED
from .readings import Reading
from .stream_memory import Job, Stream

_MAX_NAMES = 256
_NAMELESS = re.compile(r"\s{0,8}\[?\d{1,12}/\d")
# The loop of PyTorch's and torchvision's examples, whose epochs count from 0: `Epoch: [31][  10/5005]`.
_FROM_ZERO = re.compile(r"\bEpoch: ?\[ {0,8}\d{1,9}(?:/\d{1,9})?\] {0,4}\[")


def number(reading: Reading, stream: Stream, job: Job) -> tuple[int, str]:
    """The row's step and what counts it.

    In this order: the line's own iteration; epoch (of the line, or of one above it) and step in it; the epoch, where
    rows are per epoch; the step that a line above announced; the progress bar before it; the share of the epochs that
    is done; else rows are counted.
    """
    values = reading.values
    if reading.iteration is not None and reading.bar is None:
        if _counts_epochs(reading, stream):
            name = "target_iteration" if "target_iteration" in values else "batch"
            values.update(epoch=float(reading.iteration), step_in_epoch=values.pop(name))
            reading.iteration = None
        elif "target_iteration" in values and _may_begin_anew(reading, stream):
            return _of_own_bar(reading, stream), reading.format
        elif reading.format == FORMAT and "target_iteration" not in values and "epoch" in values:
            return _of_iteration(reading, values["epoch"], stream, job), reading.format
        else:
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


def is_beside_epoch(reading: Reading, stream: Stream) -> bool:
    """Whether a row below the name of an epoch is of other work than its steps: an evaluation after the last epoch.

    Its bar has another total; with the same total it is full once more, without a validation's numbers.
    """
    step, per_epoch = reading.values.get("step_in_epoch"), reading.values.get("steps_per_epoch")
    if step is None and stream.epoch is None and reading.iteration is not None and _may_begin_anew(reading, stream):
        step, per_epoch = float(reading.iteration), reading.values.get("target_iteration")
    if step is None or per_epoch is None or "epoch" in reading.values:
        return False
    if stream.epoch is None:
        return _is_shorter(int(step), int(per_epoch), stream)
    if stream.steps_per_epoch is None or stream.epoch_counted is None:
        stream.steps_per_epoch = per_epoch
    is_full_again = stream.epoch_counted == stream.epoch and step == per_epoch == stream.step_counted
    is_other = per_epoch != stream.steps_per_epoch
    stream.epoch_counted, stream.step_counted = stream.epoch, int(step) if not is_other else stream.step_counted
    return is_other or (is_full_again and not any(name.startswith("val_") for name in reading.values))


def _is_shorter(step: int, length: int, stream: Stream) -> bool:
    """Whether a bar after a full and longer one is of other work: an evaluation, which names itself nowhere.

    One that begins anew with no longer bar between is the training's: its second stage has less data.
    """
    if stream.bar_length is None or length >= stream.bar_length or stream.step_counted < stream.bar_length:
        stream.bar_length, stream.step_beside = length, None
        return False
    if stream.step_beside is not None and step < stream.step_beside:
        stream.bar_length, stream.step_beside = length, None
        return False
    stream.step_beside = step
    return True


def sums_up_banner(reading: Reading, stream: Stream) -> bool:
    """Whether a loss without a counter is that of the epoch whose name stands above; makes it the epoch's row."""
    if stream.epoch is None or "lm_loss" not in reading.values or stream.last.keys() - {EPOCH}:
        return False
    if stream.last.get(EPOCH) == stream.epoch:  # a second loss below the same name is of other work
        return False
    reading.values.setdefault("epoch", stream.epoch)
    reading.format, reading.joins, reading.sums_up_epoch = EPOCH, "", True
    return True


def announce(reading: Reading, stream: Stream, job: Job) -> None:
    """Remember the step that a line without numbers names, for the lines below it."""
    step = reading.iteration
    if step is None:  # it counts within an epoch
        step, _ = number(reading, stream, job)
    stream.announced, stream.announced_names, stream.announced_by_row = step, [], False
    stream.announced_target = reading.values.get("target_iteration")


def announce_own(reading: Reading, row_step: int, stream: Stream) -> None:
    """Let the lines below a row without a loss belong to it: its losses stand there."""
    if reading.format != FORMAT:
        return
    if "lm_loss" in reading.values:
        if not reading.joins:
            stream.announced = None if stream.announced_by_row else stream.announced
            stream.announced_by_row = False
    else:
        stream.announced, stream.announced_names = row_step, list(reading.values)[:_MAX_NAMES]
        stream.announced_target, stream.announced_by_row = reading.values.get("target_iteration"), True


def is_of_announced(reading: Reading, stream: Stream) -> bool:
    """Whether a row of a table of keys and values is of the step that stands above the table."""
    if stream.announced is None or reading.iteration is not None or stream.cell_step is not None:
        return False
    return set(stream.announced_names).isdisjoint(reading.values)


def place_number(reading: Reading, stream: Stream) -> bool:
    """Whether the lone number with which a line begins is its step; a rank's or a viewer's number is none.

    It is one where it grows. Below the name of an epoch it counts within that, below a step's it counts nothing.
    """
    last = stream.last.get(NUMBERED)
    if stream.announced is not None:
        reading.iteration, reading.joins = None, "announced"
    elif stream.epoch is not None and reading.iteration is not None:
        reading.values["step_in_epoch"] = float(reading.iteration)
        reading.iteration = None
    elif last is not None and reading.iteration is not None:
        return reading.iteration > last
    return True


def _counts_epochs(reading: Reading, stream: Stream) -> bool:
    """Whether a counter and its total, or a batch beside it, are an epoch and the step in it: only the latter grows."""
    total = reading.values.get("target_iteration", reading.values.get("batch"))
    if total is None or reading.iteration is None or reading.format != FORMAT:
        return False
    before = stream.counted
    if total == 0.0 or (before is not None and before[0] == reading.iteration and before[1] < total):
        stream.counts_epochs = True
    stream.counted = (reading.iteration, total)
    return stream.counts_epochs


def _of_epoch_and_step(reading: Reading, epoch: float | None, step: int, stream: Stream, job: Job) -> int:
    """The step of the whole training, from the epoch and the step in it.

    Where the epoch's length is not printed, it is what was counted of the epochs before.
    """
    per_epoch = reading.values.get("steps_per_epoch")
    if per_epoch is not None and per_epoch == job.configured.get("target_iteration"):
        reading.values["target_iteration"] = reading.values.pop("steps_per_epoch")
        return step
    if per_epoch is not None and epoch is None:
        return _of_nameless_epoch(step, int(per_epoch), stream)
    is_later = job.last_iteration is None and epoch is not None and epoch > 1.0  # the log was cut, or training resumed
    if epoch == 0.0 or (is_later and _FROM_ZERO.search(reading.text)):
        job.has_epoch_zero = True
    if per_epoch is not None:
        base = 0 if job.has_epoch_zero else reading.epoch_base
        return int(max(0.0, (epoch or 0.0) - base) * per_epoch + step)
    if stream.epoch_counted is not None and epoch is not None and epoch > stream.epoch_counted:
        if step <= stream.step_counted:
            stream.steps_before_epoch += stream.step_counted
    elif epoch is not None and stream.epoch_counted is not None and epoch < stream.epoch_counted:
        stream.steps_before_epoch = 0
    stream.epoch_counted, stream.step_counted = epoch, step
    return stream.steps_before_epoch + step


def _of_iteration(reading: Reading, epoch: float, stream: Stream, job: Job) -> int:
    """The step of a row with an epoch behind its step: that of the whole training, unless it falls as epochs grow."""
    assert reading.iteration is not None
    done = reading.iteration
    step = _of_epoch_and_step(reading, epoch, done, stream, job)
    if step != done:
        reading.iteration = None
        reading.values["step_in_epoch"] = float(done)
    return step


def _may_begin_anew(reading: Reading, stream: Stream) -> bool:
    """Whether a row's number may count within an epoch: a bar's, one without a name, one below an epoch's name."""
    if reading.format == FORMAT and (stream.epoch is not None or _NAMELESS.match(reading.text)):
        return True
    return BAR_TEXT in reading.text and last_bar(reading.text) == (
        reading.iteration,
        reading.values.get("target_iteration"),
    )


def _of_own_bar(reading: Reading, stream: Stream) -> int:
    """The step of the whole training for the number of a bar that may begin anew with each epoch."""
    assert reading.iteration is not None
    values, done = reading.values, reading.iteration
    total = values["target_iteration"]
    step = _of_nameless_epoch(done, int(total), stream)
    if stream.epoch is not None or step != done:
        reading.iteration = None
        values.pop("target_iteration")
        values.update(step_in_epoch=float(done), steps_per_epoch=total)
        if stream.epoch is not None:
            values.setdefault("epoch", stream.epoch)
    return step


def _of_nameless_epoch(step: int, per_epoch: int, stream: Stream) -> int:
    """The step of the whole training where no line names the epoch: one that was full is followed by the next."""
    if step < stream.step_counted:
        stream.steps_before_epoch = stream.steps_before_epoch + per_epoch if stream.step_counted >= per_epoch else 0
    stream.step_counted = step
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
    per_epoch = steps_per_epoch(job)
    if epoch is not None and per_epoch is not None:
        values.setdefault("target_iteration", job.configured["target_iteration"])
        return step_of_epoch(epoch, per_epoch, stream), COUNTER
    return count_rows(epoch, stream), "ordinal"


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
