"""Asking a DLRover master over gRPC or HTTP: deadlines of seconds, few retries, the success flag looked at."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import socket
import threading
import time
from types import TracebackType
from typing import Any

from lens_core import Backoff, LensError
from lens_core.plugin_api.http_answers import ABOUT_RECORDS
from lens_core.plugin_api.urls import parse_address

from .messages import (
    JOB_UID,
    BadMessage,
    Request,
    decode_grpc,
    decode_grpc_response,
    decode_http_response,
    encode_grpc,
    encode_http,
)
from .pickles import Wire, dump, load

GRPC = "grpc"
HTTP = "http"
DEADLINE_SECONDS = 3.0
MAX_ANSWER_BYTES = 1 << 20
_ATTEMPTS = 3
_FIRST_PAUSE_SECONDS = 0.2
_TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
_PERMANENT = frozenset({"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNKNOWN", "UNIMPLEMENTED", "PERMISSION_DENIED"})
# Of those, what can be about the report; the others are about what answers at this address, and as whom we come.
_REFUSALS = _PERMANENT - {"UNIMPLEMENTED", "PERMISSION_DENIED"}


class MasterError(LensError):
    """The master did not take a report; `permanent` when sending it again at once changes nothing.

    `is_refusal`: it will never take this report; otherwise the way to it, or what answers there, has to be fixed.
    """

    def __init__(self, message: str, *, permanent: bool = False, is_refusal: bool | None = None) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.is_refusal = permanent if is_refusal is None else is_refusal


class MasterConnection:
    """One master; may be used by several threads. `service` is grpc or http; the deadline holds for all attempts."""

    def __init__(
        self,
        address: str,
        *,
        service: str = GRPC,
        node_id: int = 0,
        node_type: str = "worker",
        job_uid: str = "",
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        if service not in (GRPC, HTTP):
            raise LensError(f"{service!r} is no transport of a master; there are: {GRPC}, {HTTP}")
        self.address = address
        self.service = service
        self._host, self._port = parse_address(address)
        self._node_id = node_id
        self._node_type = node_type
        self._job_uid = job_uid
        self._deadline_seconds = deadline_seconds
        self._lock = threading.Lock()
        self._channel: Any = None

    def __enter__(self) -> MasterConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next call opens another."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def report(self, message: Wire, node: tuple[int, str] | None = None) -> None:
        """Send a report, in another node's name (id, type) if need be. Raises MasterError when it is not taken."""
        node_id, node_type = node or (self._node_id, self._node_type)
        success, reason = self._retried(self._report_once, Request(node_id, node_type, dump(message)))
        if not success:
            raise MasterError(f"the master refused the report{f': {reason}' if reason else ''}", permanent=True)

    def get(self, message: Wire) -> Wire | None:
        """Ask; None when the master has no answer. Raises MasterError, and PickleError for an unknown answer."""
        data: bytes = self._retried(self._get_once, Request(self._node_id, self._node_type, dump(message)))
        return load(data) if data else None

    def _retried(self, call: Any, request: Request) -> Any:
        ends = time.monotonic() + self._deadline_seconds
        backoff = Backoff(_FIRST_PAUSE_SECONDS, self._deadline_seconds)
        for attempt in range(_ATTEMPTS):
            left = ends - time.monotonic()
            try:
                return call(request, max(0.05, left))
            except MasterError as error:
                pause = backoff.next_delay()
                if error.permanent or attempt == _ATTEMPTS - 1 or time.monotonic() + pause >= ends:
                    raise
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _report_once(self, request: Request, seconds: float) -> tuple[bool, str]:
        if self.service == HTTP:
            return decode_or_fail(decode_http_response, self._post("/report", request, seconds))[0], ""
        found: tuple[bool, str] = decode_or_fail(decode_grpc_response, self._call("report", request, seconds))
        return found

    def _get_once(self, request: Request, seconds: float) -> bytes:
        if self.service == HTTP:
            # The real master leaves `success` False although it answers; what counts is the data.
            data: bytes = decode_or_fail(decode_http_response, self._post("/get", request, seconds))[1]
            return data
        answer: bytes = decode_or_fail(decode_grpc, self._call("get", request, seconds)).data
        return answer

    def _post(self, path: str, request: Request, seconds: float) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", JOB_UID: self._job_uid}
        connection = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        try:
            connection.request("POST", path, encode_http(request), headers)
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise MasterError(_words(error)) from None
        finally:
            connection.close()
        if response.status != 200:
            permanent = response.status not in _TRANSIENT_STATUSES
            text = body[:200].decode("utf-8", "replace").strip()
            # A master's own server answers 500 where it cannot read a report.
            is_refusal = response.status in ABOUT_RECORDS or response.status == 500
            told = f"the master answered {response.status}: {text}"
            raise MasterError(told, permanent=permanent, is_refusal=is_refusal)
        if len(body) > MAX_ANSWER_BYTES:
            raise MasterError(f"the master's answer has more than {MAX_ANSWER_BYTES} bytes", permanent=True)
        return body

    def _call(self, method: str, request: Request, seconds: float) -> bytes:
        grpc = _grpc()
        metadata = ((JOB_UID, self._job_uid),)
        call = self._opened(grpc).unary_unary(f"/elastic.Master/{method}", None, None)
        try:
            answer: bytes = call(encode_grpc(request), timeout=seconds, metadata=metadata)
        except grpc.RpcError as error:
            code, details = error.code().name, error.details() or ""
            reason = "Connection refused" if "Connection refused" in details else f"{code}: {details}"
            raise MasterError(reason, permanent=code in _PERMANENT, is_refusal=code in _REFUSALS) from None
        return answer

    def _opened(self, grpc: Any) -> Any:
        with self._lock:
            if self._channel is None:
                options = [
                    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    ("grpc.max_reconnect_backoff_ms", 5000),
                    ("grpc.enable_http_proxy", 0),
                ]
                host = f"[{self._host}]" if ":" in self._host else self._host
                self._channel = grpc.insecure_channel(f"{host}:{self._port}", options=options)
            return self._channel


def decode_or_fail(decode: Any, body: bytes) -> Any:
    """Decode an answer. Raises MasterError for a damaged one."""
    try:
        return decode(body)
    except BadMessage as error:
        raise MasterError(str(error), permanent=True) from None


def _grpc() -> Any:
    """grpc, only when it is used: HTTP needs nothing. Its module is typed by nobody."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("grpc")
    raise MasterError('gRPC needs a package: pip install "lens-agent[dlrover]"; or use http', permanent=True)


def _words(error: Exception) -> str:
    if isinstance(error, socket.timeout | TimeoutError):
        return "the master did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
