"""Requests of Grafana's JSON data sources: bodies of SimpleJson and simPod's JSON plugin, read leniently; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..base.errors import BadRequest
from ..base.json_items import DECODE_ERRORS
from ..model.queries import PointQuery
from .checking import decode_question
from .parameters import aggregation_of, ensure_few_intervals, iso_ms, split_names

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
