"""`/api/v1/exports`: large answers made in the background, fetched when they are done."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ..base.errors import BadRequest
from ..model.queries import PointQuery
from .auth import require_role
from .checking import decode_question, read_question
from .errors import json_response
from .exports_jobs import MEDIA_TYPES, Export, ExportFormat, ExportJobs
from .parameters import across_runs, aggregation_of, ensure_answerable, point_fields, split_names
from .state import ApiState

Endpoint = Callable[[Request], Awaitable[Response]]


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST; the fields mean what they mean as parameters of metrics/data."""

    workload_uid: str = ""
    format: ExportFormat = "csv"
    metrics: str | list[str] = "all"
    data_source: str = ""
    start: int | None = None
    end: int | None = None
    run_id: str | None = None
    attempt: int | None = None
    max_points: int | None = None
    aggregate: str = ""
    interval: str = ""
    across: str = ""
    fields: str = ""

    def query(self) -> PointQuery:
        """The points that are wanted. Raises BadRequest."""
        if not self.workload_uid.strip():
            raise BadRequest("workload_uid is required")
        aggregation = aggregation_of(self.aggregate.lower(), self.interval.lower())
        if self.max_points is not None and (self.max_points < 2 or aggregation.aggregate is not None):
            raise BadRequest("max_points must be 2 or more, and does not go with aggregate")
        return PointQuery(
            workload_uid=self.workload_uid.strip(),
            metrics=split_names(self.metrics) if isinstance(self.metrics, str) else tuple(self.metrics),
            data_source=self.data_source,
            start_ms=self.start,
            end_ms=self.end,
            run_id=self.run_id,
            attempt=self.attempt,
            max_points=self.max_points,
            **aggregation._asdict(),
            is_across_runs=across_runs(self.across, aggregation),
            fields=point_fields(self.fields, aggregation),
        )


class ExportRoutes:
    """The routes; asking for an export needs the role read."""

    def __init__(self, state: ApiState) -> None:
        self._state = state
        self._jobs: ExportJobs | None = None

    def routes(self) -> list[Route]:
        """All of them."""
        table: list[tuple[str, str, Endpoint]] = [
            ("POST", "/exports", self.create_export),
            ("GET", "/exports", self.list),
            ("GET", "/exports/{id}", self.get_export),
            ("DELETE", "/exports/{id}", self.remove),
            ("GET", "/exports/{id}/file", self.file),
        ]
        return [Route(path, self._readable(endpoint), methods=[method]) for method, path, endpoint in table]

    def _readable(self, endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            require_role(request, self._state, "read")
            return await endpoint(request)

        return guarded

    @property
    def jobs(self) -> ExportJobs:
        """Made when it is first asked for, in the data directory."""
        if self._jobs is None:
            file = self._state.directory_file
            folder = Path(tempfile.gettempdir(), "lens") if file is None else file.parent
            self._jobs = ExportJobs(folder / "exports")
        return self._jobs

    async def create_export(self, request: Request) -> Response:
        """Begin an export: csv, arrow or xlsx of what metrics/data would answer; 202 with where to look."""
        wanted: Wanted = decode_question(await read_question(request), Wanted)
        store, query = self._state.required_store(), wanted.query()
        ensure_answerable(store, query, wanted.format)
        export = self.jobs.begin_export(store, query, wanted.format)
        described = _described(export)
        return json_response(described, 202, {"Location": str(described["url"])})

    async def list(self, request: Request) -> Response:
        """The exports, the newest first."""
        found = [_described(export) for export in self.jobs.all()]
        return json_response({"exports": found, "total_count": len(found)})

    async def get_export(self, request: Request) -> Response:
        """Return the state of an export: waiting, running, done or failed."""
        return json_response(_described(self.jobs.get_export(request.path_params["id"])))

    async def remove(self, request: Request) -> Response:
        """End an export and remove its file."""
        await self.jobs.remove(request.path_params["id"])
        return Response(status_code=204)

    async def file(self, request: Request) -> Response:
        """The file of an export that is done; 202 with its state while it is not."""
        export = self.jobs.get_export(request.path_params["id"])
        if export.state in ("waiting", "running"):
            return json_response(_described(export), 202, {"Retry-After": "1"})
        if export.state == "failed":
            raise BadRequest(f"the export failed: {export.error}")
        name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in export.workload_uid)
        return FileResponse(
            self.jobs.file(export), media_type=MEDIA_TYPES[export.format], filename=f"{name[:100]}.{export.format}"
        )


def _described(export: Export) -> dict[str, Any]:
    described: dict[str, Any] = msgspec.to_builtins(export)
    url = f"/api/v1/exports/{export.id}"
    return {**described, "url": url, "file": f"{url}/file" if export.state == "done" else None}
