"""The source: HTTP routes /report and /get at the root, and a gRPC port where one is configured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import BadRequest, Context, IngestRequest, LensError, Reply, Route, Source

from ...dlrover import PickleError, Wire, dump, load
from ...dlrover.messages import (
    JOB_UID,
    BadMessage,
    Request,
    decode_grpc,
    decode_http,
    encode_grpc,
    encode_grpc_response,
    encode_http_response,
)
from ...dlrover.pickles import MAX_PICKLE_BYTES
from ..grpc_listener import GrpcListener
from .answering import answer_of, records_of, sender_of
from .grpc_server import make_listener

_BODY_BYTES = MAX_PICKLE_BYTES * 4 // 3 + 4096
_PICKLE = "application/octet-stream"


class DlroverMasterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the dlrover_master source."""

    grpc_listen: Annotated[
        str, Meta(description="HOST:PORT for gRPC, without authentication: a trusted network only; '' for HTTP alone")
    ] = ""
    workload_uid: Annotated[str, Meta(description="the job of senders that name none (no JOB_UID)")] = "dlrover"


class DlroverMaster(Source):
    """Receives the reports that DLRover's agents send to their master."""

    name = "dlrover_master"
    rejects = ("unknown",)
    Settings = DlroverMasterSettings

    def __init__(self, settings: DlroverMasterSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._grpc: GrpcListener | None = None

    @property
    def grpc_port(self) -> int:
        """The port on which gRPC is answered; 0 where it is not."""
        return self._grpc.port if self._grpc is not None else 0

    def routes(self) -> Sequence[Route]:
        """DLRover's two paths; below the prefixes too, where a proxy can keep them apart."""
        return [
            Route(paths=[path], handler=handler, at_root=True, max_body_bytes=_BODY_BYTES, bodies={_PICKLE: bytes})
            for path, handler in (("/report", self._http_report), ("/get", self._http_get))
        ]

    async def start(self) -> None:
        """Listen for gRPC, if that is wanted. Raises LensError."""
        if self.settings.grpc_listen:
            self._grpc = make_listener(self.settings.grpc_listen, self._grpc_report, self._grpc_get)
            await self._grpc.start()
            self.context.logger.info("Listening for gRPC. port=%d", self._grpc.port)

    async def stop(self) -> None:
        """Stop listening."""
        if self._grpc is not None:
            await self._grpc.stop()

    async def _http_report(self, request: IngestRequest) -> Reply:
        """Receive a report of an agent of DLRover to its master."""
        success, _ = await self._handle_report(_read_http(request), request.headers.get(JOB_UID, ""))
        return _pickled(encode_http_response(success))

    async def _http_get(self, request: IngestRequest) -> Reply:
        """Answer a request of an agent of DLRover to its master."""
        answer = self._answer_request(_read_http(request))
        return _pickled(encode_http_response(answer is not None, dump(answer) if answer is not None else b""))

    async def _grpc_report(self, body: bytes, job_uid: str) -> bytes:
        try:
            request = decode_grpc(body)
        except BadMessage as error:
            return encode_grpc_response(False, str(error))
        return encode_grpc_response(*await self._handle_report(request, job_uid))

    async def _grpc_get(self, body: bytes, job_uid: str) -> bytes:
        try:
            answer = self._answer_request(decode_grpc(body))
        except BadMessage as error:
            self.context.logger.debug("Could not decode a request. error=%s", error)
            answer = None
        return encode_grpc(Request(0, "", dump(answer) if answer is not None else b""))

    async def _handle_report(self, request: Request, job_uid: str) -> tuple[bool, str]:
        """Success and, if there is none, why. Raises Overloaded, for which the sender comes again."""
        sender = sender_of(request, job_uid, self.settings.workload_uid)
        try:
            message = load(request.data)
            records = records_of(message, sender)
        except LensError as error:
            reason = "unknown" if isinstance(error, PickleError) else "invalid"
            await self.gate.submit([], received=1, rejected={reason: 1})
            self.context.logger.debug("A report was refused. error=%s", error)
            return False, str(error)
        await self.gate.submit(records, received=max(1, len(records)), filtered=0 if records else 1)
        return True, ""

    def _answer_request(self, request: Request) -> Wire | None:
        try:
            return answer_of(load(request.data))
        except LensError as error:
            self.context.logger.debug("Could not answer a request. error=%s", error)
            return None


def _read_http(request: IngestRequest) -> Request:
    try:
        return decode_http(request.body)
    except BadMessage as error:
        raise BadRequest(str(error)) from None


def _pickled(body: bytes) -> Reply:
    return Reply(body=body, headers={"Content-Type": _PICKLE})
