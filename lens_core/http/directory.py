"""Routes of the directory: pods, workloads, devices."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..base.compression import too_large
from ..base.errors import BadRequest
from ..directory.directory import API_FEED, Directory
from ..model.directory_document import json_of_pods, pods_of_json
from ..model.records import Pod
from .auth import require_role
from .errors import JSON, json_response
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


logger = logging.getLogger("lens.directory")


class DirectoryRoutes:
    """GET, PUT and PATCH /api/v1/directory."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._order = asyncio.Lock()

    def routes(self) -> list[Route]:
        """One path, two endpoints: asking needs the role read, changing admin."""
        return [
            Route("/directory", self.get_directory, methods=["GET"]),
            Route("/directory", self.change_directory, methods=["PUT", "PATCH"]),
        ]

    async def get_directory(self, request: Request) -> Response:
        """All pods that are known, whoever said so, in the shape that PUT takes."""
        require_role(request, self._state, "read")
        return Response(json_of_pods(self._state.directory.pods()), media_type=JSON)

    async def change_directory(self, request: Request) -> Response:
        """PUT replaces what was said here before, PATCH adds to it; other feeds of the directory stay as they are."""
        require_role(request, self._state, "admin")
        pods = pods_of_json(await self._read_body(request))
        directory = self._state.directory
        async with self._order:
            await self._change(request.method == "PUT", pods)
        return json_response({"success": True, "accepted": len(pods), "pods": len(directory.pods())})

    async def _change(self, replacing: bool, pods: Sequence[Pod]) -> None:
        """Teach the directory, then the store; if that cannot take it, nothing has changed."""
        directory = self._state.directory
        before = directory.pods(API_FEED)
        if replacing:
            directory.replace(pods, API_FEED)
        else:
            directory.add_pods(pods, API_FEED)
        try:
            if self._state.api_gate is not None:
                await self._state.api_gate.submit(pods)
        except BaseException:
            directory.replace(before, API_FEED)
            raise
        if self._state.directory_file is not None:
            await asyncio.to_thread(save_pods, self._state.directory_file, directory.pods(API_FEED))

    async def _read_body(self, request: Request) -> bytes:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self._state.max_body_bytes:
                raise too_large(self._state.max_body_bytes)
        return bytes(body)


def restore_pods(directory: Directory, file: Path) -> Sequence[Pod]:
    """Teach the directory what was said before the daemon was restarted; a file that cannot be read is said."""
    try:
        pods = pods_of_json(file.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, BadRequest) as error:
        logger.warning("Could not read the saved directory; starting without it. error=%s", error)
        return []
    directory.replace(pods, API_FEED)
    return pods


def save_pods(file: Path, pods: Sequence[Pod]) -> None:
    """Write what was said of pods, so that the next start knows it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    with fresh.open("wb") as written:
        written.write(json_of_pods(pods))
        written.flush()
        os.fsync(written.fileno())
    fresh.replace(file)
