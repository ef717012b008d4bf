"""A port that answers gRPC without generated code: services, their methods, bytes in and bytes out."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from lens_core import LensError

# The body of a call and its context → the body of the answer.
Method: TypeAlias = Callable[[bytes, Any], Awaitable[bytes]]


class GrpcListener:
    """Listens on an address, without TLS; `extra` is the extra that brings grpcio, `setting` what asks for the port."""

    def __init__(
        self,
        address: str,
        services: Mapping[str, Mapping[str, Method]],
        *,
        max_message_bytes: int,
        extra: str,
        setting: str,
        **limits: int,
    ) -> None:
        self.port = 0
        self._address = address
        self._services = services
        self._max_message_bytes = max_message_bytes
        self._hint = f'pip install "lens-agent[{extra}]"; or leave {setting} out'
        self._limits = limits
        self._server: Any = None

    async def start(self) -> None:
        """Listen. Raises LensError when grpcio is missing or the address cannot be had."""
        try:
            aio = importlib.import_module("grpc.aio")
            grpc = importlib.import_module("grpc")
        except ImportError:
            raise LensError(f"gRPC needs a package: {self._hint}") from None
        options = [("grpc.max_receive_message_length", self._max_message_bytes), ("grpc.so_reuseport", 0)]
        server = aio.server(options=options, **self._limits)
        for service, methods in self._services.items():
            handlers = {
                name: grpc.unary_unary_rpc_method_handler(method, request_deserializer=None, response_serializer=None)
                for name, method in methods.items()
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        try:
            self.port = server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise LensError(f"cannot listen on {self._address}: {error}") from None
        if not self.port:
            raise LensError(f"cannot listen on {self._address}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Finish what is being answered, within a second."""
        if self._server is not None:
            await self._server.stop(1.0)
            self._server = None
