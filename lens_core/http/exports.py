"""The routes of exports: jobs that write files, which any daemon of a cluster answers for."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from ..base.errors import BadRequest
from ..model.queries import PointQuery
from .auth import require_role
from .checking import decode_question, read_question
from .errors import json_response
from .export_jobs import Export, ExportFormat, ExportJobs
from .export_requests import ExportRequest, ExportRequests
from .parameters import across_runs, aggregation_of, ensure_answerable, point_fields, split_names
from .point_arrow import ARROW
from .point_text import CSV
from .point_xlsx import XLSX
from .shared_exports import SharedExports
from .state import ApiState

MEDIA_TYPES: Mapping[ExportFormat, str] = {"csv": CSV, "arrow": ARROW, "xlsx": XLSX}

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
    rank: int | None = None
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
            rank=self.rank,
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
        self._requests: ExportRequests | None = None
        self._exports = SharedExports(
            lambda: self.jobs, lambda: self.requests, self._make_again, state.siblings_of("exports")
        )

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
            self._jobs = ExportJobs(self._folder())
        return self._jobs

    @property
    def requests(self) -> ExportRequests:
        """The requests made here and at other daemons, in the same folder."""
        if self._requests is None:
            self._requests = ExportRequests(self._folder())
        return self._requests

    def _folder(self) -> Path:
        file = self._state.directory_file
        return (Path(tempfile.gettempdir(), "lens") if file is None else file.parent) / "exports"

    def _make_again(self, request: ExportRequest) -> Export:
        """Make an export whose file is gone with the daemon that made it. Raises TooManyRequests."""
        wanted: Wanted = decode_question(request.wanted, Wanted)
        store = self._state.required_store()
        return self.jobs.begin_export(
            store, wanted.query(), request.format, identity=request.id, created=request.created
        )

    async def create_export(self, request: Request) -> Response:
        """Begin an export: csv, arrow or xlsx of what metrics/data would answer; 202 with where to look."""
        body = await read_question(request)
        wanted: Wanted = decode_question(body, Wanted)
        store, query = self._state.required_store(), wanted.query()
        ensure_answerable(store, query, wanted.format)
        export = self.jobs.begin_export(store, query, wanted.format)
        await self._exports.keep_request(export, body)
        described = _described(export)
        return json_response(described, 202, {"Location": str(described["url"])})

    async def list(self, request: Request) -> Response:
        """The exports, the newest first."""
        exports, silent = await self._exports.list_exports()
        found = [_described(export) for export in exports]
        missing = {"silent": silent} if silent else {}
        return json_response({"exports": found, "total_count": len(found), **missing})

    async def get_export(self, request: Request) -> Response:
        """Return the state of an export: waiting, running, done or failed."""
        export, _ = await self._exports.find_export(request.path_params["id"])
        return json_response(_described(export))

    async def remove(self, request: Request) -> Response:
        """End an export and remove its file."""
        await self._exports.remove_export(request.path_params["id"])
        return Response(status_code=204)

    async def file(self, request: Request) -> Response:
        """The file of an export that is done; 202 with its state while it is not."""
        export, daemon = await self._exports.find_export(request.path_params["id"])
        if export.state in ("waiting", "running"):
            return json_response(_described(export), 202, {"Retry-After": "1"})
        if export.state == "failed":
            raise BadRequest(f"the export failed: {export.error}")
        name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in export.workload_uid)
        filename, media_type = f"{name[:100]}.{export.format}", MEDIA_TYPES[export.format]
        if not daemon:
            return FileResponse(self.jobs.file(export), media_type=media_type, filename=filename)
        # Letters of a name that a header cannot hold, as RFC 6266 has it.
        headers = {
            "Content-Length": str(export.bytes),
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(filename)}",
        }
        return StreamingResponse(self._exports.read_file(export, daemon), media_type=media_type, headers=headers)


def _described(export: Export) -> dict[str, Any]:
    described: dict[str, Any] = msgspec.to_builtins(export)
    url = f"/api/v1/exports/{export.id}"
    return {**described, "url": url, "file": f"{url}/file" if export.state == "done" else None}
