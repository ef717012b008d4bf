"""Grafana's questions: reading them, and the shapes of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..base.errors import BadRequest
from ..base.json_items import DECODE_ERRORS
from ..model.queries import EventRow, PointColumns, PointQuery
from .checking import decode_question
from .parameters import aggregation_of, ensure_few_intervals, iso_ms, split_names
from .point_text import json_value


class Line(NamedTuple):
    """One line of a chart: a metric of an attempt of a run of a source, in the order of time."""

    metric_name: str
    data_source: str
    run_id: str
    attempt: int
    times: list[int]
    values: list[float | None]
    iterations: list[int]

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels that distinguish it from others."""
        return {"data_source": self.data_source, "run_id": self.run_id, "attempt": str(self.attempt)}


def lines_of(pieces: Iterable[PointColumns]) -> list[Line]:
    """Pieces put together line by line."""
    points: dict[tuple[str, str, str, int], list[tuple[int, int, float]]] = {}
    for piece in pieces:
        key = (piece.metric_name, piece.data_source, piece.run_id, piece.attempt)
        points.setdefault(key, []).extend(zip(piece.timestamps, piece.iterations, piece.values, strict=True))
    lines = []
    for key, found in points.items():
        found.sort(key=lambda point: point[:2])
        times, iterations, values = ([point[place] for point in found] for place in range(3))
        lines.append(Line(*key, [int(time) for time in times], [json_value(v) for v in values], iterations))  # type: ignore[arg-type]
    return lines


def title(line: Line, lines: Sequence[Line]) -> str:
    """The line's name in a legend: what it shares with all others is left out."""
    parts = [line.metric_name]
    if len({other.run_id for other in lines}) > 1:
        parts.append(f"run {line.run_id}")
    if len({other.attempt for other in lines}) > 1:
        parts.append(f"attempt {line.attempt}")
    if len({other.data_source for other in lines}) > 1:
        parts.append(line.data_source)
    return ", ".join(parts)


def series(lines: Sequence[Line], ref_id: str) -> list[dict[str, Any]]:
    """`{target, refId, datapoints: [[value, milliseconds]]}` for each line."""
    return [
        {
            "target": title(line, lines),
            "refId": ref_id,
            "datapoints": [[value, time] for value, time in zip(line.values, line.times, strict=True)],
        }
        for line in lines
    ]


def frames(lines: Sequence[Line], ref_id: str) -> list[dict[str, Any]]:
    """A data frame for each line, with its labels."""
    return [
        {
            "name": title(line, lines),
            "refId": ref_id,
            "fields": [
                {"name": "time", "type": "time", "values": line.times},
                {"name": line.metric_name, "type": "number", "values": line.values, "labels": line.labels},
                {"name": "iteration", "type": "number", "values": line.iterations},
            ],
        }
        for line in lines
    ]


def table(lines: Sequence[Line], ref_id: str) -> dict[str, Any]:
    """One table: time, iteration, run, attempt, source and a column for each metric."""
    metrics = list(dict.fromkeys(line.metric_name for line in lines))
    heads = [("Time", "time"), ("iteration", "number"), ("run_id", "string"), ("attempt", "number")]
    heads += [("data_source", "string"), *((metric, "number") for metric in metrics)]
    names = ("time", "iteration", "run_id", "attempt", "data_source", *metrics)
    return {
        "type": "table",
        "refId": ref_id,
        "columns": [{"text": text, "type": kind} for text, kind in heads],
        "rows": [[row.get(name) for name in names] for row in wide_rows(lines)],
    }


def wide_rows(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One row for each iteration of a run's attempt: `{time, iteration, run_id, attempt, data_source, loss, …}`.

    A metric that is called like one of the first five is left out of rows. In the order of time.
    """
    rows: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for line in lines:
        for time, iteration, value in zip(line.times, line.iterations, line.values, strict=True):
            key = (line.data_source, line.run_id, line.attempt, iteration)
            row = rows.get(key)
            if row is None:
                row = rows[key] = {
                    "time": time,
                    "iteration": iteration,
                    "run_id": line.run_id,
                    "attempt": line.attempt,
                    "data_source": line.data_source,
                }
            row.setdefault(line.metric_name, value)
    return sorted(rows.values(), key=lambda row: (row["time"], row["iteration"]))


def events_as_annotations(events: Sequence[EventRow], start_ms: int | None, end_ms: int | None) -> list[dict[str, Any]]:
    """Events within a range as annotations, oldest first."""
    found = []
    for event in events:
        if (start_ms is None or event.timestamp >= start_ms) and (end_ms is None or event.timestamp <= end_ms):
            at = "" if event.iteration is None else f"iteration {event.iteration}"
            rank = "" if event.rank is None else f"rank {event.rank}"
            details = ", ".join(f"{name}: {value}" for name, value in event.details.items())
            found.append(
                {
                    "time": event.timestamp,
                    "title": event.type,
                    "text": "; ".join(part for part in (at, rank, event.pod_name, event.node, details[:500]) if part),
                    "tags": [event.type, *([event.data_source] if event.data_source else [])],
                }
            )
    return sorted(found, key=lambda annotation: annotation["time"])


DEFAULT_POINTS = 1000
MOST_POINTS = 20_000
MOST_TARGETS = 100
MOST_POINTS_OF_ANSWER = 1_000_000
_NAMES = ("workload_uid", "cluster", "data_source", "run_id", "attempt", "aggregate", "interval")


class Target(msgspec.Struct):
    """One line of a panel's query; `payload` is what the plugin's editor holds, an object or its text."""

    target: str = ""
    ref_id: str = msgspec.field(default="", name="refId")
    type: str = "timeseries"
    hide: bool = False
    payload: Any = None
    data: Any = None


class Range(msgspec.Struct):
    """ISO 8601, as Grafana sends them."""

    start: str = msgspec.field(default="", name="from")
    end: str = msgspec.field(default="", name="to")


class Filter(msgspec.Struct):
    """An ad hoc filter of a dashboard."""

    key: str = ""
    operator: str = "="
    value: str = ""


class Query(msgspec.Struct):
    """The body of POST /query; `variables` is the seeds' own field."""

    targets: list[Target] = []
    range: Range = msgspec.field(default_factory=Range)
    max_data_points: int | None = msgspec.field(default=None, name="maxDataPoints")
    filters: list[Filter] = msgspec.field(default_factory=list, name="adhocFilters")
    other_filters: list[Filter] = msgspec.field(default_factory=list, name="filters")
    scoped_vars: dict[str, Any] = msgspec.field(default_factory=dict, name="scopedVars")
    seed_variables: dict[str, Any] = msgspec.field(default_factory=dict, name="variables")

    def settings_of(self, target: Target) -> dict[str, str]:
        """Workload, source and so on of a target: its own payload first, then filters, then variables."""
        found: dict[str, str] = {}
        for source in (variables(self.seed_variables), variables(self.scoped_vars), self._filters()):
            found.update(source)
        found.update(variables(as_object(target.payload)))
        found.update(variables(as_object(target.data)))
        return found

    def _filters(self) -> dict[str, str]:
        return {f.key: f.value for f in (*self.other_filters, *self.filters) if f.operator in ("=", "==")}

    def make_point_query(self, target: Target) -> PointQuery:
        """The points that a target asks for. Raises BadRequest."""
        settings = self.settings_of(target)
        uid = settings.get("workload_uid", "").strip()
        if not uid:
            raise BadRequest("workload_uid is required: in the target's payload, a filter or a variable")
        names, interval = (settings.get(name, "").strip().lower() for name in ("aggregate", "interval"))
        if "," in names:
            raise BadRequest("aggregate of a target is one; take a target for each")
        aggregation = aggregation_of(names, interval)
        ensure_few_intervals(aggregation, milliseconds(self.range.start), milliseconds(self.range.end))
        wanted = min(MOST_POINTS, max(2, self.max_data_points or DEFAULT_POINTS))
        return PointQuery(
            workload_uid=uid,
            metrics=split_names(target.target),
            data_source=settings.get("data_source", "").strip(),
            start_ms=milliseconds(self.range.start),
            end_ms=milliseconds(self.range.end),
            run_id=settings.get("run_id") or None,
            attempt=_parse_integer(settings.get("attempt", "")),
            max_points=None if aggregation.aggregate else wanted,
            **aggregation._asdict(),
        )


def cluster_of(asked: Mapping[str, Any]) -> str:
    """The cluster that a question is about, '' for none: in its payload, its annotation's query, or a variable."""
    annotation = as_object(asked.get("annotation"))
    places = (asked.get("payload"), annotation.get("query"), asked.get("variables"), asked.get("scopedVars"))
    return next((found for place in places if (found := variables(as_object(place)).get("cluster"))), "")


def decode_request_body(body: bytes, kind: type[Any]) -> Any:
    """A body; an empty one is `{}`. Raises BadRequest."""
    return decode_question(body, kind, strict=False)


def as_object(payload: Any) -> dict[str, Any]:
    """A payload as an object; the editor of older plugins holds it as text."""
    if isinstance(payload, str) and payload.strip().startswith("{"):
        try:
            payload = msgspec.json.decode(payload)
        except DECODE_ERRORS:
            raise BadRequest("the target's payload is no JSON object") from None
    return payload if isinstance(payload, dict) else {}


def variables(given: Mapping[str, Any]) -> dict[str, str]:
    """Known variables that have a value; Grafana's own are `{"text", "value"}`."""
    found = {}
    for name in _NAMES:
        value = given.get(name)
        value = value.get("value") if isinstance(value, Mapping) else value
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, str | int) and str(value).strip():
            found[name] = str(value)
    return found


def _parse_integer(text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdigit() or len(text) > 9:
        raise BadRequest(f"attempt must be a whole number, not {text[:50]!r}")
    return int(text)


def milliseconds(text: str) -> int | None:
    """ISO 8601, or milliseconds since the epoch, as milliseconds; None for no time. Raises BadRequest."""
    text = text.strip()
    if not text:
        return None
    if text.lstrip("-").isdigit() and len(text) < 17:
        return int(text)
    return iso_ms("range", text)
