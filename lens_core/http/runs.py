"""GET /api/v1/runs: the runs of workloads as a table."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..base.errors import BadRequest
from .auth import require_role
from .errors import json_response
from .page.triage import offset_of
from .parameters import integer, is_elsewhere, ordered_descending
from .run_table import MOST_FILTERS, Condition, RunTable, arrange_rows, field_of, groups_of
from .state import ApiState

MOST_UIDS = 100


class RunRoutes:
    """The table of runs."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._table = RunTable()

    def routes(self) -> list[Route]:
        """One path; it needs the role read."""
        return [Route("/runs", self.runs, methods=["GET"])]

    async def runs(self, request: Request) -> Response:
        """Runs with configuration, last and best values and state; filtered, sorted, grouped, in pages."""
        require_role(request, self._state, "read")
        parameters = request.query_params
        limit = integer(request, "limit", minimum=1, maximum=1000) or 100
        first = offset_of(parameters.get("cursor", ""))
        sort, group = parameters.get("sort", "").strip(), parameters.get("group", "").strip()
        texts = parameters.getlist("filter")
        if len(texts) > MOST_FILTERS:
            raise BadRequest(f"filter may be given at most {MOST_FILTERS} times")
        conditions = [Condition.of_text(text) for text in texts]
        for name, field in (("sort", sort), ("group", group)):
            if field:
                field_of(name, field)
        is_descending = ordered_descending(request, otherwise=False)
        found = await self._table.run_rows(self._state.required_store(), await self._uids(request))
        rows = arrange_rows(found, conditions, group, sort, is_descending=is_descending)
        more = first + limit < len(rows)
        return json_response(
            {
                "runs": rows[first : first + limit],
                "total_count": len(rows),
                "next_cursor": f"at:{first + limit}" if more else None,
                **({"groups": groups_of(rows, group)} if group else {}),
            }
        )

    async def _uids(self, request: Request) -> list[str]:
        """The workloads that are named, or those that were seen last, as far as the search finds them."""
        if is_elsewhere(request, self._state.cluster_name):
            return []
        uids = list(dict.fromkeys(uid for uid in request.query_params.getlist("uid") if uid))
        if len(uids) > MOST_UIDS:
            raise BadRequest(f"uid may be given at most {MOST_UIDS} times")
        if uids:
            return uids
        search = request.query_params.get("search", "").strip()
        page = await self._state.required_store().workloads(search=search, limit=MOST_UIDS)
        return [summary.workload_uid for summary in page.workloads]
