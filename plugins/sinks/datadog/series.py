"""Makes Datadog's series of records."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from lens_core import Measurement, Origin, Record, Secret, StepMetrics


class DatadogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the datadog sink.

    `api_key`: DD_API_KEY when left out, else it comes from AWS. `aws_secret`: a secret of AWS (a JSON object with
    DD_API_KEY, or the key as plain text). `aws_region`: where that secret is. `site`: DD_SITE, else datadoghq.com;
    others are us3.datadoghq.com, datadoghq.eu …
    `url`: another intake or a proxy, instead of `https://api.SITE`.

    `tags`: on every metric, as `key:value`. `env`: a tag `env:…`; DD_ENV when left out. `prefix`: before every name.
    `rows`: send training rows too, each value as the gauge `ROWS_PREFIX.NAME`; every run is a custom metric of its
    own then. `rows_prefix`: what names of rows begin with. `compression`: gzip, zstd or none. `timeout_seconds`: for
    one request. `max_records`: when a batch is full. `max_payload_bytes`: the limit of the intake, compressed;
    `max_body_bytes`: the limit decompressed; `max_points`: points per payload.
    """

    api_key: Secret | None = None
    aws_secret: str = ""
    aws_region: str = ""
    site: str = ""
    url: str = ""
    tags: list[str] = []
    env: str = ""
    prefix: str = ""
    rows: bool = False
    rows_prefix: str = "lens.training"
    compression: Literal["gzip", "zstd", "none"] = "gzip"
    timeout_seconds: Annotated[float, Meta(gt=0)] = 30.0
    max_records: Annotated[int, Meta(ge=1)] = 5_000
    max_payload_bytes: Annotated[int, Meta(ge=1024, le=512_000)] = 512_000
    max_body_bytes: Annotated[int, Meta(ge=1024, le=5_242_880)] = 5_242_880
    max_points: Annotated[int, Meta(ge=1)] = 10_000


MAX_LENGTH = 200

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]")
_BEFORE_NAMES = re.compile(r"^[^A-Za-z]+")
_NOT_IN_TAGS = re.compile(r"[^\w\-:./]")
_BEFORE_TAGS = re.compile(r"^[\W\d_]+")
_UNDERSCORES = re.compile(r"__+")


@lru_cache(maxsize=20_000)
def metric_name(text: str) -> str:
    """A metric's name: ASCII letters, digits, `_` and `.`, a letter first, at most 200; '' when nothing is left."""
    return _BEFORE_NAMES.sub("", _NOT_IN_NAMES.sub("_", text))[:MAX_LENGTH]


@lru_cache(maxsize=20_000)
def tag(text: str) -> str:
    """A tag: lower case, letters, digits and `_-:./`, a letter first, at most 200; '' when nothing is left."""
    clean = _UNDERSCORES.sub("_", _NOT_IN_TAGS.sub("_", text.lower()))
    return _BEFORE_TAGS.sub("", clean)[:MAX_LENGTH].rstrip("_")


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
    """The resource of a series; version 2 of the intake has no field for the host."""

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
        self._last_origin: Origin | None = None
        self._last_tags = self._common

    def build(self, records: Sequence[Record], now: float) -> Built:
        """The series of these records; points of one series become one series, in their order."""
        built = Built([], [], {}, 0, {})
        places: dict[tuple[Any, ...], int] = {}
        oldest, newest = now - MAX_AGE_SECONDS, now + MAX_AHEAD_SECONDS
        for index, record in enumerate(records):
            assert isinstance(record, (Measurement, StepMetrics))
            values = self._record_values(record)
            at = record.event_time or now
            if not values:
                built.filtered += 1
            elif not oldest <= at <= newest:
                built.rejected[index] = "ahead_of_time" if at > newest else "older_than_an_hour"
            else:
                self._add_all(built, places, index, values, int(at))
        return built

    def _add_all(
        self, built: Built, places: dict[tuple[Any, ...], int], index: int, values: Sequence[_Value], at: int
    ) -> None:
        sent = False
        reason = ""
        for value in values:
            if not math.isfinite(value.value) or not value.name:
                reason = "no_name" if math.isfinite(value.value) else "not_finite"
                if len(values) > 1:
                    built.dropped[reason] = built.dropped.get(reason, 0) + 1
                continue
            sent = True
            key = (value.name, value.kind, value.tags, value.host)
            place = places.get(key)
            if place is None:
                places[key] = len(built.series)
                built.series.append(_series(value, at))
                built.owners.append([index])
            else:
                built.series[place].points.append(Point(at, value.value))
                built.owners[place].append(index)
        if not sent:
            built.rejected[index] = reason

    def _record_values(self, record: Measurement | StepMetrics) -> Sequence[_Value]:
        host = record.origin.node
        if isinstance(record, Measurement):
            if record.value is None:
                return ()
            tags = _merged(self._tags_of(record.origin), tuple(record.tags.items()))
            kind, unit = _TYPES.get(record.kind, 3), _UNITS.get(record.unit, "")
            return (_Value(self._metric_name(record.name), record.value, kind, unit, tags, host),)
        if not self._settings.rows:
            return ()
        more = (("data_source", record.data_source), ("run_id", record.run_id))
        tags = _merged(self._tags_of(record.origin), more)
        prefix = self._settings.rows_prefix
        return [
            _Value(self._metric_name(f"{prefix}.{name}"), number, 3, "", tags, host)
            for name, number in record.values.items()
        ]

    def _tags_of(self, origin: Origin) -> tuple[str, ...]:
        """The common tags and those of the origin; records of one batch mostly share one."""
        if origin is not self._last_origin:
            found = {
                "workload": origin.workload_uid,
                "pod_name": origin.pod_name,
                "kube_namespace": origin.namespace,
                "rank": "" if origin.rank is None else str(origin.rank),
            }
            self._last_tags = _merged(self._common, tuple(found.items()))
            self._last_origin = origin
        return self._last_tags

    def _metric_name(self, text: str) -> str:
        return metric_name(self._settings.prefix + text)


def _series(value: _Value, at: int) -> Series:
    resources = (Resource(value.host, "host"),) if value.host else ()
    return Series(value.name, value.kind, [Point(at, value.value)], value.tags, resources, value.unit)


@lru_cache(maxsize=20_000)
def _merged(tags: tuple[str, ...], more: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    added = [clean for name, text in more if text and (clean := tag(f"{name}:{text}"))]
    return tuple(dict.fromkeys((*tags, *added))) if added else tags
