"""The directory of pods: the two cache routes of seed 003."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .auth import require_role
from .errors import json_response
from .state import ApiState


class PodRoutes:
    """GET /pods/cache and /pods/workload/cache."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        """Both routes."""
        return [
            Route("/pods/cache", self.devices, methods=["GET"]),
            Route("/pods/workload/cache", self.list_workloads, methods=["GET"]),
        ]

    async def devices(self, request: Request) -> Response:
        """node → device label → device name → [pod name, pod uid]."""
        require_role(request, self._state, "read")
        return json_response(self._state.directory.devices())

    async def list_workloads(self, request: Request) -> Response:
        """pod name → [[workload name, workload uid], …]."""
        require_role(request, self._state, "read")
        return json_response(self._state.directory.workloads_by_pod())
