"""The requests for exports, kept for a day at every daemon, so that an export whose file is lost is made again."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path

import msgspec

from .export_jobs import KEPT_SECONDS, ExportFormat

logger = logging.getLogger(__name__)

MOST_REQUESTS = 1000
MOST_REQUEST_BYTES = 16 * 1024 * 1024


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An export as it was asked for: `wanted` is the body of the POST; `created` in ms."""

    id: str
    workload_uid: str
    format: ExportFormat
    created: int
    wanted: bytes


class ExportRequests:
    """Requests of the last day, the newest ones within a limit of bytes, each in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, ExportRequest] = {}
        self._load_requests()

    def keep_request(self, request: ExportRequest) -> None:
        """Keep one, and forget those that are old or too many."""
        self._known[request.id] = request
        with contextlib.suppress(OSError):  # then only this process knows it
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path(request.id).write_bytes(msgspec.json.encode(request))
        self._forget_old()

    def known_requests(self) -> list[ExportRequest]:
        """Those of the last day."""
        self._forget_old()
        return list(self._known.values())

    def get_request(self, identity: str) -> ExportRequest | None:
        """One of the last day."""
        self._forget_old()
        return self._known.get(identity)

    def forget_request(self, identity: str) -> None:
        """Its export was removed on request."""
        if self._known.pop(identity, None) is not None:
            self._path(identity).unlink(missing_ok=True)

    def _path(self, identity: str) -> Path:
        return self._folder / f"{identity}.request"

    def _load_requests(self) -> None:
        for path in self._folder.glob("*.request"):
            try:
                request = msgspec.json.decode(path.read_bytes(), type=ExportRequest)
            except (OSError, msgspec.DecodeError) as error:
                logger.warning("The request of an export cannot be read. file=%s reason=%s", path.name, error)
                continue
            self._known[path.stem] = request
        self._forget_old()

    def _forget_old(self) -> None:
        oldest = (time.time() - KEPT_SECONDS) * 1000
        size = 0
        newest_first = sorted(self._known.items(), key=lambda item: item[1].created, reverse=True)
        for number, (identity, request) in enumerate(newest_first):
            size += len(request.wanted)
            if number >= MOST_REQUESTS or size > MOST_REQUEST_BYTES or request.created < oldest:
                self.forget_request(identity)
