"""Exports of all daemons of a cluster: each lies on the daemon that makes it, and any daemon answers for it.

All daemons know what was asked for: an export whose daemon is gone is made again by whoever is asked for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec

from ..base.errors import NotFound, Unavailable
from ..plugin_api.siblings import Siblings
from .export_jobs import Export, ExportJobs
from .export_requests import ExportRequest, ExportRequests

PIECE_BYTES = 1024 * 1024
_ASK_SECONDS = 5.0


class ExportQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question of another daemon: all exports (no id), one, its removal, or bytes of its file from an offset.

    `keep` is a notice: an export was asked for, as `request` says; `request` asks for what is known of one.
    """

    action: Literal["list", "remove", "read", "keep", "request"]
    id: str = ""
    offset: int = 0
    request: ExportRequest | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ExportQuestion)
_exports_decoder = msgspec.msgpack.Decoder(list[Export])
_request_decoder = msgspec.msgpack.Decoder(ExportRequest | None)


class SharedExports:
    """The exports of this daemon and of its siblings; `make_again` begins one that nobody has any more."""

    def __init__(
        self,
        jobs: Callable[[], ExportJobs],
        requests: Callable[[], ExportRequests],
        make_again: Callable[[ExportRequest], Export],
        siblings: Siblings,
    ) -> None:
        self._jobs = jobs
        self._requests = requests
        self._make_again = make_again
        self._siblings = siblings
        siblings.answer_siblings(self._answer_export_question)

    async def keep_request(self, export: Export, wanted: bytes) -> None:
        """Let all daemons know the request."""
        request = ExportRequest(
            id=export.id, workload_uid=export.workload_uid, format=export.format, created=export.created, wanted=wanted
        )
        self._requests().keep_request(request)
        await self._siblings.ask_siblings(_encoder.encode(ExportQuestion("keep", export.id, request=request)))

    async def list_exports(self) -> tuple[list[Export], list[str]]:
        """All exports, the newest first, and the daemons that do not answer.

        One that no daemon has that answers is waiting: it is made again once it is asked for.
        """
        answers = await self._siblings.ask_siblings(_encoder.encode(ExportQuestion("list")), seconds=_ASK_SECONDS)
        found = {export.id: export for export in self._jobs().all()}
        for body in answers.found.values():
            for export in _exports_decoder.decode(body):
                if export.state == "done" or export.id not in found:
                    found[export.id] = export
        for one in self._requests().known_requests():
            lost = Export(id=one.id, workload_uid=one.workload_uid, format=one.format, created=one.created)
            found.setdefault(one.id, lost)
        newest_first = sorted(found.values(), key=lambda export: (export.created, export.id), reverse=True)
        return newest_first, list(answers.silent)

    async def find_export(self, identity: str) -> tuple[Export, str]:
        """An export and the daemon that has it, '' for this one. Raises NotFound, and Unavailable if one is silent.

        One that nobody has any more is begun here.
        """
        try:
            return self._jobs().get_export(identity), ""
        except NotFound:
            question = _encoder.encode(ExportQuestion("list", identity))
            answers = await self._siblings.ask_siblings(question, seconds=_ASK_SECONDS)
            for daemon, body in answers.found.items():
                for export in _exports_decoder.decode(body):
                    return export, daemon
            if answers.silent:
                raise Unavailable(
                    f"the export {identity!r} may be at a daemon that does not answer: {', '.join(answers.silent)}",
                    retry_after_seconds=5,
                ) from None
            request = await self._find_request(identity)
            if request is None:
                raise
            return self._make_again(request), ""

    async def _find_request(self, identity: str) -> ExportRequest | None:
        """The request of an identity, as any daemon knows it; one that joined later does not."""
        known = self._requests().get_request(identity)
        if known is not None:
            return known
        question = _encoder.encode(ExportQuestion("request", identity))
        answers = await self._siblings.ask_siblings(question, seconds=_ASK_SECONDS)
        found = [_request_decoder.decode(body) for body in answers.found.values()]
        return next((one for one in found if one is not None), None)

    async def remove_export(self, identity: str) -> None:
        """End and remove an export, at all daemons that know it. Raises NotFound, Unavailable."""
        await self.find_export(identity)
        await self._remove_here(identity)
        question = _encoder.encode(ExportQuestion("remove", identity))
        answers = await self._siblings.ask_siblings(question, seconds=_ASK_SECONDS)
        if answers.silent:
            raise Unavailable(
                f"the export may still be at a daemon that does not answer: {', '.join(answers.silent)}; delete again",
                retry_after_seconds=5,
            )

    async def _remove_here(self, identity: str) -> None:
        self._requests().forget_request(identity)
        with contextlib.suppress(NotFound):
            await self._jobs().remove(identity)

    async def read_file(self, export: Export, daemon: str) -> AsyncIterator[bytes]:
        """The file of an export that another daemon has made, piece by piece. Raises Unavailable."""
        offset = 0
        while offset < export.bytes:
            question = _encoder.encode(ExportQuestion("read", export.id, offset))
            piece = await self._siblings.ask_sibling(daemon, question, seconds=_ASK_SECONDS)
            if not piece:
                raise Unavailable(f"the file of the export {export.id!r} is gone")
            offset += len(piece)
            yield piece

    async def _answer_export_question(self, body: bytes) -> bytes:
        question = _decoder.decode(body)
        jobs = self._jobs()
        if question.action == "remove":
            await self._remove_here(question.id)
            return b""
        if question.action == "keep":
            if question.request is not None:
                self._requests().keep_request(question.request)
            return b""
        if question.action == "request":
            return _encoder.encode(self._requests().get_request(question.id))
        if question.action == "read":
            return await jobs.read_piece(question.id, question.offset, PIECE_BYTES)
        return _encoder.encode([export for export in jobs.all() if question.id in ("", export.id)])
