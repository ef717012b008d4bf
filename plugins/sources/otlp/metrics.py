"""A request for metrics → series for remote write, and rows of the points that carry a training step."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import cramjam

from lens_core import Directory, SeriesBatch, StepMetrics
from lens_core.plugin_api.protobuf import delimited, numeric

from ..remote_write.histograms import STALE_NAN
from .exemplars import Exemplar, encode_exemplars, exemplars_by_bucket, read_exemplars
from .histograms import Part, classic_samples, encode_native, summary_samples
from .label_sets import Entry, LabelSetTable, Refused, Scope, Stream
from .resources import MAX_RANK, RANK_KEYS
from .rows import RowBuilder, name_in_row
from .settings import OtlpSettings
from .turns import AT_A_TIME, Turns
from .values import BadValue, read_attributes, whole_number

DELTA, CUMULATIVE = 1, 2
_KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
_STALE = 1
_LARGEST = 2**63 - 1
_MESSAGES = 5
_SHORT_STAMP_BYTES = 7
_MILLISECOND = 1_000_000
_DELTA = (
    "delta temporality cannot become a series: set OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative, or "
    "use the Collector's deltatocumulative processor"
)
_encode_double = struct.Struct("<d").pack


class Converted:
    """The records of one request, and what became none."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.stamps: dict[int, bytes] = {}
        self.rows = RowBuilder()
        self.turns = Turns()
        self.received = self.series = self.samples = self.histograms = self.exemplars = self.attached = 0
        self.refused: Counter[str] = Counter()
        self.messages: list[str] = []

    def refuse(self, reason: str, message: str, amount: int = 1) -> None:
        """Count points that become nothing; the first texts go into the answer."""
        self.refused[reason] += amount
        if len(self.messages) < _MESSAGES and message not in self.messages:
            self.messages.append(message)

    def find_stamp(self, nanoseconds: int) -> bytes:
        """The encoded field of a sample's time. Raises Refused."""
        stamp = self.stamps.get(nanoseconds)
        if stamp is None:
            if not nanoseconds:
                raise Refused("invalid", "a point has no time")
            stamp = self.stamps[nanoseconds] = numeric(2, nanoseconds // _MILLISECOND)
        return stamp

    def append_sample(self, entry: Entry, raw: bytes, stamp: bytes) -> None:
        """Append a series of one sample: the bytes of its value, and the encoded field of its time."""
        if len(stamp) == _SHORT_STAMP_BYTES:
            self.pieces.append(entry.head + raw + stamp)
        else:
            self.pieces.append(delimited(1, entry.labels + delimited(2, b"\x09" + raw + stamp)))
        self.series += 1
        self.samples += 1
        self.attached += entry.pod is not None

    def append_sample_with_exemplars(self, entry: Entry, raw: bytes, stamp: bytes, exemplars: bytes) -> None:
        """Append a series of one sample and the encoded exemplars that belong to it."""
        self.pieces.append(delimited(1, entry.labels + delimited(2, b"\x09" + raw + stamp) + exemplars))
        self.series += 1
        self.samples += 1
        self.attached += entry.pod is not None

    def append_histogram(self, entry: Entry, message: bytes, exemplars: bytes = b"") -> None:
        """Append a series of one native histogram."""
        self.pieces.append(delimited(1, entry.labels + exemplars + delimited(4, message)))
        self.series += 1
        self.histograms += 1
        self.attached += entry.pod is not None

    def records(self) -> list[SeriesBatch | StepMetrics]:
        """One batch of all series, and the rows."""
        rows: list[SeriesBatch | StepMetrics] = [*self.rows.finished_rows()]
        if not self.pieces:
            return rows
        body = bytes(cramjam.snappy.compress_raw(b"".join(self.pieces)))
        batch = SeriesBatch(
            body=body,
            compression="snappy",
            series=self.series,
            samples=self.samples,
            histograms=self.histograms,
            exemplars=self.exemplars,
        )
        return [batch, *rows]


class MetricsConverter:
    """Converts requests; it keeps what it has decoded of label sets."""

    def __init__(self, settings: OtlpSettings, directory: Directory) -> None:
        self._settings = settings
        self.table = LabelSetTable(settings, directory)
        self._converters: Mapping[str, Callable[[Any, Any, Mapping[str, Any], Converted, Scope], None]] = {
            "histogram": self._append_classic,
            "exponential_histogram": self._append_native,
            "summary": self._append_summary,
        }

    def convert_metrics(self, message: Any, into: Converted) -> Iterator[None]:
        """Convert a request; yields whenever others should get a turn. Raises BadRequest for too many parts."""
        self.table.follow_directory()
        into.turns.announce(message.resource_metrics)
        for resource_metrics in message.resource_metrics:
            before = len(into.pieces)
            into.turns.announce(resource_metrics.scope_metrics)
            for scope_metrics in resource_metrics.scope_metrics:
                yield from self._convert_scope(resource_metrics.resource, scope_metrics, into)
            if self._settings.target_info and len(into.pieces) > before:
                self._append_target_info(resource_metrics.resource, into)
            if into.turns.is_over():
                yield

    def _convert_scope(self, resource: bytes, scope_metrics: Any, into: Converted) -> Iterator[None]:
        turns = into.turns
        turns.announce(scope_metrics.metrics)
        try:
            scope = self.table.find_scope(resource, scope_metrics.scope)
        except BadValue as error:
            count = sum(len(_points_of(metric, metric.WhichOneof("data"))) for metric in scope_metrics.metrics)
            into.received += count
            into.refuse("invalid", str(error), count)
            return
        if turns.is_over():
            yield
        for metric in scope_metrics.metrics:
            kind = metric.WhichOneof("data")
            points = _points_of(metric, kind)
            count = len(points)
            turns.announce(points)
            into.received += count
            if count > 1:
                points = _in_order(points)
            for first in range(0, count or 1, AT_A_TIME):
                portion = points[first : first + AT_A_TIME] if count > AT_A_TIME else points
                self._convert_portion(metric, kind, portion, scope, into)
                if turns.is_over(len(portion) or 1):
                    yield
                    self.table.follow_directory()
                    scope = self.table.find_scope(resource, scope_metrics.scope)

    def _convert_portion(self, metric: Any, kind: str, points: Sequence[Any], scope: Scope, into: Converted) -> None:
        if not points:
            return
        if kind == "gauge" or kind == "sum":
            self._convert_numbers(metric, kind, points, scope, into)
        else:
            self._convert_others(metric, kind, points, scope, into)

    def _convert_numbers(self, metric: Any, kind: str, points: Sequence[Any], scope: Scope, into: Converted) -> None:
        """Points of a gauge or a sum: samples, or values of rows."""
        refused: Refused | None = None
        try:
            is_counter = kind == "sum" and metric.sum.is_monotonic
            name_kind = "counter" if is_counter else "gauge"
            if kind != "gauge":
                _check_temporality(metric, kind)
            stream = self.table.find_stream(scope, metric.name, metric.unit, name_kind)
        except Refused as error:
            refused, stream = error, Stream("", {})
        entries, epoch = stream.entries, self.table.epoch
        for point in points:
            key = tuple(point.attributes)
            entry = entries.get(key)
            try:
                if entry is None:
                    entry = self._make_entry(metric, point, key, stream, refused, into, scope)
                    if entry is None:
                        continue
                elif entry.epoch != epoch:
                    self.table.renew(entry)
                raw = STALE_NAN if point.flags & _STALE else _encode_double(number_of(point))
                stamp = into.find_stamp(point.time_unix_nano)
                if is_counter and point.exemplars:
                    into.append_sample_with_exemplars(entry, raw, stamp, encode_exemplars(_exemplars_of(point, into)))
                else:
                    into.append_sample(entry, raw, stamp)
            except Refused as error:
                into.refuse(error.reason, str(error))
            except BadValue as error:
                into.refuse("invalid", str(error))

    def _make_entry(
        self,
        metric: Any,
        point: Any,
        key: tuple[bytes, ...],
        stream: Stream,
        refused: Refused | None,
        into: Converted,
        scope: Scope,
    ) -> Entry | None:
        """The entry of a new label set; None for a point that went into a row. Raises Refused or BadValue."""
        attributes = read_attributes(key)
        step = self._pop_step(attributes)
        if step is None:
            if refused is not None:
                raise refused
            return self.table.find_entry(stream, key, attributes)
        if point.flags & _STALE:
            raise Refused("invalid", "a point of a step has no value")
        if not metric.name:
            raise Refused("invalid", "a metric has no name")
        into.find_stamp(point.time_unix_nano)
        rank = _pop_rank(attributes)
        name = name_in_row(metric.name.decode("utf-8", "replace"), attributes)
        into.rows.add_point(scope.resource, rank, step, point.time_unix_nano, name, number_of(point))
        return None

    def _pop_step(self, attributes: dict[str, Any]) -> int | None:
        """The step of a point, which is no attribute of it any more."""
        for key in self._settings.step_attributes:
            if key in attributes:
                step = whole_number(attributes[key], -_LARGEST - 1, _LARGEST)
                if step is not None:
                    del attributes[key]
                    return step
        return None

    def _convert_others(self, metric: Any, kind: str, points: Sequence[Any], scope: Scope, into: Converted) -> None:
        """Points of histograms and summaries."""
        append = self._converters[kind]
        for point in points:
            try:
                _check_temporality(metric, kind)
                into.find_stamp(point.time_unix_nano)
                append(metric, point, read_attributes(point.attributes), into, scope)
            except Refused as error:
                into.refuse(error.reason, str(error))
            except BadValue as error:
                into.refuse("invalid", str(error))

    def _append_classic(
        self, metric: Any, point: Any, attributes: Mapping[str, Any], into: Converted, scope: Scope
    ) -> None:
        self._append_parts(metric, point, attributes, classic_samples(point), into, scope)

    def _append_summary(
        self, metric: Any, point: Any, attributes: Mapping[str, Any], into: Converted, scope: Scope
    ) -> None:
        self._append_parts(metric, point, attributes, summary_samples(point), into, scope)

    def _append_parts(
        self,
        metric: Any,
        point: Any,
        attributes: Mapping[str, Any],
        parts: Sequence[Part],
        into: Converted,
        scope: Scope,
    ) -> None:
        """Append a sample for each part of a point; all of them or none. Raises Refused."""
        key, stamp = tuple(point.attributes), into.find_stamp(point.time_unix_nano)
        found = []
        for part in parts:
            stream = self.table.find_stream(scope, metric.name, metric.unit, "histogram", part.suffix)
            found.append(self.table.find_entry(stream, (key, *part.label.values()), attributes, **part.label))
        by_bucket: Mapping[int, bytes] = {}
        if metric.WhichOneof("data") == "histogram" and point.exemplars:
            by_bucket = exemplars_by_bucket(_exemplars_of(point, into), point.explicit_bounds)
        for place, (entry, part) in enumerate(zip(found, parts, strict=True)):
            raw = STALE_NAN if point.flags & _STALE else _encode_double(part.value)
            if place in by_bucket:  # the buckets come first
                into.append_sample_with_exemplars(entry, raw, stamp, by_bucket[place])
            else:
                into.append_sample(entry, raw, stamp)

    def _append_native(
        self, metric: Any, point: Any, attributes: Mapping[str, Any], into: Converted, scope: Scope
    ) -> None:
        stream = self.table.find_stream(scope, metric.name, metric.unit, "histogram")
        message = encode_native(point, point.time_unix_nano // _MILLISECOND, is_stale=bool(point.flags & _STALE))
        entry = self.table.find_entry(stream, tuple(point.attributes), attributes)
        into.append_histogram(entry, message, encode_exemplars(_exemplars_of(point, into)))

    def _append_target_info(self, raw: bytes, into: Converted) -> None:
        """Append the series that has all attributes of a resource, to be joined by `job` and `instance`."""
        try:
            resource = self.table.find_resource(raw)
        except BadValue:  # its points are refused already
            return
        if resource.info and ("job" in resource.labels or "instance" in resource.labels):
            labels = {**resource.info, **resource.labels}
            try:
                entry = self.table.encode_series("target_info", labels)
            except Refused as error:  # nothing that was sent is lost by it
                into.messages.append(f"no target_info: {error}")
                return
            into.append_sample(entry, _encode_double(1.0), into.find_stamp(_latest_of(into.stamps)))


def number_of(point: Any) -> float:
    """The number of a point. Raises Refused where it has none."""
    number: float = point.as_double
    if number or (which := point.WhichOneof("value")) == "as_double":
        return number
    if which is None:
        raise Refused("invalid", "a point has no value")
    return float(point.as_int)


def _exemplars_of(point: Any, into: Converted) -> list[Exemplar]:
    """The exemplars of a point, counted; none of one that says that there is no value."""
    if not point.exemplars or point.flags & _STALE:
        return []
    found = read_exemplars(point.exemplars)
    into.exemplars += len(found)
    return found


def _latest_of(stamps: Iterable[int]) -> int:
    """The latest time that is not in the future; a clock that is ahead must not hide later samples of `target_info`."""
    now = time.time_ns()
    return max((stamp for stamp in stamps if stamp <= now), default=now)


def _points_of(metric: Any, kind: str | None) -> Any:
    return getattr(metric, kind).data_points if kind in _KINDS else ()


def _in_order(points: Sequence[Any]) -> Sequence[Any]:
    """The points by their time: a store takes the samples of a series in no other order."""
    times = [point.time_unix_nano for point in points]
    return points if times == sorted(times) else sorted(points, key=lambda point: point.time_unix_nano)


def _pop_rank(attributes: dict[str, Any]) -> int | None:
    for key in RANK_KEYS:
        if key in attributes and (rank := whole_number(attributes[key], -1, MAX_RANK)) is not None:
            del attributes[key]
            return rank
    return None


def _check_temporality(metric: Any, kind: str) -> None:
    """Raise Refused for a metric whose points only say what was added since the one before."""
    if kind in ("gauge", "summary"):
        return
    temporality = getattr(metric, kind).aggregation_temporality
    if temporality != CUMULATIVE:
        name = metric.name[:200].decode("utf-8", "replace")
        what = _DELTA if temporality == DELTA else f"temporality {temporality} does not exist"
        raise Refused("temporality", f"{name}: {what}")
