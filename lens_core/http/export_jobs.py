"""Jobs that write exports into files of the data directory, two at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec

from ..base.errors import NotFound, RequestError, TooManyRequests
from ..model.queries import PointColumns, PointQuery
from ..plugin_api.store import Store
from .point_arrow import stream_arrow
from .point_text import stream_csv
from .point_xlsx import workbook

logger = logging.getLogger(__name__)

ExportFormat = Literal["csv", "arrow", "xlsx"]
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

    async def read_piece(self, identity: str, offset: int, size: int) -> bytes:
        """Bytes of the file of an export that is done. Raises NotFound."""
        path = self.file(self.get_export(identity))
        with contextlib.suppress(FileNotFoundError):
            return await asyncio.to_thread(_read_bytes, path, offset, size)
        raise NotFound(f"the export {identity!r} has no file")

    def begin_export(
        self, store: Store, query: PointQuery, format_: ExportFormat, *, identity: str = "", created: int = 0
    ) -> Export:
        """Begin an export, or make the one of that identity again. Raises TooManyRequests."""
        self._forget_old()
        if sum(not task.done() for task in self._tasks.values()) >= MOST_WAITING:
            raise TooManyRequests(f"{MOST_WAITING} exports are being made already", retry_after_seconds=30)
        export = Export(
            id=identity or secrets.token_hex(12),
            workload_uid=query.workload_uid,
            format=format_,
            created=created or int(time.time() * 1000),
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


def _read_bytes(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


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
