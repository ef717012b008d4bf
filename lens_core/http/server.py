"""The HTTP listener: uvicorn in the daemon's own event loop, on sockets that are bound before anything is promised."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from ..base.errors import LensError
from ..plugin_api.urls import parse_address

# uvloop takes one connection from a socket in each round of its loop, asyncio's own loop all that are there. While
# thousands of requests are answered in a round, those who have just come would wait for minutes: so uvloop looks at the
# same socket several times, which costs 0.1 ms for each new connection.
ACCEPTS_PER_ROUND = 64
BACKLOG = 65_535  # the kernel allows less (net.core.somaxconn); what it allows is wanted


def bind(address: str) -> socket.socket:
    """A bound socket. Raises LensError in words when the address cannot be had."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio's own loop sends answers at once (TCP_NODELAY) only on sockets that say that they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise LensError(
            f"cannot listen on {address}: {error.strerror or error}{_why(error, port)}; choose another with --listen,"
            " or with server.listen in the configuration"
        ) from None
    # Linux lets several sockets with SO_REUSEADDR have one port until one of them listens, which comes seconds later,
    # and uvloop does not tell that listening failed. Without the option the port is ours alone from here on.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return listener


def _why(error: OSError, port: int) -> str:
    """Explain why a port cannot be had: its owner, where the system tells, or the rights that a low one needs."""
    if error.errno == errno.EADDRINUSE:
        return _holder(port)
    if error.errno == errno.EACCES and port < 1024:
        return " (ports below 1024 are root's, and of processes with the capability CAP_NET_BIND_SERVICE)"
    return ""


def _holder(port: int) -> str:
    import psutil  # only here: it is not needed where all goes well

    try:
        listening = [one for one in psutil.net_connections("tcp") if one.status == "LISTEN"]
        pid = next(one.pid for one in listening if tuple(one.laddr)[1:] == (port,) and one.pid is not None)
        return f" (by process {pid}, {psutil.Process(pid).name()})"
    except (psutil.Error, OSError, StopIteration):  # another user's: nobody but root is told
        return ""


class TlsFiles(NamedTuple):
    """The PEM files of the listener's certificate (with its chain) and key."""

    certificate: Path
    key: Path

    def check_files(self) -> None:
        """Raises LensError that says which file cannot be used, before anything is started."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise LensError(
                f"server.tls_certificate {self.certificate} and server.tls_key {self.key} cannot be used: {reason}"
            ) from None


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """The address at which this machine reaches a bound socket."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the daemon has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves an application that may be exchanged while it runs; with `tls` over HTTPS alone."""

    def __init__(self, listener: socket.socket, app: ASGIApp, tls: TlsFiles | None = None) -> None:
        self.url = url_of(listener, "https" if tls else "http")
        self.app = app
        self._listener = listener
        self._tls = tls
        self._server = _Server(
            uvicorn.Config(
                self._serve,
                http="httptools",
                interface="asgi3",
                proxy_headers=False,
                loop="none",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                backlog=BACKLOG,
                ssl_certfile=tls.certificate if tls else None,
                ssl_keyfile=tls.key if tls else None,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._server.server_state.connections)

    async def start(self) -> None:
        """Begin to answer."""
        # Connections inherit the option; with it they do not keep the next daemon from the port once they are closed.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.listen(BACKLOG)
        is_uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        looks = ACCEPTS_PER_ROUND if is_uvloop else 1
        listeners = [self._listener, *(self._listener.dup() for _ in range(looks - 1))]
        self._task = asyncio.create_task(self._server.serve(sockets=listeners), name=f"http {self.url}")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise LensError(f"the listener on {self.url} ended before it began")
            await asyncio.sleep(0.005)

    def renew_certificate(self) -> None:
        """Read certificate and key again, for connections from now on. Raises LensError; the old ones stay then."""
        context = self._server.config.ssl
        if self._tls is not None and context is not None:
            self._tls.check_files()
            context.load_cert_chain(self._tls.certificate, self._tls.key)

    async def stop(self, deadline_seconds: float) -> None:
        """Take no new connection, finish what is being answered, within the deadline."""
        if self._task is None:
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait([self._task], timeout=deadline_seconds)
        if not done:
            self._server.force_exit = True
            await asyncio.wait([self._task], timeout=1.0)
            self._task.cancel()
