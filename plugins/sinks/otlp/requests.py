"""Records → requests for metrics and for logs, built as messages: the SDK holds one value of a series, not a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics

from lens_core import ATTENTION_EVENTS, Directory, Event, Measurement, Origin, Record, StepMetrics, workload_of

from ...sources.otlp.lens_records import EVENT_PREFIX, PREFIX, ROW_NAME, TAGS
from .naming import Name, plain_name, training_metric

_NANOSECONDS = 1_000_000_000
_LATEST = 2**64 - 1
_SCOPE = InstrumentationScope(name="lens")
_INFO, _WARN, _ERROR = 9, 13, 17
_WARNINGS = frozenset({"loss_not_finite", "step_skipped", "stalled"})
# The step of a row as a gauge of its own: as an attribute it would make a series per step.
_STEP, _ITERATION = Name("training.step", "{step}"), Name("training.iteration", "{iteration}")
_ROW_FIELDS = ("data_source", "run_id", "session", "attempt", "iteration", "row_step", "sequence")
_EVENT_FIELDS = ("data_source", "run_id", "session", "attempt", "iteration")


class Builder:
    """Makes requests of records; `rows` says whether rows become metrics, logs or both."""

    def __init__(self, rows: str, events: bool, directory: Directory, clock: Callable[[], float] = time.time) -> None:
        self._rows_as_metrics = rows in ("metrics", "both")
        self._rows_as_logs = rows in ("logs", "both")
        self._events = events
        self._directory = directory
        self._clock = clock

    def metrics_of(self, records: Iterable[Record]) -> MetricsData:
        """A request with the gauges of rows and measurements."""
        resources: dict[tuple[object, ...], _Gauges] = {}
        for record in records:
            if isinstance(record, Measurement) and record.value is not None:
                gauges = self._gauges_of(resources, record)
                name = Name(plain_name(record.name), record.unit)
                gauges.append_point(name, record.value, self._stamp(record.event_time), record.tags)
            elif isinstance(record, StepMetrics) and self._rows_as_metrics:
                self._append_row(self._gauges_of(resources, record), record)
        return MetricsData(resource_metrics=[gauges.message for gauges in resources.values()])

    def logs_of(self, records: Iterable[Record]) -> LogsData:
        """A request with the log records of events, and of rows where they are wanted."""
        resources: dict[tuple[object, ...], ResourceLogs] = {}
        for record in records:
            if isinstance(record, Event) and self._events:
                made = self._event_record(record)
            elif isinstance(record, StepMetrics) and self._rows_as_logs:
                made = self._row_record(record)
            else:
                continue
            key = _key_of(record.origin)
            if key not in resources:
                resources[key] = ResourceLogs()
                resources[key].resource.attributes.extend(self._resource_attributes(record.origin))
                resources[key].scope_logs.add(scope=_SCOPE)
            resources[key].scope_logs[0].log_records.append(made)
        return LogsData(resource_logs=list(resources.values()))

    def is_wanted(self, record: Record) -> bool:
        """Whether anything is sent of a record."""
        if isinstance(record, Event):
            return self._events
        return isinstance(record, StepMetrics) or (isinstance(record, Measurement) and record.value is not None)

    def _gauges_of(self, resources: dict[tuple[object, ...], _Gauges], record: Record) -> _Gauges:
        key = _key_of(record.origin)
        if key not in resources:
            resources[key] = _Gauges(self._resource_attributes(record.origin))
        return resources[key]

    def _append_row(self, gauges: _Gauges, row: StepMetrics) -> None:
        stamp = self._stamp(row.event_time)
        told = {"lens.run.id": row.run_id, "lens.data_source": row.data_source}
        common = {key: text for key, text in told.items() if text}
        if row.attempt is not None:
            common["lens.attempt"] = str(row.attempt)
        for metric, value in row.values.items():
            name = training_metric(metric)
            attributes = {**common, "lens.metric": metric, **row.tags.get(metric, {})}
            gauges.append_point(name, value * name.factor, stamp, attributes)
        for name, step in ((_STEP, row.row_step), (_ITERATION, row.iteration)):
            if step is not None:
                gauges.append_point(name, step, stamp, common)

    def _row_record(self, row: StepMetrics) -> LogRecord:
        made = self._log_record(ROW_NAME, row.event_time, row.values, _INFO)
        made.attributes.extend(_fields_of(row, _ROW_FIELDS))
        if row.tags:
            made.attributes.append(KeyValue(key=TAGS, value=_any_value(row.tags)))
        return made

    def _event_record(self, event: Event) -> LogRecord:
        severity = _ERROR if event.type in ATTENTION_EVENTS else _INFO
        severity = _WARN if event.type in _WARNINGS else severity
        made = self._log_record(EVENT_PREFIX + event.type, event.event_time, event.details, severity)
        made.attributes.extend(_fields_of(event, _EVENT_FIELDS))
        return made

    def _log_record(self, name: str, moment: float | None, body: Mapping[str, Any], severity: int) -> LogRecord:
        stamp = self._stamp(moment)
        made = LogRecord(event_name=name, time_unix_nano=stamp, observed_time_unix_nano=stamp, body=_any_value(body))
        made.severity_number = severity  # type: ignore[assignment]
        if moment is not None:  # nanoseconds do not hold every moment that a float does
            made.attributes.append(KeyValue(key=f"{PREFIX}event_time", value=_any_value(moment)))
        return made

    def _stamp(self, moment: float | None) -> int:
        """A time in nanoseconds, at least 1: 0 would mean that there is none."""
        seconds = self._clock() if moment is None else moment
        return min(max(1, round(seconds * _NANOSECONDS)), _LATEST)

    def _resource_attributes(self, origin: Origin) -> Sequence[KeyValue]:
        pod = self._directory.find_pod(origin) if origin.pod_uid or origin.pod_name else None
        workload = workload_of(pod) if pod is not None else None
        uid = origin.workload_uid or (workload.uid if workload is not None else "")
        name = workload.name if workload is not None and workload.uid == uid else ""
        owner = origin.pod_name or origin.pod_uid or uid
        told: dict[str, Any] = {
            "service.name": name or uid or origin.pod_name or "lens",
            "service.instance.id": owner if origin.rank is None else f"{owner}/{origin.rank}",
            "lens.workload.uid": uid,
            "lens.workload.name": name,
            "k8s.cluster.name": origin.cluster,
            "k8s.namespace.name": origin.namespace,
            "k8s.node.name": origin.node,
            "k8s.pod.name": origin.pod_name,
            "k8s.pod.uid": origin.pod_uid,
            "k8s.container.name": origin.container,
            "dl.rank": origin.rank,
            "dl.local_rank": origin.local_rank,
            "dl.world_size": origin.world_size,
        }
        told |= {f"k8s.pod.label.{label}": text for label, text in origin.labels.items()}
        return [KeyValue(key=key, value=_any_value(value)) for key, value in told.items() if value not in ("", None)]


class _Gauges:
    """The gauges of one resource under construction."""

    def __init__(self, attributes: Sequence[KeyValue]) -> None:
        self.message = ResourceMetrics()
        self.message.resource.attributes.extend(attributes)
        self._scope = self.message.scope_metrics.add(scope=_SCOPE)
        self._metrics: dict[tuple[str, str], Metric] = {}

    def append_point(self, name: Name, value: float, stamp: int, attributes: Mapping[str, str]) -> None:
        """Append a point; whole numbers stay whole."""
        metric = self._metrics.get((name.name, name.unit))
        if metric is None:
            metric = self._metrics[name.name, name.unit] = self._scope.metrics.add(name=name.name, unit=name.unit)
        point = metric.gauge.data_points.add(time_unix_nano=stamp)
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        for key, text in attributes.items():
            point.attributes.add(key=key).value.string_value = text


def _key_of(origin: Origin) -> tuple[object, ...]:
    return (
        *(origin.cluster, origin.workload_uid, origin.namespace, origin.node, origin.pod_name, origin.pod_uid),
        *(origin.container, origin.rank, origin.local_rank, origin.world_size, *sorted(origin.labels.items())),
    )


def _fields_of(record: Record, names: Sequence[str]) -> Iterable[KeyValue]:
    for name in names:
        value = getattr(record, name)
        if value not in ("", None):
            yield KeyValue(key=PREFIX + name, value=_any_value(value))


def _any_value(value: Any) -> AnyValue:
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, Mapping):
        pairs = [KeyValue(key=str(key), value=_any_value(item)) for key, item in value.items()]
        return AnyValue(kvlist_value=KeyValueList(values=pairs))
    return AnyValue(array_value=ArrayValue(values=[_any_value(item) for item in value]))
