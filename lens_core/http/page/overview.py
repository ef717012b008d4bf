"""GET /api/v1/overview, /triage and /glance: the list of workloads, and what its lines show beyond the names."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...base.errors import BadRequest, NotFound
from ...plugin_api.overview import Overview, overview, state_of
from ..auth import require_role
from ..errors import json_response
from ..parameters import integer, is_elsewhere, ordered_descending, workload_uid
from ..state import ApiState
from .summary import TrainingSummaries
from .triage import Triage, TriageQuery, offset_of, triage_json

MAX_GLANCES = 100


class OverviewRoutes:
    """The list, failed and stalled first; glances of what is on the screen."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._summaries = TrainingSummaries(state)
        self._triage = Triage()

    def routes(self) -> list[Route]:
        """All routes."""
        return [
            Route("/overview", self.overview, methods=["GET"]),
            Route("/triage", self.triage, methods=["GET"]),
            Route("/glance", self.glance, methods=["GET"]),
            Route("/workloads/{uid:path}/attempts", self.attempts, methods=["GET"]),
            Route("/workloads/{uid:path}/verdict", self.verdict, methods=["GET"]),
        ]

    async def overview(self, request: Request) -> Response:
        """The workloads with their state, those that need attention first, or filtered, sorted and grouped."""
        require_role(request, self._state, "read")
        parameters = request.query_params
        limit = integer(request, "limit", minimum=1, maximum=1000) or 50
        query = TriageQuery.of_parameters(
            parameters.get("search", "").strip(),
            parameters.get("state", ""),
            [name for name in parameters.getlist("namespace") if name],
            parameters.get("sort", "").strip(),
            parameters.get("group", "").strip(),
            is_descending=ordered_descending(request, otherwise=False),
        )
        groups: dict[str, Any] = {}
        store, cursor, now_ms = self._state.required_store(), parameters.get("cursor", ""), round(time.time() * 1000)
        if query.is_plain:
            page = await overview(store, search=query.search, limit=limit, cursor=cursor)
            lines = [_overview_json(line, now_ms) for line in page.workloads]
            total, following = page.total, page.next_cursor
        else:
            first = offset_of(cursor)
            found = await self._triage.lines_of(store, query)
            described = [triage_json(line) for line in found[first : first + limit]]
            if query.group:
                by_value = await self._triage.group_lines(store, found, query.group)
                groups = {"groups": [group.describe() for group in by_value]}
                placed = [(group.value, line) for group in by_value for line in group.lines]
                described = [{**triage_json(line), "group": value} for value, line in placed[first : first + limit]]
            lines, total = described, len(found)
            following = f"at:{first + limit}" if first + limit < len(found) else ""
        return json_response(
            {"workloads": lines, "total_count": total, "next_cursor": following or None, "time": now_ms, **groups}
        )

    async def triage(self, request: Request) -> Response:
        """Count the workloads that failed, hang, are slow, silent or not finite; `search`, `groups`."""
        require_role(request, self._state, "read")
        search = request.query_params.get("search", "").strip()
        with_groups = request.query_params.get("groups", "").strip()
        if with_groups not in ("", "true"):
            raise BadRequest(f"groups must be true, or left out, not {with_groups[:50]!r}")
        store = self._state.required_store()
        found = await self._triage.counts(store, search)
        return json_response(
            {**found, "groups": await self._triage.group_choices(store, search)} if with_groups else found
        )

    async def glance(self, request: Request) -> Response:
        """Summaries of workloads for the list: framework, loss, throughput, memory, time left; `uid`, repeated."""
        require_role(request, self._state, "read")
        uids = request.query_params.getlist("uid")
        if not uids or len(uids) > MAX_GLANCES:
            raise BadRequest(f"uid must be given, at most {MAX_GLANCES} times")
        return json_response({"glances": await self._summaries.summarise(uids)})

    async def verdict(self, request: Request) -> Response:
        """The verdict on a workload: state, first cause, rank and node, last loss, last checkpoint, steps lost."""
        require_role(request, self._state, "read")
        uid = workload_uid(request)
        elsewhere = is_elsewhere(request, self._state.cluster_name)
        found = None if elsewhere else await self._summaries.verdict(uid)
        if found is None:
            raise NotFound(f"nothing is known about workload {uid!r}")
        return json_response({"workload_uid": uid, **msgspec.to_builtins(found)})

    async def attempts(self, request: Request) -> Response:
        """The attempts of a workload: why each ended, and the steps that were lost with it."""
        require_role(request, self._state, "read")
        uid = workload_uid(request)
        elsewhere = is_elsewhere(request, self._state.cluster_name)
        found = [] if elsewhere else await self._summaries.attempts(uid)
        return json_response({"workload_uid": uid, "attempts": found})


def _overview_json(line: Overview, now_ms: int) -> dict[str, Any]:
    summary: dict[str, Any] = msgspec.to_builtins(line.summary)
    return {
        **summary,
        "state": state_of(line, now_ms),
        "target_iteration": line.target_iteration,
        "event": line.event or None,
        "event_at": line.event_at,
        "event_iteration": line.event_iteration,
    }
