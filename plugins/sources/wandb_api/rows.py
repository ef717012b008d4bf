"""Points and logged dictionaries → rows (`StepMetrics`): one row per step, unless a name comes twice."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from lens_core import Origin, StepMetrics
from lens_core.plugin_api.encoding import MAX_METRICS, epoch_seconds, numbers_of

from ..log_entries import seconds_of
from .shapes import Log, Metric, Sender

DATA_SOURCE = "wandb"

# The key of the training step, for callers who never pass a step (Hugging Face's Trainer, Lightning).
TRAINING_STEP_METRICS = ("train/global_step", "trainer/global_step")

Rejections = list[tuple[int, str]]

_SECONDS = 1e11  # from the year 5138 on it is a time in a smaller unit
# Names above nested numbers are written out for each of them: so many characters in one body.
_MAX_WRITTEN_OUT = 64 * 1024 * 1024
_TOO_MUCH = "the names above the nested numbers of this body are too long; send fewer rows at a time"


class _Row:
    """A row under construction."""

    __slots__ = ("latest", "tags", "timestamp", "values")

    def __init__(self, timestamp: float | None) -> None:
        self.values: dict[str, float] = {}
        self.tags: dict[str, dict[str, str]] | None = None
        self.timestamp = timestamp
        self.latest = timestamp


def rows_of_metrics(sender: Sender, metrics: Sequence[Metric]) -> tuple[list[StepMetrics], Rejections]:
    """Group points by step into rows.

    A name that comes again for its step begins another row of the same key, later in sequence, so that the value
    before it goes to the row's history instead of being lost.
    """
    open_rows: dict[float, _Row] = {}
    rows: list[tuple[int, _Row]] = []
    rejected: Rejections = []
    for index, metric in enumerate(metrics):
        step, name, timestamp = metric.step, metric.name, metric.timestamp
        if step.__class__ is not int:
            step = whole_step(step)
        if step is None:
            rejected.append((index, f"step {metric.step!r} is not a whole number"))
            continue
        if timestamp is not None and not 0 <= timestamp < _SECONDS:
            timestamp = seconds_of(timestamp)
            if timestamp is None:
                rejected.append((index, f"timestamp {metric.timestamp!r} is no time since 1970, in seconds or less"))
                continue
        row = open_rows.get(step)
        if row is None or name in row.values or len(row.values) >= MAX_METRICS:
            row = open_rows[step] = _Row(timestamp)
            rows.append((int(step), row))
        row.values[name] = float(metric.value)
        if timestamp is not None and (row.latest is None or timestamp > row.latest):
            row.latest = timestamp
        if metric.tags:
            row.tags = row.tags or {}
            row.tags[name] = {str(name): str(value) for name, value in metric.tags.items()}
    return _finish(sender, rows), rejected


def rows_of_logs(sender: Sender, logs: Sequence[Log]) -> tuple[list[StepMetrics], Rejections]:
    """One row per logged dictionary; texts, lists and media in it are not metrics and are left out."""
    rows: list[tuple[int, _Row]] = []
    rejected: Rejections = []
    written = 0
    for index, log in enumerate(logs):
        step = whole_step(log.step)
        if step is None:
            rejected.append((index, f"step {log.step!r} is not a whole number"))
            continue
        try:
            values = numbers_of(log.data)
            when = _time_of(log.timestamp)
            if len(values) > len(log.data):  # names were written out for what is below them
                written += sum(map(len, values))
        except ValueError as error:
            rejected.append((index, str(error)))
            continue
        if len(values) > MAX_METRICS or written > _MAX_WRITTEN_OUT:
            what = f"a row has more than {MAX_METRICS:,} metrics" if len(values) > MAX_METRICS else _TOO_MUCH
            rejected.append((index, what))
            continue
        row = _Row(when)
        row.values = values
        rows.append((step, row))
    return _finish(sender, rows), rejected


def _time_of(timestamp: float | None) -> float | None:
    """A sender's time in seconds. Raises ValueError for what is none."""
    if timestamp is None or 0 <= timestamp < _SECONDS:
        return timestamp
    seconds = seconds_of(timestamp)
    if seconds is None:
        raise ValueError(f"timestamp {timestamp!r} is no time since 1970, in seconds or less")
    return seconds


def whole_step(step: float | None) -> int | None:
    """A step as a 64-bit integer: 0 for a missing one, None for one that is no whole number."""
    if step is None:
        return 0
    if isinstance(step, int):
        return step
    return int(step) if _is_finite(step) and step == int(step) else None


def _is_finite(number: float) -> bool:
    return -(2**63) <= number < 2**63


def _finish(sender: Sender, rows: Sequence[tuple[int, _Row]]) -> list[StepMetrics]:
    origin = sender.origin()
    default = epoch_seconds(sender.timestamp) or time.time()
    run_id = sender.run_id or ""
    return [_record(origin, run_id, default, step, row, place) for place, (step, row) in enumerate(rows)]


def _record(origin: Origin, run_id: str, default_time: float, step: int, row: _Row, place: int) -> StepMetrics:
    event_time = row.timestamp if row.timestamp is not None else default_time
    latest = row.latest if row.latest is not None else default_time
    training_step = _training_step(row.values)
    return StepMetrics(
        origin=origin,
        data_source=DATA_SOURCE,
        run_id=run_id,
        # The upstream exporter sends 0 for a step that it was not given; the training step is better than that.
        row_step=training_step if step == 0 and training_step is not None else step,
        iteration=training_step,
        event_time=event_time,
        sequence=_sequence(latest, place),
        values=row.values,
        tags=row.tags or {},
    )


def _training_step(values: Mapping[str, Any]) -> int | None:
    for name in TRAINING_STEP_METRICS:
        value = values.get(name)
        if value is not None and _is_finite(value) and value == int(value):
            return int(value)
    return None


def _sequence(timestamp: float, place: int) -> int:
    """The sender's own time in microseconds; later rows of one body are later, and the same body gives the same."""
    return int(timestamp * 1e6) + place
