"""A port that answers gRPC without generated code: services, their methods, bytes in and bytes out."""

from __future__ import annotations

import importlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from lens_core import LensError

logger = logging.getLogger("lens.grpc")
# The body of a call and its context → the body of the answer.
Method: TypeAlias = Callable[[bytes, Any], Awaitable[bytes]]


class GrpcTls(NamedTuple):
    """The PEM files of a listener: its certificate with its chain, its key, and the authority of its clients."""

    certificate: str
    key: str
    client_ca: str = ""

    def check_files(self) -> None:
        """Raises LensError that says which files cannot be used."""
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(file for file in self if file)
            raise LensError(f"the certificates for gRPC cannot be used ({files}): {error}") from None

    def changed_at(self) -> tuple[int, ...]:
        """The times of the files. Raises OSError."""
        return tuple(os.stat(file).st_mtime_ns for file in self if file)


class GrpcListener:
    """Listens on an address, with TLS where files for it are given.

    `extra` is the extra that brings grpcio, `setting` what asks for the port.
    """

    def __init__(
        self,
        address: str,
        services: Mapping[str, Mapping[str, Method]],
        *,
        max_message_bytes: int,
        extra: str,
        setting: str,
        tls: GrpcTls | None = None,
        **limits: int,
    ) -> None:
        self.port = 0
        self._address = address
        self._services = services
        self._max_message_bytes = max_message_bytes
        self._hint = f'pip install "lens-agent[{extra}]"; or leave {setting} out'
        self._limits = limits
        self._tls = tls
        self._server: Any = None

    async def start(self) -> None:
        """Listen. Raises LensError when grpcio is missing, or the address or the certificates cannot be had."""
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
            if self._tls is None:
                self.port = server.add_insecure_port(self._address)
            else:
                self.port = server.add_secure_port(self._address, server_credentials(grpc, self._tls))
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


def server_credentials(grpc: Any, tls: GrpcTls) -> Any:
    """Credentials that take up renewed files with the next connection; unusable ones leave those in use.

    Raises LensError for files that cannot be used.
    """
    tls.check_files()
    known = [tls.changed_at()]

    def configuration() -> Any:
        return grpc.ssl_server_certificate_configuration(
            [(Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes())],
            root_certificates=Path(tls.client_ca).read_bytes() if tls.client_ca else None,
        )

    def renewed() -> Any:
        try:
            changed_at = tls.changed_at()
            if changed_at == known[0]:
                return None
            tls.check_files()
            known[0] = changed_at
            return configuration()
        except (OSError, LensError) as error:
            logger.warning("Could not load the new certificate for gRPC; keeping the current one. error=%s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(
        configuration(), renewed, require_client_authentication=bool(tls.client_ca)
    )
