"""Exports: jobs that write files, and their routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ..base.errors import BadRequest, NotFound, RequestError, TooManyRequests
from ..model.queries import PointColumns, PointQuery
from ..plugin_api.store import Store
from .auth import require_role
from .checking import decode_question, read_question
from .errors import json_response
from .parameters import across_runs, aggregation_of, ensure_answerable, point_fields, split_names
from .point_arrow import ARROW, stream_arrow
from .point_text import CSV, stream_csv
from .point_xlsx import XLSX, workbook
from .state import ApiState

logger = logging.getLogger(__name__)

ExportFormat = Literal["csv", "arrow", "xlsx"]
MEDIA_TYPES: Mapping[ExportFormat, str] = {"csv": CSV, "arrow": ARROW, "xlsx": XLSX}
KEPT_SECONDS = 24 * 3600.0
MOST_KEPT = 100
MOST_WAITING = 20
_AT_ONCE = 2


class Export(msgspec.Struct, kw_only=True):
    """One export as it is answered; times in ms, `bytes` of the file so far."""

    id: str
    workload_uid: str
    format: ExportFormat
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    points: int = 0
    bytes: int = 0
    created: int = 0
    finished: int | None = None
    error: str | None = None


class ExportJobs:
    """Makes exports, two at a time, and knows those that an earlier process has made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Export] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._load_exports()

    def all(self) -> list[Export]:
        """The newest first."""
        self._forget_old()
        return sorted(self._known.values(), key=lambda export: (export.created, export.id), reverse=True)

    def get_export(self, identity: str) -> Export:
        """One export. Raises NotFound."""
        self._forget_old()
        found = self._known.get(identity)
        if found is None:
            raise NotFound(f"there is no export {identity!r}; they are kept for a day")
        return found

    def file(self, export: Export) -> Path:
        """Return the path of its file."""
        return self._folder / f"{export.id}.{export.format}"

    def begin_export(self, store: Store, query: PointQuery, format_: ExportFormat) -> Export:
        """Begin an export. Raises TooManyRequests."""
        self._forget_old()
        if sum(not task.done() for task in self._tasks.values()) >= MOST_WAITING:
            raise TooManyRequests(f"{MOST_WAITING} exports are being made already", retry_after_seconds=30)
        export = Export(
            id=secrets.token_hex(12),
            workload_uid=query.workload_uid,
            format=format_,
            created=int(time.time() * 1000),
        )
        self._known[export.id] = export
        self._tasks[export.id] = asyncio.create_task(
            self._write_export(export, store, query), name=f"export {export.id}"
        )
        return export

    async def remove(self, identity: str) -> None:
        """End it if it is being made, remove its file. Raises NotFound."""
        export = self.get_export(identity)
        task = self._tasks.pop(identity, None)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
        self._remove_export(export)

    async def _write_export(self, export: Export, store: Store, query: PointQuery) -> None:
        async with self._turns:
            export.state = "running"
            part = self._folder / f"{export.id}.part"
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                async with contextlib.aclosing(_counted(store, query, export)) as pieces:
                    if export.format == "xlsx":
                        await _write_workbook(part, pieces, export)
                    else:
                        stream = (
                            stream_csv(pieces, query.extra_columns) if export.format == "csv" else stream_arrow(pieces)
                        )
                        await _write_stream(part, stream, export)
                part.replace(self.file(export))
                export.state = "done"
                export.bytes = self.file(export).stat().st_size
            except RequestError as error:
                export.state, export.error = "failed", error.message
            except OSError as error:
                export.state, export.error = "failed", f"the file cannot be written: {error.strerror}"
            except Exception:
                logger.exception("An export failed. id=%s", export.id)
                export.state, export.error = "failed", "internal error; details are in the daemon's log"
            finally:
                export.finished = int(time.time() * 1000)
                part.unlink(missing_ok=True)
                self._save_export(export)

    def _save_export(self, export: Export) -> None:
        with contextlib.suppress(OSError):  # then only this process knows the export
            (self._folder / f"{export.id}.json").write_bytes(msgspec.json.encode(export))

    def _load_exports(self) -> None:
        if not self._folder.is_dir():
            return
        for part in self._folder.glob("*.part"):
            part.unlink(missing_ok=True)
        for path in self._folder.glob("*.json"):
            try:
                export = msgspec.json.decode(path.read_bytes(), type=Export)
            except (OSError, msgspec.DecodeError) as error:
                logger.warning("An export of an earlier process cannot be read. file=%s reason=%s", path.name, error)
                continue
            if export.state in ("done", "failed"):
                self._known[export.id] = export
            else:  # the process ended before the export did
                path.unlink(missing_ok=True)

    def _forget_old(self) -> None:
        oldest = (time.time() - KEPT_SECONDS) * 1000
        settled = [export for export in self._known.values() if export.state in ("done", "failed")]
        settled.sort(key=lambda export: export.created, reverse=True)
        for number, export in enumerate(settled):
            if number >= MOST_KEPT or export.created < oldest:
                self._remove_export(export)

    def _remove_export(self, export: Export) -> None:
        self._known.pop(export.id, None)
        self._tasks.pop(export.id, None)
        for path in (self.file(export), self._folder / f"{export.id}.json"):
            path.unlink(missing_ok=True)


async def _counted(store: Store, query: PointQuery, export: Export) -> AsyncGenerator[PointColumns, None]:
    async for piece in store.metric_columns(query):
        export.points += len(piece)
        yield piece


async def _write_stream(part: Path, stream: AsyncIterator[bytes], export: Export) -> None:
    with part.open("wb") as file:
        async for data in stream:
            await asyncio.to_thread(file.write, data)
            export.bytes += len(data)


async def _write_workbook(part: Path, pieces: AsyncIterator[PointColumns], export: Export) -> None:
    with workbook(part) as book:
        async for piece in pieces:
            await asyncio.to_thread(book.write_piece, piece)
            export.bytes = part.stat().st_size


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
