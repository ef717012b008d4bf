"""Series of training rows, and their names."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from lens_core import Directory, Event, Measurement, Origin, StepMetrics, workload_of
from lens_core.plugin_api.protobuf import delimited, numeric

PREFIX = "lens_training_"


class Name(NamedTuple):
    """The metric's name without prefix, and what its value is multiplied with to be in the unit of the name."""

    suffix: str
    factor: float = 1.0


_LOSS = Name("loss")
_RATE = Name("learning_rate")
TABLE: Mapping[str, Name] = {
    "loss": _LOSS,
    "lm_loss": _LOSS,
    "train_loss": _LOSS,
    "train/loss": _LOSS,
    "training/loss": _LOSS,
    "eval_loss": Name("eval_loss"),
    "eval/loss": Name("eval_loss"),
    "val_loss": Name("eval_loss"),
    "validation/loss": Name("eval_loss"),
    "lr": _RATE,
    "learning_rate": _RATE,
    "train/lr": _RATE,
    "train/learning_rate": _RATE,
    "grad_norm": Name("grad_norm"),
    "train/grad_norm": Name("grad_norm"),
    "tflops": Name("tflops_per_gpu"),
    "tokens_per_gpu": Name("tokens_per_second_per_gpu"),
    "samples_per_second": Name("samples_per_second"),
    "mfu": Name("model_flops_utilization_percent"),
    "elapsed_time_per_iteration_ms": Name("iteration_seconds", 0.001),
    "mem_usage": Name("memory_used_gigabytes"),
    "mem_free": Name("memory_free_gigabytes"),
    "mem_total": Name("memory_total_gigabytes"),
    "mem_usage_ratio": Name("memory_used_percent"),
    "global_batch_size": Name("global_batch_size"),
    "consumed_samples": Name("consumed_samples"),
    "consumed_tokens": Name("consumed_tokens"),
    "loss_scale": Name("loss_scale"),
    "num_zeros": Name("gradient_zeros"),
    "epoch": Name("epoch"),
    "target_iteration": Name("target_iteration"),
    "current_iteration": Name("iteration"),
    "skipped_iterations_number": Name("skipped_iterations"),
    "nan_iterations_number": Name("nan_iterations"),
}
_OTHER = re.compile(r"[^a-zA-Z0-9_]+")


@lru_cache(maxsize=20_000)
def training_name(metric: str) -> tuple[str, float]:
    """The Prometheus name of a training metric, and the factor of its value."""
    found = TABLE.get(metric) or Name(plain(metric).lower() or "value")
    return PREFIX + found.suffix, found.factor


@lru_cache(maxsize=20_000)
def plain(name: str) -> str:
    """A name of nothing but letters, digits and underscores that begins with no digit."""
    text = _OTHER.sub("_", name).strip("_")
    return f"_{text}" if text[:1].isdigit() else text


_CACHED = 50_000
RUN_INFO = f"{PREFIX}run_info"
# The time of the newest event; its label `type` names the type.
EVENT_TIME = f"{PREFIX}event_timestamp_seconds"


class Series(NamedTuple):
    """A label set, and both forms of it: the fields of a TimeSeries, and `{a="b"}` of the text format."""

    labels: Mapping[str, str]
    fields: bytes
    text: str

    @property
    def name(self) -> str:
        """The metric's name."""
        return self.labels["__name__"]

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Series:
        """With its labels in order, without those that have no name or no value."""
        wire = sorted((label, value) for label, value in labels.items() if label and value)
        encoded = [delimited(1, delimited(1, label.encode()) + delimited(2, value.encode())) for label, value in wire]
        shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in wire if label != "__name__")
        return cls(dict(wire), b"".join(encoded), f"{{{shown}}}" if shown else "")


class Point(NamedTuple):
    """One value; `stamp` in milliseconds. `slot` is what a scraper sees one value of."""

    series: Series
    value: float
    stamp: int
    slot: bytes


class TrainingSeries:
    """Makes points of records; remembers label sets until the directory changes."""

    def __init__(self, directory: Directory, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._index = directory.index
        self._known: dict[tuple[object, ...], Series] = {}
        self._owners: dict[tuple[object, ...], dict[str, str]] = {}

    def make_points(self, records: Iterable[object]) -> Iterator[Point]:
        """The points of training rows, events and measurements; other records have none."""
        if self._directory.index is not self._index or len(self._known) > _CACHED:
            self._index = self._directory.index
            self._known.clear()
            self._owners.clear()
        for record in records:
            if isinstance(record, StepMetrics):
                yield from self._of_row(record)
            elif isinstance(record, Event):
                yield self._of_event(record)
            elif isinstance(record, Measurement) and record.value is not None:
                yield self._of_measurement(record, record.value)

    def _of_row(self, row: StepMetrics) -> Iterator[Point]:
        stamp = self._stamp(row.event_time)
        owner = _owner(row.origin, row.data_source)
        for metric, value in row.values.items():
            name, factor = training_name(metric)
            series = self._series(owner, row.origin, name, {"metric": metric, **row.tags.get(metric, {})})
            yield Point(series, value if factor == 1.0 else value * factor, stamp, series.fields)
        steps = {"step": row.row_step, "iteration": row.iteration, "attempt": row.attempt}
        for name, number in steps.items():
            if number is not None:
                series = self._series(owner, row.origin, PREFIX + name, {})
                yield Point(series, float(number), stamp, series.fields)
        if row.run_id:
            slot = self._series(owner, row.origin, RUN_INFO, {})
            yield Point(self._series(owner, row.origin, RUN_INFO, {"run_id": row.run_id}), 1.0, stamp, slot.fields)

    def _of_event(self, event: Event) -> Point:
        owner = _owner(event.origin, event.data_source)
        series = self._series(owner, event.origin, EVENT_TIME, {"type": event.type})
        stamp = self._stamp(event.event_time)
        return Point(series, stamp / 1000, stamp, series.fields)

    def _of_measurement(self, record: Measurement, value: float) -> Point:
        owner = _owner(record.origin, "")
        series = self._series(owner, record.origin, plain(record.name), record.tags)
        return Point(series, value, self._stamp(record.event_time), series.fields)

    def _stamp(self, event_time: float | None) -> int:
        return round((self._clock() if event_time is None else event_time) * 1000)

    def _series(self, owner: tuple[object, ...], origin: Origin, name: str, labels: Mapping[str, str]) -> Series:
        key = (owner, name, *labels.items())
        known = self._known.get(key)
        if known is None:
            owned = self._owners.get(owner)
            if owned is None:
                owned = self._owners[owner] = self._labels_of(origin, str(owner[-1]))
            extra = {plain(label): value for label, value in labels.items()}
            known = self._known[key] = Series.from_labels({**extra, **owned, "__name__": name})
        return known

    def _labels_of(self, origin: Origin, data_source: str) -> dict[str, str]:
        pod = self._directory.find_pod(origin) if origin.pod_uid or origin.pod_name else None
        workload = workload_of(pod) if pod is not None else None
        ours = workload is not None and origin.workload_uid in ("", workload.uid)
        labels = {
            "cluster": origin.cluster,
            "namespace": origin.namespace,
            "node": origin.node,
            "pod_name": origin.pod_name,
            "pod_uid": origin.pod_uid,
            "workload_uid": workload.uid if workload is not None and ours else origin.workload_uid,
            "workload_name": workload.name if workload is not None and ours else "",
            "rank": "" if origin.rank is None else str(origin.rank),
            "data_source": data_source,
        }
        return {label: value for label, value in labels.items() if value}


def _owner(origin: Origin, data_source: str) -> tuple[object, ...]:
    return (
        origin.cluster,
        origin.workload_uid,
        origin.namespace,
        origin.node,
        origin.pod_name,
        origin.pod_uid,
        origin.rank,
        data_source,
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def time_series(points: Iterable[Point]) -> list[bytes]:
    """Points as messages TimeSeries: one for each series, its samples in the order of time, the last of each time."""
    found: dict[bytes, dict[int, float]] = {}
    for point in points:
        found.setdefault(point.series.fields, {})[point.stamp] = point.value
    return [
        fields + b"".join([delimited(2, _sample(samples[stamp], stamp)) for stamp in sorted(samples)])
        for fields, samples in found.items()
    ]


def _sample(value: float, stamp: int) -> bytes:
    return b"\x09" + struct.pack("<d", value) + numeric(2, stamp)
