"""GET /api/v1/overview and /api/v1/glance: the list of workloads, and what its lines show beyond the names."""

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
from ..parameters import integer, is_elsewhere, workload_uid
from ..state import ApiState
from .summary import TrainingSummaries

MAX_GLANCES = 100


class OverviewRoutes:
    """The list, failed and stalled first; glances of what is on the screen."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._summaries = TrainingSummaries(state)

    def routes(self) -> list[Route]:
        """All routes."""
        return [
            Route("/overview", self.overview, methods=["GET"]),
            Route("/glance", self.glance, methods=["GET"]),
            Route("/workloads/{uid:path}/verdict", self.verdict, methods=["GET"]),
        ]

    async def overview(self, request: Request) -> Response:
        """The workloads with their state, those that need attention first; `search`, `limit`, `cursor`."""
        require_role(request, self._state, "read")
        limit = integer(request, "limit", minimum=1, maximum=1000) or 50
        page = await overview(
            self._state.required_store(),
            search=request.query_params.get("search", "").strip(),
            limit=limit,
            cursor=request.query_params.get("cursor", ""),
        )
        now_ms = int(time.time() * 1000)
        return json_response(
            {
                "workloads": [_overview_json(line, now_ms) for line in page.workloads],
                "total_count": page.total,
                "next_cursor": page.next_cursor or None,
                "time": now_ms,
            }
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
