"""Grafana's JSON data sources: the endpoints of simPod's JSON plugin and of SimpleJson, below `/api/v1`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..base.errors import BadRequest
from ..model.queries import PointColumns, PointQuery
from ..plugin_api.store import Store
from .auth import require_role
from .checking import read_question
from .errors import json_response
from .grafana_query import (
    DEFAULT_POINTS,
    MOST_POINTS_OF_ANSWER,
    MOST_TARGETS,
    Query,
    Target,
    as_object,
    cluster_of,
    decode_request_body,
    events_as_annotations,
    frames,
    lines_of,
    milliseconds,
    series,
    table,
    wide_rows,
)
from .headline import with_headline_loss
from .parameters import ensure_answerable, is_another, is_elsewhere, point_query
from .state import ApiState

Endpoint = Callable[[Request], Awaitable[Response]]
Question = Callable[[dict[str, Any]], Awaitable[Response]]
_KEYS = ("workload_uid", "cluster", "data_source", "run_id")
_WORKLOADS = 100
_NEWEST = 5
_VARIABLE = re.compile(r"\s*(workloads|metrics|sources|runs)\b[\s(:]*(.*?)\)?\s*", re.DOTALL)


class GrafanaRoutes:
    """The endpoints; asking needs the role read."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        """All of them; they take bodies although they only ask, as Grafana's protocol has it."""
        posts: dict[str, Question] = {
            "/metrics": self.metrics,
            "/search": self.list_names,
            "/metric-payload-options": self.payload_options,
            "/variable": self.variable,
            "/annotations": self.annotations,
            "/tag-keys": self.tag_keys,
            "/tag-values": self.tag_values,
        }
        found = [Route(path, self._readable(self._asking(it)), methods=["POST"]) for path, it in posts.items()]
        found.append(Route("/query", self._readable(self.query), methods=["POST"]))
        found.append(Route("/workloads/{uid:path}/metrics/rows", self._readable(self.get_rows), methods=["GET"]))
        return [Route("/", self._readable(self.test), methods=["GET"]), *found]

    def _readable(self, endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            require_role(request, self._state, "read")
            if request.method == "POST" and is_elsewhere(request, self._state.cluster_name):
                return json_response([])
            return await endpoint(request)

        return guarded

    def _asking(self, question: Question) -> Endpoint:
        """An endpoint that is asked with an object; about another cluster there is nothing to say."""

        @wraps(question)
        async def endpoint(request: Request) -> Response:
            given = decode_request_body(await read_question(request), dict)
            elsewhere = is_another(cluster_of(given), self._state.cluster_name)
            return json_response([]) if elsewhere else await question(given)

        return endpoint

    async def test(self, request: Request) -> Response:
        """Answer the request of `Save & test`."""
        self._state.required_store()
        return json_response({"status": "ok"})

    async def query(self, request: Request) -> Response:
        """The points of a panel: `timeseries`, `table` or `frame` for each target."""
        asked: Query = decode_request_body(await read_question(request), Query)
        store = self._state.required_store()
        if len(asked.targets) > MOST_TARGETS:
            raise BadRequest(f"a question has at most {MOST_TARGETS} targets, not {len(asked.targets)}")
        answer: list[dict[str, Any]] = []
        left = MOST_POINTS_OF_ANSWER
        for target in asked.targets:
            if target.hide or not target.target.strip() or self._is_elsewhere(asked, target):
                continue
            if await request.is_disconnected():
                return Response(status_code=204)
            wanted = asked.make_point_query(target)
            ensure_answerable(store, wanted, "json")
            pieces = await collect_points(store, wanted, left)
            left -= sum(map(len, pieces))
            lines = lines_of(pieces)
            if target.type == "table":
                answer.append(table(lines, target.ref_id))
            elif target.type in ("frame", "dataframe"):
                answer += frames(lines, target.ref_id)
            else:
                answer += series(lines, target.ref_id)
        return json_response(answer)

    def _is_elsewhere(self, asked: Query, target: Target) -> bool:
        return is_another(asked.settings_of(target).get("cluster", ""), self._state.cluster_name)

    async def get_rows(self, request: Request) -> Response:
        """Wide rows, `[{time, iteration, loss, accuracy, …}]`; the parameters of metrics/data, max_points 1000."""
        query = point_query(request)
        store = self._state.required_store()
        if len(query.aggregates) > 1:
            raise BadRequest("aggregate is one here, because a row has one column for each metric; ask for each alone")
        if query.fields:
            raise BadRequest("fields have no place in rows of several metrics; ask metrics/data for them")
        ensure_answerable(store, query, "json")
        if query.max_points is None and query.aggregate is None and query.last is None:
            query = msgspec.structs.replace(query, max_points=DEFAULT_POINTS)
        if is_elsewhere(request, self._state.cluster_name):
            return json_response([])
        pieces = await collect_points(store, query, MOST_POINTS_OF_ANSWER)
        more = {"X-Next-Cursor": pieces[-1].next_cursor} if pieces and pieces[-1].next_cursor else {}
        rows = wide_rows(lines_of(pieces))
        return json_response(rows[::-1] if query.is_descending else rows, headers=more)

    async def metrics(self, asked: dict[str, Any]) -> Response:
        """simPod: which metrics there are, and what else a target may say."""
        uid = str(as_object(asked.get("payload")).get("workload_uid", "") or "")
        payloads = [
            {"name": "workload_uid", "label": "Workload", "type": "select", "reloadMetric": True, "width": 40},
            {"name": "data_source", "label": "Source", "type": "select"},
            {"name": "run_id", "label": "Run", "type": "select"},
            {"name": "aggregate", "label": "Aggregate", "type": "input", "placeholder": "mean, min, max, …"},
            {"name": "interval", "label": "Interval", "type": "input", "placeholder": "1m"},
        ]
        names = await self._metric_names(uid)
        return json_response([{"label": name, "value": name, "payloads": payloads} for name in names])

    async def list_names(self, asked: dict[str, Any]) -> Response:
        """SimpleJson: names of metrics; `workloads`, `metrics UID`, `sources UID`, `runs UID` list those."""
        target = str(asked.get("target") or "")
        if _VARIABLE.fullmatch(target):
            return json_response([value for _, value in await self._listed(target)])
        return json_response([name for name in await self._metric_names("") if target.lower() in name.lower()])

    async def payload_options(self, asked: dict[str, Any]) -> Response:
        """simPod: what a field of a target's payload can be."""
        uid = str(as_object(asked.get("payload")).get("workload_uid", "") or "")
        found = await self._filter_values(str(asked.get("name", "")), uid)
        return json_response([{"label": label, "value": value} for label, value in found])

    async def variable(self, asked: dict[str, Any]) -> Response:
        """simPod: the values of a dashboard's variable, `workloads`, `metrics UID`, `sources UID` or `runs UID`."""
        payload = asked.get("payload")
        given = as_object(payload)
        target = str(given.get("target", "") or "") if given else str(payload or "")
        if not _VARIABLE.fullmatch(target):
            raise BadRequest("the target of a variable is workloads, metrics UID, sources UID or runs UID")
        if given.get("workload_uid"):
            target = f"{target} {given['workload_uid']}"
        return json_response([{"__text": text, "__value": value} for text, value in await self._listed(target)])

    async def annotations(self, asked: dict[str, Any]) -> Response:
        """SimpleJson: a workload's events; the annotation's query is its uid, or `{"workload_uid", "types": []}`."""
        annotation = as_object(asked.get("annotation"))
        wanted = annotation.get("query") or annotation.get("target") or ""
        given = as_object(wanted) or as_object(asked.get("variables"))
        uid = str(given.get("workload_uid", "") or wanted).strip()
        if not uid:
            raise BadRequest("workload_uid is required: as the annotation's query")
        types = set(given.get("types") or ())
        events = await self._state.required_store().events(uid, limit=10_000)
        range_ = as_object(asked.get("range"))
        start, end = (milliseconds(str(range_.get(name, "") or "")) for name in ("from", "to"))
        chosen = [event for event in events if not types or event.type in types]
        return json_response(
            [{"annotation": annotation, **found} for found in events_as_annotations(chosen, start, end)]
        )

    async def tag_keys(self, asked: dict[str, Any]) -> Response:
        """List the keys of ad hoc filters."""
        return json_response([{"type": "string", "text": key} for key in _KEYS])

    async def tag_values(self, asked: dict[str, Any]) -> Response:
        """The values of one of them; sources and runs are those of the workloads seen last."""
        key = str(asked.get("key", ""))
        if key == "cluster":
            return json_response([{"text": self._state.cluster_name}])
        return json_response([{"text": value} for _, value in await self._filter_values(key, "")])

    async def _listed(self, target: str) -> list[tuple[str, str]]:
        matched = _VARIABLE.fullmatch(target)
        assert matched is not None  # looked at by the caller
        kind, uid = matched[1], matched[2].strip()
        if kind == "metrics":
            return [(name, name) for name in await self._metric_names(uid)]
        return await self._filter_values(
            {"workloads": "workload_uid", "sources": "data_source", "runs": "run_id"}[kind], uid
        )

    async def _filter_values(self, key: str, uid: str) -> list[tuple[str, str]]:
        """List the values of a filter or of a payload's field, each with its label."""
        store = self._state.required_store()
        if key == "workload_uid":
            page = await store.workloads(limit=_WORKLOADS)
            return [(f"{w.name} ({w.workload_uid})", w.workload_uid) for w in page.workloads]
        found: dict[str, None] = {}
        for one in await _chosen(store, uid):
            if key == "data_source":
                found.update(dict.fromkeys(source.name for source in await store.metric_sources(one)))
            elif key == "run_id" and (detail := await store.workload(one)) is not None:
                found.update(dict.fromkeys(run.run_id for run in detail.runs))
        return [(value, value) for value in found]

    async def _metric_names(self, uid: str) -> list[str]:
        store = self._state.required_store()
        names = {info.name for one in await _chosen(store, uid) for info in await store.available_metrics(one, "")}
        return sorted(names)


async def collect_points(store: Store, query: PointQuery, most: int) -> list[PointColumns]:
    """The points of a query, the loss under either of its names. Raises BadRequest for more than so many."""
    pieces: list[PointColumns] = []
    count = 0
    found = store.metric_columns(await with_headline_loss(store, query))
    try:
        async for piece in found:
            count += len(piece)
            if count > most:
                raise BadRequest(
                    f"the answer has more than {MOST_POINTS_OF_ANSWER} points;"
                    " ask for fewer metrics, a longer interval or a smaller max_points"
                )
            pieces.append(piece)
    finally:
        close = getattr(found, "aclose", None)
        if close is not None:  # gives the store's connection back at once
            await close()
    return pieces


async def _chosen(store: Store, uid: str) -> list[str]:
    """The workload, or without one the few that were seen last."""
    return [uid] if uid else [w.workload_uid for w in (await store.workloads(limit=_NEWEST)).workloads]
