"""Parameters and roles of the routes of Lens itself, for the OpenAPI document; a test asks each of them whether it is
so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import msgspec

from ..model.queries import Aggregate, PointField
from ..plugin_api.overview import State
from .detection import StatedDetection
from .exports import Wanted
from .page.grouping import GROUPS
from .page.triage import FLAGS, SORTS
from .parameters import MOST_BUCKETS, MOST_LAST, MOST_POINTS, Format

_TEXT = {"type": "string"}
_TIME = {
    "anyOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}],
    "description": "milliseconds since the epoch, or ISO 8601 (UTC without a zone)",
}


class Parameter(NamedTuple):
    """A query parameter: what it means, and its JSON schema."""

    description: str
    schema: Mapping[str, Any] = _TEXT


# A name means the same wherever it is taken.
PARAMETERS: Mapping[str, Parameter] = {
    "across": Parameter("of aggregate: all runs and attempts together", {"enum": ["runs"]}),
    "aggregate": Parameter(
        f"one point for each interval and run: {', '.join(get_args(Aggregate))} or a percentile such as p95;"
        " several with commas between"
    ),
    "attempt": Parameter("only this attempt", {"type": "integer", "minimum": 0}),
    "buckets": Parameter(
        "at most so many buckets of each curve: value is the mean of all points of one, beside min, max, last, count",
        {"type": "integer", "minimum": 3, "maximum": MOST_BUCKETS},
    ),
    "cluster": Parameter("the cluster that is meant; another than this daemon's has empty lists"),
    "cursor": Parameter("where to go on: next_cursor of the last answer"),
    "data_source": Parameter("only these data sources, such as wandb or wandb,log"),
    "end": Parameter("the last time, inclusive", _TIME),
    "fields": Parameter(f"what is answered beside each point, with commas between: {', '.join(get_args(PointField))}"),
    "filter": Parameter("a condition such as last.loss<2, config.lr=0.001, name~llama; repeated, all must hold"),
    "format": Parameter("how points are written; Accept says it too", {"enum": [*get_args(Format)]}),
    "framework": Parameter("only workloads that run on one of these frameworks, with commas between"),
    "group": Parameter(f"a column whose equal values stand together; of the overview {', '.join(GROUPS)}"),
    "group_by": Parameter("a curve for each rank of each run", {"enum": ["rank"]}),
    "groups": Parameter("also by what the list can be grouped", {"enum": ["true"]}),
    "interval": Parameter("of aggregate: 500ms, 30s, 5m, 1h, so many milliseconds, or so many iterations as 1000it"),
    "kind": Parameter("only this kind of record; * and ? match"),
    "last": Parameter(
        "the last so many points of each metric and run", {"type": "integer", "minimum": 1, "maximum": MOST_LAST}
    ),
    "limit": Parameter("at most so many in one answer", {"type": "integer", "minimum": 1}),
    "max_points": Parameter(
        "at most so many points of each metric, lowest and highest kept",
        {"type": "integer", "minimum": 2, "maximum": MOST_POINTS},
    ),
    "metrics": Parameter("all, or names with commas between; repeated, each is one literal name"),
    "namespace": Parameter("only workloads of this namespace; repeated, of one of them"),
    "node": Parameter("only this node; repeated, of several"),
    "order": Parameter("of time or iterations, or of sort", {"enum": ["asc", "desc"]}),
    "percentiles": Parameter(
        "of buckets: false for figures without p2 and p98, which long curves are answered much faster without",
        {"enum": ["true", "false"]},
    ),
    "pipeline": Parameter("only this pipeline; * and ? match"),
    "rank": Parameter("only this rank; -1 for rows of no rank", {"type": "integer", "minimum": -1}),
    "run_id": Parameter("only this run"),
    "search": Parameter("a part of the uid, the name, the namespace or a pod"),
    "sink": Parameter("only the dead letters of this sink"),
    "smooth": Parameter(
        "of buckets: the weight of a moving average over all points, answered as smoothed",
        {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    ),
    "sort": Parameter(f"by what a list is in order: {', '.join(SORTS)}; of runs a column such as last.loss"),
    "state": Parameter(
        f"only workloads in one of these states, with commas between: {', '.join(get_args(State))};"
        f" of the overview also {', '.join(FLAGS)}"
    ),
    "scope": Parameter(
        "cluster (the default): all daemons of a cluster together; daemon: the one that is asked",
        {"type": "string", "enum": ["cluster", "daemon"]},
    ),
    "start": Parameter("the first time, inclusive", _TIME),
    "uid": Parameter("a workload; repeated, up to 100", {"type": "array", "items": _TEXT}),
    "workload": Parameter("only this workload; * and ? match"),
}

_POINTS = (
    *("metrics", "data_source", "start", "end", "run_id", "attempt", "rank"),
    *("max_points", "last", "aggregate", "interval", "across", "fields", "order"),
)
_CURVES = ("buckets", "smooth", "percentiles", "group_by")
_PAGES = ("limit", "cursor")
_QUERIES: Mapping[str, tuple[str, ...]] = {
    "/dead-letters": ("sink",),
    "/glance": ("uid",),
    "/metrics/data": ("uid", *_POINTS, *_PAGES, "cluster", "format"),
    "/overview": ("search", "state", "namespace", "sort", "order", "group", *_PAGES),
    "/replay": ("sink",),
    "/triage": ("search", "groups"),
    "/runs": ("uid", "search", "filter", "sort", "order", "group", *_PAGES, "cluster"),
    "/status": ("scope",),
    "/tap": ("pipeline", "workload", "kind"),
    "/workloads": ("search", "framework", "state", *_PAGES, "cluster"),
    "/workloads/{uid}": ("cluster",),
    "/workloads/{uid}/attempts": ("cluster",),
    "/workloads/{uid}/detection": ("cluster",),
    "/workloads/{uid}/diagnosis": ("cluster",),
    "/workloads/{uid}/events": ("limit", "order", "cluster"),
    "/workloads/{uid}/log-tail": ("limit", "rank", "cluster"),
    "/workloads/{uid}/measurements": ("metrics", "node", "start", "end", "max_points", "cluster"),
    "/workloads/{uid}/metrics/available": ("data_source", "cluster"),
    "/workloads/{uid}/metrics/data": (*_POINTS, *_CURVES, *_PAGES, "cluster", "format"),
    "/workloads/{uid}/metrics/iteration-times": (*_POINTS, *_CURVES, *_PAGES, "cluster", "format"),
    "/workloads/{uid}/metrics/rows": (*_POINTS, *_PAGES, "cluster"),
    "/workloads/{uid}/metrics/sources": ("cluster",),
    "/workloads/{uid}/verdict": ("cluster",),
    "/workloads/{uid}/stream": ("metrics", "data_source", "run_id", "attempt", "cursor", "cluster"),
}
# Grafana's questions are bodies; what is put after the address of a data source comes with each of them.
QUESTIONS = dict.fromkeys(
    (
        "/annotations",
        "/metric-payload-options",
        "/metrics",
        "/query",
        "/search",
        "/tag-keys",
        "/tag-values",
        "/variable",
    ),
    ("cluster",),
)
_OF_METHOD: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "PUT": {},
    "DELETE": {"/workloads/{uid}/runs": ("run_id",)},
    "POST": {**_QUERIES, **QUESTIONS},
}
PREFIX = "/api/v1"
_OPEN = ("/", "/livez", "/login", "/logout", f"{PREFIX}/openapi.json", "/page/{version}/{name}", "/readyz")
_CHANGING = ("/replay", "/directory", "/workloads/{uid}", "/workloads/{uid}/detection", "/workloads/{uid}/runs")

BODIES: Mapping[tuple[str, str], type[msgspec.Struct]] = {
    ("PUT", "/workloads/{uid}/detection"): StatedDetection,
    ("POST", "/exports"): Wanted,
}


def query_of(method: str, path: str) -> tuple[str, ...]:
    """The query parameters of a route, its path without a prefix."""
    return _OF_METHOD.get(method, _QUERIES).get(path, ())


def role_of(method: str, path: str) -> str:
    """The role that a token must have for a route of Lens itself, its path with the prefix; '' for none."""
    if path in _OPEN:
        return ""
    return "admin" if path.removeprefix(PREFIX) in _CHANGING and method != "GET" else "read"
