"""From records to the intake's series (POST /api/v2/series), each encoded once; what is bad is left out singly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from lens_core import Measurement, Origin, Record, StepMetrics

from .naming import metric_name, tag
from .settings import DatadogSettings

# The intake takes points from one hour ago to ten minutes ahead. A little less, because sending takes time too.
MAX_AGE_SECONDS = 3600.0 - 30.0
MAX_AHEAD_SECONDS = 600.0 - 30.0
_TYPES = {"count": 1, "rate": 2, "gauge": 3}
# The intake's own names for units; a unit that it does not know is only text to people and is left out.
_UNITS = {
    "byte": "byte",
    "percent": "percent",
    "hour": "hour",
    "second": "second",
    "watt": "watt",
    "degree_celsius": "degree celsius",
    "byte/second": "byte/second",
    "process": "process",
    "hertz": "hertz",
}


class Point(msgspec.Struct, frozen=True):
    """A value at a second."""

    timestamp: int
    value: float


class Resource(msgspec.Struct, frozen=True):
    """What a series is about; version 2 of the intake has no field for the host."""

    name: str
    type: str


class Series(msgspec.Struct, omit_defaults=True):
    """One series of the intake's body; `type` 1 is count, 2 rate, 3 gauge."""

    metric: str
    type: int
    points: list[Point]
    tags: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = ()
    unit: str = ""


class Built(msgspec.Struct):
    """The series of a batch, and what did not become one.

    `owners` are, for every series, the indexes of its records. `rejected` are records that the intake would never
    take, with the reason; `filtered` those that had nothing to send; `dropped` are bad values of rows whose others
    are sent, by reason.
    """

    series: list[Series]
    owners: list[list[int]]
    rejected: dict[int, str]
    filtered: int
    dropped: dict[str, int]


class _Value(NamedTuple):
    name: str
    value: float
    kind: int = 3
    unit: str = ""
    tags: tuple[str, ...] = ()
    host: str = ""


class Builder:
    """Builds series with the tags that all of them carry."""

    def __init__(self, settings: DatadogSettings, common_tags: Sequence[str]) -> None:
        self._settings = settings
        self._common = tuple(clean for text in common_tags if (clean := tag(text)))

    def build(self, records: Sequence[Record], now: float) -> Built:
        """The series of these records; points of one series become one series, in their order."""
        built = Built([], [], {}, 0, {})
        places: dict[tuple[Any, ...], int] = {}
        for index, record in enumerate(records):
            at = getattr(record, "event_time", None) or now
            reason = _time_problem(at, now)
            values = list(self._values(record))
            if not values:
                built.filtered += 1
            elif reason:
                built.rejected[index] = reason
            else:
                self._add(built, places, index, values, int(at))
        return built

    def _add(self, built: Built, places: dict[tuple[Any, ...], int], index: int, values: list[_Value], at: int) -> None:
        sent = False
        reason = ""
        for value in values:
            reason = _problem(value)
            if reason:
                if len(values) > 1:
                    built.dropped[reason] = built.dropped.get(reason, 0) + 1
                continue
            sent = True
            key = (value.name, value.kind, value.tags, value.host)
            place = places.get(key)
            if place is None:
                places[key] = place = len(built.series)
                built.series.append(_series(value))
                built.owners.append([])
            built.series[place].points.append(Point(at, value.value))
            built.owners[place].append(index)
        if not sent:
            built.rejected[index] = reason

    def _values(self, record: Record) -> Iterator[_Value]:
        origin = self._common + _tags_of(record.origin)
        host = record.origin.node
        if isinstance(record, Measurement):
            if record.value is not None:
                tags = _merged(origin, record.tags)
                kind = _TYPES.get(record.kind, 3)
                yield _Value(self._name(record.name), record.value, kind, _UNITS.get(record.unit, ""), tags, host)
        elif isinstance(record, StepMetrics) and self._settings.rows:
            tags = _merged(origin, {"data_source": record.data_source, "run_id": record.run_id})
            for name, number in record.values.items():
                yield _Value(self._name(f"{self._settings.rows_prefix}.{name}"), number, 3, "", tags, host)

    def _name(self, text: str) -> str:
        return metric_name(f"{self._settings.prefix}{text}")


def _series(value: _Value) -> Series:
    resources = (Resource(value.host, "host"),) if value.host else ()
    return Series(value.name, value.kind, [], value.tags, resources, value.unit)


def _merged(tags: tuple[str, ...], more: dict[str, str]) -> tuple[str, ...]:
    added = [clean for name, text in more.items() if text and (clean := tag(f"{name}:{text}"))]
    return tuple(dict.fromkeys((*tags, *added))) if added else tags


def _tags_of(origin: Origin) -> tuple[str, ...]:
    found = {
        "workload": origin.workload_uid,
        "pod_name": origin.pod_name,
        "kube_namespace": origin.namespace,
        "rank": "" if origin.rank is None else str(origin.rank),
    }
    return tuple(tag(f"{name}:{text}") for name, text in found.items() if text)


def _time_problem(at: float, now: float) -> str:
    if not math.isfinite(at) or at < now - MAX_AGE_SECONDS:
        return "older_than_an_hour"
    return "ahead_of_time" if at > now + MAX_AHEAD_SECONDS else ""


def _problem(value: _Value) -> str:
    if not math.isfinite(value.value):
        return "not_finite"
    return "" if value.name else "no_name"
