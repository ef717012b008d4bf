"""OTLP over gRPC: the three services, without generated code, on a port of their own."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lens_core import LensError, Overloaded, RequestError, Secret

from ..grpc_listener import GrpcListener, GrpcTls, Method
from .answers import encode_status, retry_seconds, status_code

Export = Callable[[str, bytes], Awaitable[bytes]]
_SERVICE = "opentelemetry.proto.collector.{}.v1.{}Service"
SERVICES: Mapping[str, str] = {
    "metrics": _SERVICE.format("metrics", "Metrics"),
    "logs": _SERVICE.format("logs", "Logs"),
    "traces": _SERVICE.format("trace", "Trace"),
}
# Bodies of so many times the limit are worked on at once; those beyond are to come again.
_BODIES_IN_FLIGHT = 4
_DETAILS = "grpc-status-details-bin"


class OtlpGrpcServer:
    """Answers Export of the three services; `export` gets the signal and the message."""

    def __init__(
        self,
        address: str,
        export: Export,
        token: Secret | None,
        max_body_bytes: int,
        logger: logging.Logger,
        tls: GrpcTls | None = None,
    ) -> None:
        self._export = export
        self._logger = logger
        self._token = token
        self._max_in_flight = _BODIES_IN_FLIGHT * max_body_bytes
        self._in_flight = 0
        services = {service: {"Export": self._method(signal)} for signal, service in SERVICES.items()}
        self._listener = GrpcListener(
            address, services, max_message_bytes=max_body_bytes, extra="otlp-grpc", setting="grpc_listen", tls=tls
        )

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._listener.port

    async def start(self) -> None:
        """Listen. Raises LensError."""
        await self._listener.start()

    async def stop(self) -> None:
        """Finish what is being answered."""
        await self._listener.stop()

    def _method(self, signal: str) -> Method:
        async def answer(body: bytes, context: Any) -> bytes:
            self._in_flight += len(body)
            try:
                self._check_token(context)
                if self._in_flight > self._max_in_flight and self._in_flight > len(body):
                    raise Overloaded("too many bytes are being taken in at once")
                return await self._export(signal, body)
            except LensError as error:
                await _abort(context, error)
                raise
            except Exception as error:
                self._logger.exception("Request failed. signal=%s", signal)
                await _abort(context, RequestError("internal error; details are in the daemon's log"))
                raise error
            finally:
                self._in_flight -= len(body)

        return answer

    def _check_token(self, context: Any) -> None:
        if self._token is None:
            return
        given = str(dict(context.invocation_metadata() or ()).get("authorization", ""))
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.encode(), self._token.reveal().encode()):
            raise _Unauthenticated("a bearer token is needed: metadata `authorization`")


class _Unauthenticated(RequestError):
    status = 401
    code = "Unauthorized"


async def _abort(context: Any, error: LensError) -> None:
    """End a call with the status of an error, and with RetryInfo where the sender may come again."""
    from grpc import StatusCode

    refused = error if isinstance(error, RequestError) else RequestError(str(error))
    code = status_code(refused)
    details = encode_status(code, refused.message, retry_seconds(refused))
    await context.abort(
        next(one for one in StatusCode if one.value[0] == code), refused.message, ((_DETAILS, details),)
    )
