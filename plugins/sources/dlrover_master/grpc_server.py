"""The gRPC side: service `elastic.Master`, without generated code."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from lens_core import LensError

from ...dlrover.messages import JOB_UID
from ...dlrover.pickles import MAX_PICKLE_BYTES

Handler = Callable[[bytes, str], Awaitable[bytes]]


class GrpcServer:
    """Answers `report` and `get` on an address; no TLS and no tokens, as DLRover's agents expect it."""

    def __init__(self, address: str, report: Handler, get: Handler) -> None:
        self.address = address
        self.port = 0
        self._handlers = {"report": report, "get": get}
        self._server: Any = None

    async def start(self) -> None:
        """Listen. Raises LensError when grpcio is missing or the address cannot be had."""
        try:
            aio = importlib.import_module("grpc.aio")
            grpc = importlib.import_module("grpc")
        except ImportError:
            raise LensError(
                'gRPC needs a package: pip install "lens-agent[dlrover]"; or leave grpc_listen out'
            ) from None
        options = [("grpc.max_receive_message_length", MAX_PICKLE_BYTES), ("grpc.so_reuseport", 0)]
        server = aio.server(options=options, maximum_concurrent_rpcs=256)
        methods = {name: _method(grpc, handler) for name, handler in self._handlers.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("elastic.Master", methods),))
        try:
            self.port = server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise LensError(f"cannot listen on {self.address}: {error}") from None
        if not self.port:
            raise LensError(f"cannot listen on {self.address}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Finish what is being answered, within a second."""
        if self._server is not None:
            await self._server.stop(1.0)


def _method(grpc: Any, handler: Handler) -> Any:
    async def answer(body: bytes, context: Any) -> bytes:
        metadata = dict(context.invocation_metadata() or ())
        try:
            return await handler(body, str(metadata.get(JOB_UID, "")))
        except LensError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise

    return grpc.unary_unary_rpc_method_handler(answer, request_deserializer=None, response_serializer=None)
