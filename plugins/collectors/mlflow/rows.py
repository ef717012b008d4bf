"""Values of an MLflow run → rows: one for each step and time, the same however the values were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lens_core import Origin, StepMetrics
from lens_core.plugin_api.encoding import MAX_METRICS, MAX_NAME_LENGTH

DATA_SOURCE = "mlflow"
# MLflow's own metrics of the machine; their steps count samples.
SYSTEM_PREFIX = "system/"
# Values that were logged at one time are told apart by the last digits of a row's sequence.
_PER_MS = 1_000
_LARGEST = 2**63 - 1
_LAST_SECOND = 253_402_300_799


class Value(NamedTuple):
    """One value of a metric at a step; `number` is its place among those of the same metric, step and time."""

    key: str
    step: int
    timestamp_ms: int
    number: int
    value: float


def rows_of_values(origin: Origin, run_id: str, values: Iterable[Value]) -> Iterator[StepMetrics]:
    """Yield the rows of a run's values.

    The sequence of a row depends on its time alone, so that a value that is read again, in whichever company, changes
    nothing. Values of one step and other times become rows of the same key, which the store merges.
    """
    rows: dict[tuple[int, int, int, int], dict[str, float]] = {}
    for value in values:
        if abs(value.step) > _LARGEST or len(value.key) > MAX_NAME_LENGTH:
            continue  # MLflow itself takes neither
        part = 0
        while True:
            row = rows.setdefault((value.step, value.timestamp_ms, min(value.number, _PER_MS - 1), part), {})
            if len(row) < MAX_METRICS or value.key in row:
                break
            part += 1
        row[value.key] = value.value
    for (step, timestamp_ms, number, _), found in rows.items():
        yield StepMetrics(
            origin=origin,
            data_source=DATA_SOURCE,
            echo_of=DATA_SOURCE,
            run_id=run_id,
            session=run_id,
            row_step=step,
            values=found,
            event_time=timestamp_ms / 1000 if 0 < timestamp_ms <= _LAST_SECOND * 1000 else None,
            sequence=sequence_of(timestamp_ms, number),
        )


def sequence_of(timestamp_ms: int, number: int) -> int:
    """The order of a value among those of its step; times that a job gave in another unit keep theirs."""
    sequence = timestamp_ms * _PER_MS + min(number, _PER_MS - 1)
    return sequence if abs(sequence) <= _LARGEST else max(-_LARGEST, min(timestamp_ms, _LARGEST))
