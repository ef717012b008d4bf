"""GET /api/v1/workloads/{uid}/measurements: hosts and GPUs of a workload, by time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..model.queries import PointQuery, RunSummary, measured_uid
from ..model.records import Origin
from ..plugin_api.store import Store
from .auth import require_role
from .errors import json_response
from .parameters import ensure_answerable, integer, is_elsewhere, metric_names, time_ms, workload_uid
from .point_text import special_name
from .state import ApiState

MOST_PLACES = 16
MOST_SERIES_POINTS = 2000
_POINTS = 200
_EVENTS = 200
_SHORTEST_INTERVAL_MS = 1000
# A job that logged within this time may still run, and its machines are shown until now.
_RECENT_MS = 600_000
_MARGIN_MS = 30_000
_AGGREGATES = ("mean", "min", "max")


class Place(NamedTuple):
    """Something that was measured: a node, a pod, or the workload by itself, and its uid in the store."""

    kind: str
    name: str
    uid: str


class MeasuredSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one measurement of one place, as columns; means of equal spans of time, by name where not finite.

    `place` is the kind of what was measured: node, pod or workload; `node` its name.
    """

    place: str
    node: str
    name: str
    tags: dict[str, str]
    timestamps: list[int]
    values: list[float | str]
    min: list[float | str]
    max: list[float | str]


class MeasurementRoutes:
    """The measurements of the machines of a workload."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        """One path; it needs the role read."""
        return [Route("/workloads/{uid:path}/measurements", self.measurements, methods=["GET"])]

    async def measurements(self, request: Request) -> Response:
        """Measurements of the hosts and GPUs that a workload ran on, by time; `metrics`, `node`, `start`, `end`."""
        require_role(request, self._state, "read")
        uid = workload_uid(request)
        most = integer(request, "max_points", minimum=2, maximum=MOST_SERIES_POINTS) or _POINTS
        wanted, nodes = metric_names(request), request.query_params.getlist("node")
        start, end = time_ms(request, "start"), time_ms(request, "end")
        empty: dict[str, Any] = {
            "workload_uid": uid,
            "start": start,
            "end": end,
            "interval_ms": 0,
            "nodes": [],
            "series": [],
        }
        if is_elsewhere(request, self._state.cluster_name):
            return json_response(empty)
        store = self._state.required_store()
        detail = await store.workload(uid)
        if detail is None:
            return json_response(empty)
        first, last = _span_of(detail.runs, start, end)
        interval = max(_SHORTEST_INTERVAL_MS, -(-(last - first) // most))
        known = await self._places(store, uid, detail.runs)
        chosen = [place for place in known if not nodes or place.name in nodes][:MOST_PLACES]
        query = PointQuery(
            workload_uid=uid,
            aggregate=",".join(_AGGREGATES),
            interval_ms=interval,
            is_across_runs=True,
            start_ms=first,
            end_ms=last,
        )
        ensure_answerable(store, query, "json")
        found = await asyncio.gather(*(_series_of(store, query, place, wanted) for place in chosen))
        return json_response(
            {
                **empty,
                "start": first,
                "end": last,
                "interval_ms": interval,
                "nodes": [place.name for place in known if place.kind == "node"],
                "series": [series for of_place in found for series in of_place],
            }
        )

    async def _places(self, store: Store, uid: str, runs: Sequence[RunSummary]) -> list[Place]:
        """The nodes that its rows, its pods and its events name, then its pods and itself."""
        pods, events = await store.pods(uid), await store.events(uid, limit=_EVENTS)
        ranked = sorted(runs, key=lambda run: (run.rank is None, run.rank or 0))
        named = (*(run.node for run in ranked), *(pod.node for pod in pods), *(event.node for event in events))
        nodes = dict.fromkeys(node for node in named if node)
        origins = [
            *(("node", node, Origin(node=node)) for node in nodes),
            ("workload", uid, Origin(workload_uid=uid)),
            *(("pod", pod.name, Origin(pod_uid=pod.uid, namespace=pod.namespace, pod_name=pod.name)) for pod in pods),
        ]
        return [Place(kind, name, measured_uid(origin)) for kind, name, origin in origins]


def _span_of(runs: Iterable[RunSummary], start: int | None, end: int | None) -> tuple[int, int]:
    """The time that was asked for, else the time of the runs."""
    now = round(time.time() * 1000)
    seen = [run for run in runs if run.rows]
    first = min((run.first_seen for run in seen), default=now) - _MARGIN_MS
    newest = max((run.last_seen for run in seen), default=now)
    last = now if now - newest < _RECENT_MS else newest + _MARGIN_MS
    first, last = first if start is None else start, last if end is None else end
    return first, max(first, last)


async def _series_of(
    store: Store, query: PointQuery, place: Place, wanted: Sequence[str] | None
) -> list[MeasuredSeries]:
    """All series of a place whose name, with or without its tags, is wanted."""
    names = [info.name for info in await store.available_metrics(place.uid, "")]
    chosen = tuple(name for name in names if wanted is None or name in wanted or split_series(name)[0] in wanted)
    if not chosen:
        return []
    columns: dict[str, dict[int, dict[str, float | str]]] = {}
    async for piece in store.metric_columns(msgspec.structs.replace(query, workload_uid=place.uid, metrics=chosen)):
        points = columns.setdefault(piece.metric_name, {})
        for kind, at, value in zip(piece.extras["aggregate"], piece.timestamps, piece.values, strict=True):
            points.setdefault(at, {})[kind] = value if math.isfinite(value) else special_name(value)
    return [_measured_series(place, name, points) for name, points in columns.items()]


def _measured_series(place: Place, name: str, points: dict[int, dict[str, float | str]]) -> MeasuredSeries:
    short, tags = split_series(name)
    times = sorted(points)
    means, lows, highs = ([points[at][kind] for at in times] for kind in _AGGREGATES)
    return MeasuredSeries(
        place=place.kind, node=place.name, name=short, tags=tags, timestamps=times, values=means, min=lows, max=highs
    )


def split_series(name: str) -> tuple[str, dict[str, str]]:
    """The metric and the tags of a series such as `gpu.used_pct{gpu=0}`."""
    short, brace, told = name.partition("{")
    if not brace or not told.endswith("}"):
        return name, {}
    pairs = (pair.partition("=") for pair in told[:-1].split(","))
    return short, {key: value for key, _, value in pairs if key}
