"""The query routes: what was logged, asked of the store."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ..base.errors import BadRequest, NotFound
from ..model.queries import MetricPoint, PointColumns, PointQuery, WorkloadPage, as_columns
from ..plugin_api.store import Store
from .auth import require_role
from .curve_options import CurveOptions
from .errors import JSON, json_response
from .exports import ExportRoutes
from .grafana import GrafanaRoutes
from .headline import with_headline_loss
from .over_ranks import CurvesOverRanks, with_summaries
from .parameters import (
    Format,
    answer_format,
    curve_options,
    ensure_answerable,
    integer,
    is_elsewhere,
    ordered_descending,
    point_query,
    point_query_of,
    workload_uid,
)
from .point_arrow import ARROW, stream_arrow
from .point_text import CSV, stream_csv, stream_json
from .query_workloads import WorkloadFilter, WorkloadLines, describe_runs
from .state import ApiState
from .stream import StreamRoutes

if TYPE_CHECKING:
    from .curves import Curves

_BELOW_WORKLOADS = (
    *("metrics/sources", "metrics/available", "metrics/data", "metrics/iteration-times", "events", "detection"),
    *("stream", "diagnosis", "runs", "verdict"),
)
_NOTHING_REMOVED = {"attempts_removed": 0, "rows_removed": 0, "events_removed": 0}

Endpoint = Callable[[Request], Awaitable[Response]]
MOST_WORKLOADS = 100
Points = Callable[[PointQuery], AsyncIterator[PointColumns]]


class QueryRoutes:
    """The endpoints; `routes` has them with their paths below `/api/v1`."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._lines = WorkloadLines(state)

    def routes(self) -> list[Route]:
        """All query routes. A uid may hold slashes: a pod without a workload is asked for as namespace/name."""
        table: list[tuple[str, Endpoint]] = [
            ("/workloads", self.workloads),
            ("/workloads/{uid:path}/metrics/sources", self.sources),
            ("/workloads/{uid:path}/metrics/available", self.available),
            ("/metrics/data", self.data_of_several),
            ("/workloads/{uid:path}/metrics/data", self.data),
            ("/workloads/{uid:path}/metrics/iteration-times", self.iteration_times),
            ("/workloads/{uid:path}/events", self.events),
            ("/workloads/{uid:path}", self.workload),
        ]
        found = [Route(path, self._readable(endpoint), methods=["GET"]) for path, endpoint in table]
        state = self._state
        others = [*StreamRoutes(state).routes(), *GrafanaRoutes(state).routes(), *ExportRoutes(state).routes()]
        deleting = [
            Route("/workloads/{uid:path}/runs", self.delete_run, methods=["DELETE"]),
            Route("/workloads/{uid:path}", self.delete_workload, methods=["DELETE"]),
        ]
        return [*others, *found, *deleting]

    def _readable(self, endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            require_role(request, self._state, "read")
            return await endpoint(request)

        return guarded

    async def sources(self, request: Request) -> Response:
        """Data sources of a workload, with their numbers of rows."""
        uid = workload_uid(request)
        store = self._state.required_store()

        async def answer_sources() -> Response:
            found = [] if self._is_elsewhere(request) else await store.metric_sources(uid)
            answer = {"workload_uid": uid, "data_sources": found, "total_count": len(found)}
            return json_response({**answer, **await self._choices(request, PointQuery(workload_uid=uid))})

        return await self._with_etag(request, uid, answer_sources)

    async def available(self, request: Request) -> Response:
        """Metrics of a workload, with their sources and numbers of points."""
        uid = workload_uid(request)
        data_source = request.query_params.get("data_source", "").strip()
        store = self._state.required_store()

        async def answer_available() -> Response:
            found = [] if self._is_elsewhere(request) else await store.available_metrics(uid, data_source)
            return json_response({"workload_uid": uid, "metrics": found, "total_count": len(found)})

        return await self._with_etag(request, uid, answer_available)

    async def data(self, request: Request) -> Response:
        """The points of metrics."""
        query = point_query(request)
        store = self._state.required_store()

        async def answer_data() -> Response:
            asked = query if self._is_elsewhere(request) else await with_headline_loss(store, query)
            return await self._points(request, asked, store.metric_columns, await self._choices(request, query))

        return await self._with_etag(request, query.workload_uid, answer_data)

    async def _choices(self, request: Request, query: PointQuery) -> dict[str, Any]:
        """The field that says which of several trackers of one framework is answered with, where there is a choice."""
        if self._is_elsewhere(request):
            return {}
        found = await self._state.required_store().source_choices(query)
        return {"echoes": found} if found else {}

    async def data_of_several(self, request: Request) -> Response:
        """The points of metrics of several workloads, `uid` repeated: aggregated over all of their runs, or all."""
        uids = list(dict.fromkeys(uid.strip() for uid in request.query_params.getlist("uid") if uid.strip()))
        asked = point_query_of(request, uids[0] if uids else "")
        is_aggregated = asked.aggregate is not None
        query = msgspec.structs.replace(asked, others=tuple(uids[1:]), is_across_runs=is_aggregated)
        store = self._state.required_store()
        wanted, is_elsewhere = answer_format(request), self._is_elsewhere(request)
        if not uids or len(uids) > MOST_WORKLOADS:
            raise BadRequest(f"uid must be given, at most {MOST_WORKLOADS} times")
        if is_aggregated:
            found = as_columns(_nothing()) if is_elsewhere else store.metric_columns(query)
            return await self._answer_points(query, wanted, found)
        if query.limit is not None:
            raise BadRequest("limit goes with aggregate, or with one workload; leave it out")
        found = as_columns(_nothing()) if is_elsewhere else _one_by_one(store, asked, uids)
        return await self._answer_points(query, wanted, found, columns=["workload_uid"])

    async def iteration_times(self, request: Request) -> Response:
        """The time of each iteration; `runs` says how far each attempt is and when it will be done."""
        query = point_query(request)
        store = self._state.required_store()

        async def answer_times() -> Response:
            runs = [] if self._is_elsewhere(request) else describe_runs(await store.run_progress(query))
            return await self._points(request, query, store.iteration_columns, {"runs": runs})

        return await self._with_etag(request, query.workload_uid, answer_times)

    async def _points(
        self, request: Request, query: PointQuery, points: Points, more: Mapping[str, Any] | None = None
    ) -> Response:
        options, wanted = curve_options(request, query), answer_format(request)
        over_ranks = CurvesOverRanks()
        if self._is_elsewhere(request) or options.is_plain:
            if query.max_points is not None and wanted in ("json", "columns"):
                query = with_summaries(query, query.max_points)
            found = as_columns(_nothing()) if self._is_elsewhere(request) else points(query)
            return await self._answer_points(query, wanted, over_ranks.noted(found), more, (), over_ranks.described)
        curves = self._curves(query, lambda asked: over_ranks.noted(points(asked)), options)

        def describe_curves() -> dict[str, Any]:
            return {**({"series": curves.series} if curves.has_series else {}), **over_ranks.described()}

        return await self._answer_points(query, wanted, curves.pieces(), more, curves.columns, describe_curves)

    def _curves(self, query: PointQuery, points: Points, options: CurveOptions) -> Curves:
        try:
            from .curves import Curves
        except ImportError:
            raise BadRequest('buckets need numpy on the daemon\'s machine: pip install "lens-agent[server]"') from None
        return Curves(self._state.required_store(), query, points, options)

    async def _answer_points(
        self,
        query: PointQuery,
        wanted: Format,
        found: AsyncIterator[PointColumns],
        more: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
        tail: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Response:
        columns = [*query.extra_columns, *columns]
        ensure_answerable(self._state.required_store(), query, wanted, columns)
        # The first piece is fetched before the status is sent, so that a failing store is a 503 and not a torn 200.
        pieces = _chained(await anext(found, None), found)
        headers = {}
        if query.limit is not None and wanted in ("csv", "arrow"):
            # A page is small enough to be looked at whole, and only a header can say where the next one begins.
            collected = [piece async for piece in pieces]
            headers = _page_headers(collected[-1]) if collected else {}
            pieces = _listed(collected)
        if wanted == "csv":
            return StreamingResponse(stream_csv(pieces, columns), media_type=CSV, headers=headers)
        if wanted == "arrow":
            return StreamingResponse(stream_arrow(pieces), media_type=ARROW, headers=headers)
        body = stream_json(_head(query, more), pieces, tail, in_columns=wanted == "columns")
        return StreamingResponse(body, media_type=JSON, headers=headers)

    async def workloads(self, request: Request) -> Response:
        """The workloads, those seen last first; `search`, `framework`, `state`, `limit`, `cursor`."""
        limit = integer(request, "limit", minimum=1, maximum=1000) or 100
        parameters = request.query_params
        wanted = WorkloadFilter.of(parameters.get("framework", ""), parameters.get("state", ""))
        search, cursor = parameters.get("search", "").strip(), parameters.get("cursor", "")
        page = WorkloadPage([], total=0)
        if not self._is_elsewhere(request):
            page = await self._lines.page(search, limit, cursor, wanted)
        lines = await self._lines.of(page.workloads)
        return json_response({"workloads": lines, "total_count": page.total, "next_cursor": page.next_cursor or None})

    async def workload(self, request: Request) -> Response:
        """One workload: its framework, how far it is, what it said last, its runs and attempts."""
        uid = workload_uid(request)
        store = self._state.required_store()

        async def answer_workload() -> Response:
            found = None if self._is_elsewhere(request) else await store.workload(uid)
            if found is None:
                raise NotFound(f"nothing is known about workload {uid!r}{_near_route(uid)}")
            (line,) = await self._lines.of([found.summary])
            return json_response({**line, "runs": found.runs})

        return await self._with_etag(request, uid, answer_workload)

    async def delete_workload(self, request: Request) -> Response:
        """Remove a workload with all of its runs, events and evidence; what arrives afterwards is stored anew."""
        require_role(request, self._state, "admin")
        uid = workload_uid(request)
        removed = await self._delete(uid, None)
        if removed is None:
            raise NotFound(f"nothing is known about workload {uid!r}")
        return json_response({"success": True, "workload_uid": uid, **removed})

    async def _delete(self, uid: str, run_id: str | None) -> dict[str, int] | None:
        """First what waits, or it would be stored after the deletion; None when there was nothing anywhere."""
        store = self._state.required_store()
        waited = {} if self._state.erase is None else await self._state.erase(uid, run_id)
        stored = await (store.delete_workload(uid) if run_id is None else store.delete_run(uid, run_id))
        if stored is None and not any(waited.values()):
            return None
        return {**_NOTHING_REMOVED, **(stored or {}), **waited}

    async def delete_run(self, request: Request) -> Response:
        """Remove one run of a workload, which `run_id` names; its events and evidence go with it."""
        require_role(request, self._state, "admin")
        uid = workload_uid(request)
        run_id = request.query_params.get("run_id")
        if run_id is None:
            raise BadRequest("run_id is required; to delete all runs, DELETE the workload")
        removed = await self._delete(uid, run_id)
        if removed is None:
            raise NotFound(f"workload {uid!r} has no run {run_id!r}")
        return json_response({"success": True, "workload_uid": uid, "run_id": run_id, **removed})

    async def events(self, request: Request) -> Response:
        """The events of a workload, newest first; with `order=asc` the newest `limit` in the order of time."""
        uid = workload_uid(request)
        limit = integer(request, "limit", minimum=1, maximum=10_000) or 1000
        is_descending = ordered_descending(request, otherwise=True)
        store = self._state.required_store()

        async def answer_events() -> Response:
            found = [] if self._is_elsewhere(request) else await store.events(uid, limit=limit)
            found = found if is_descending else found[::-1]
            total = len(found) if len(found) < limit else await store.count_events(uid)
            return json_response({"workload_uid": uid, "events": found, "total_count": total})

        return await self._with_etag(request, uid, answer_events)

    def _is_elsewhere(self, request: Request) -> bool:
        return is_elsewhere(request, self._state.cluster_name)

    async def _with_etag(self, request: Request, uid: str, answer: Callable[[], Awaitable[Response]]) -> Response:
        """The answer, or 304. The version is read first: a write in between makes an answer newer than its ETag."""
        version = await self._state.required_store().version(uid)
        if version == "none":  # only the directory knows it, or nobody; neither says when that changes
            return await answer()
        asked = f"{version} {request.url.path}?{request.url.query} {request.headers.get('accept', '')}"
        etag = f'W/"{hashlib.sha256(asked.encode()).hexdigest()[:32]}"'
        wanted = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept"}
        if etag in wanted or "*" in wanted:
            return Response(status_code=304, headers=headers)
        response = await answer()
        response.headers.update(headers)
        return response


def _head(query: PointQuery, more: Mapping[str, Any] | None) -> dict[str, Any]:
    uids = [query.workload_uid, *query.others]
    head: dict[str, Any] = {"workload_uids": uids} if query.others else {"workload_uid": query.workload_uid}
    if query.data_source:
        head["data_source"] = query.data_source
    return {**head, **(more or {})}


def _page_headers(last: PointColumns) -> dict[str, str]:
    """Return the headers with the fields that JSON has at its end."""
    headers = {"X-Next-Cursor": last.next_cursor}
    return headers if last.total_count is None else {**headers, "X-Total-Count": str(last.total_count)}


async def _nothing() -> AsyncIterator[list[MetricPoint]]:
    no_pieces: list[list[MetricPoint]] = []
    for piece in no_pieces:
        yield piece


async def _one_by_one(store: Store, query: PointQuery, uids: Sequence[str]) -> AsyncGenerator[PointColumns, None]:
    """All points of one workload after those of another, each beside the workload's uid."""
    for uid in uids:
        asked = await with_headline_loss(store, msgspec.structs.replace(query, workload_uid=uid))
        found = _chained(None, store.metric_columns(asked))
        async with aclosing(found):
            async for piece in found:
                yield msgspec.structs.replace(piece, extras={"workload_uid": [uid] * len(piece), **piece.extras})


async def _chained(first: PointColumns | None, rest: AsyncIterator[PointColumns]) -> AsyncGenerator[PointColumns, None]:
    """All pieces; however it ends, the store's own generator is closed, and its connection given back."""
    try:
        if first is not None:
            yield first
        async for piece in rest:
            yield piece
    finally:
        close = getattr(rest, "aclose", None)
        if close is not None:
            await close()


async def _listed(pieces: Sequence[PointColumns]) -> AsyncGenerator[PointColumns, None]:
    for piece in pieces:
        yield piece


def _near_route(uid: str) -> str:
    """The route that was perhaps meant: a uid may hold slashes, so a wrong path below a workload looks like a uid."""
    name, _, rest = uid.partition("/")
    near = get_close_matches(rest, _BELOW_WORKLOADS, 1) if rest else []
    return f", and the path is no route; did you mean /api/v1/workloads/{name}/{near[0]}?" if near else ""
