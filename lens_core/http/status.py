"""Liveness, readiness, status, Lens' own metrics, replay of dead letters."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ..base.errors import BadRequest
from ..base.redaction import hide
from .auth import require_role
from .errors import json_response
from .state import ApiState

# Fields of a status that hold what somebody else wrote; names and states are looked up by who asks.
_TEXTS = frozenset(
    {"last_error", "last_processor_error", "dead_letter_reason", "reason", "notice", "not_ready", "store_notice"}
)
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class StatusRoutes:
    """The endpoints about the daemon itself."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def root_routes(self) -> list[Route]:
        """Those at the root."""
        return [
            Route("/livez", self.livez, methods=["GET"]),
            Route("/readyz", self.readyz, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

    def api_routes(self) -> list[Route]:
        """Those below `/api/v1`."""
        return [
            Route("/status", self.get_status, methods=["GET"]),
            Route("/dead-letters", self.dead_letters, methods=["GET"]),
            Route("/replay", self.post_replay, methods=["POST"]),
        ]

    async def livez(self, request: Request) -> Response:
        """The process answers."""
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        """Whether data may be sent here: 200, or 503 with the reason."""
        reason = self._state.ready()
        return PlainTextResponse(f"{hide(reason) or 'ok'}\n", 503 if reason else 200)

    async def metrics(self, request: Request) -> Response:
        """Lens' own metrics in the text format of Prometheus."""
        require_role(request, self._state, "read", is_open=self._state.metrics_open)
        return Response(self._state.metrics.exposition(), media_type=PROMETHEUS_TEXT)

    async def get_status(self, request: Request) -> Response:
        """Every component: its state, rates, lag and last error, of all daemons of a cluster together.

        `scope=daemon` is for the daemon that is asked alone.
        """
        require_role(request, self._state, "read")
        scope = request.query_params.get("scope", "cluster")
        if scope not in ("cluster", "daemon"):
            raise BadRequest(f"scope {scope!r} is not one of cluster, daemon")
        if scope == "cluster" and self._state.cluster_status is not None:
            status = await self._state.cluster_status()
        else:
            status = self._state.status()
        # Last errors are in the words of drivers and of other servers, which may quote what they were sent.
        return json_response(_hide_in_texts(msgspec.to_builtins(status)))

    async def dead_letters(self, request: Request) -> Response:
        """Why sinks refused records, with how many; `sink` names one sink, without it all."""
        require_role(request, self._state, "read")
        asked = self._state.dead_letters
        found = [] if asked is None else await asked(request.query_params.get("sink", ""))
        total = sum(one["records"] for one in found)
        return json_response({"dead_letters": _hide_in_texts(found), "total_count": total})

    async def post_replay(self, request: Request) -> Response:
        """Send dead letters again; `sink` names one sink, without it all."""
        require_role(request, self._state, "admin")
        replayed = await self._state.replay(request.query_params.get("sink", ""))
        return json_response({"replayed": replayed})


def _hide_in_texts(status: Any) -> Any:
    """A status without secrets, at any depth."""
    if isinstance(status, dict):
        return {
            key: hide(value) if key in _TEXTS and isinstance(value, str) else _hide_in_texts(value)
            for key, value in status.items()
        }
    return [_hide_in_texts(item) for item in status] if isinstance(status, (list, tuple)) else status
