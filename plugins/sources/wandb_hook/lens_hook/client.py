"""One HTTP connection to the receiver, patient enough for the worker to do other things while it waits."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from . import say
from .settings import Settings
from .wire import PRODUCER

if TYPE_CHECKING:
    from .proxies import Proxy

REQUEST_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_MAX_ANSWER_BYTES = 1 << 20


class Answer(NamedTuple):
    """The outcome of one request: a status (0 for none), the answer's JSON, and how long to wait if it says so."""

    status: int
    body: Any
    retry_after_seconds: float | None
    error: str


class Deadline(TimeoutError):
    """The request took longer than it may."""


class _PatientStream(io.RawIOBase):
    """Reads and writes a socket in short waits and calls `between` after each that brought nothing."""

    def __init__(self, sock: socket.socket, deadline: Callable[[], float], between: Callable[[], None]) -> None:
        self._socket = sock
        self._deadline = deadline
        self._between = between

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                return self._socket.recv_into(buffer)
            except (TimeoutError, socket.timeout):  # noqa: UP041 - two classes before Python 3.10
                self._wait_again()

    def send_all(self, data: bytes) -> None:
        """Send everything; raises OSError, Deadline among them."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except (TimeoutError, socket.timeout):  # noqa: UP041
                self._wait_again()

    def _wait_again(self) -> None:
        if time.monotonic() > self._deadline():
            raise Deadline("no answer in time")
        self._between()


class _PatientSocket:
    """The little of a socket that `http.client` uses, on top of `_PatientStream`.

    What it sends leaves in one piece when it asks for the answer: each further call into the system would have to win
    the interpreter's lock back from the training loop.
    """

    def __init__(self, sock: socket.socket, new_stream: Callable[[], _PatientStream]) -> None:
        self._socket = sock
        self._new_stream = new_stream
        self._unsent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self._unsent.append(data)

    def makefile(self, mode: str, *_: Any) -> io.BufferedReader:
        stream = self._new_stream()
        request, self._unsent = b"".join(self._unsent), []
        stream.send_all(request)
        return io.BufferedReader(stream)  # `http.client` closes it with each response

    def close(self) -> None:
        self._socket.close()


class Client:
    """Posts JSON to one base URL over a kept-alive connection; `post` never raises."""

    def __init__(self, settings: Settings, between: Callable[[], None]) -> None:
        self._token = settings.token
        self._between = between
        self._slice_seconds = min(max(settings.flush_interval_seconds, 0.05), 1.0)
        self._deadline = 0.0
        self._connection: http.client.HTTPConnection | None = None
        self.shown_url = say.public_url(settings.base_url)
        self._tls, self._host, self._port, self._path = _target(settings.base_url)
        self._proxy: Proxy | None = None
        self._problem = "" if self._host and self._port else "the base URL has no valid host and port"
        if not self._token.isprintable():
            self._problem = "PRIMUS_LENS_API_TOKEN holds a line break or a character that no token has"
        if settings.proxy and not self._problem:
            self._go_through(settings)

    def _go_through(self, settings: Settings) -> None:
        """Take the way that was asked for; one that cannot be gone is said, and no other is gone instead."""
        from . import proxies  # most never need it

        try:
            self._proxy = proxies.proxy_for(settings.proxy, settings.base_url, os.environ)
        except ValueError as error:
            self._problem = f"{proxies.VARIABLE}: {error}"
            say.once("proxy", self._problem)
            return
        if self._proxy is not None and not self._tls:
            self._path = f"http://{urlsplit(settings.base_url).netloc.rpartition('@')[2]}{self._path}"

    def post(self, route: str, body: bytes, seconds: float) -> Answer:
        """POST `body` (JSON) to the base URL's `route`, within about `seconds`."""
        self._deadline = time.monotonic() + seconds
        if self._problem:
            return Answer(0, None, None, self._problem)
        fresh = self._connection is None
        try:
            return self._exchange(route, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            # A kept-alive connection that the receiver closed meanwhile says nothing about its health.
            if fresh or isinstance(error, Deadline):
                return Answer(0, None, None, _describe(error))
        try:
            return self._exchange(route, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            return Answer(0, None, None, _describe(error))

    def _exchange(self, route: str, body: bytes) -> Answer:
        connection = self._connection or self._connect()
        headers = {"Content-Type": "application/json", "User-Agent": PRODUCER}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if self._proxy is not None and self._proxy.login and not self._tls:
            headers["Proxy-Authorization"] = self._proxy.login
        connection.request("POST", self._path + route, body, headers)
        response = connection.getresponse()
        text = response.read(_MAX_ANSWER_BYTES)
        if response.status == 407:
            say.once("proxy", "the proxy asks for a login: PRIMUS_LENS_PROXY=http://USER:PASSWORD@HOST:PORT")
        if response.will_close or not response.isclosed():
            self.close()
        return Answer(response.status, _json(text), _seconds(response.getheader("Retry-After")), response.reason)

    def _connect(self) -> http.client.HTTPConnection:
        left = self._deadline - time.monotonic()
        first = (self._host, self._port) if self._proxy is None else self._proxy[:2]
        sock = socket.create_connection(first, timeout=max(0.05, min(_CONNECT_SECONDS, left)))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                if self._proxy is not None:
                    self._tunnel(sock, self._proxy)
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=self._host)
            sock.settimeout(self._slice_seconds)
        except BaseException:
            sock.close()
            raise
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.sock = _PatientSocket(sock, lambda: _PatientStream(sock, lambda: self._deadline, self._between))
        self._connection = connection
        return connection

    def _tunnel(self, sock: socket.socket, proxy: Proxy) -> None:
        from . import proxies

        proxies.tunnel(sock, self._host, self._port, proxy.login)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):  # it is gone either way
                connection.close()

    def abandon_in_child(self) -> None:
        """After a fork: let go of the parent's connection.

        A thread of the parent may have been reading an answer. It has the lock of the answer's reader, for ever as seen
        from here, so that nothing but the socket is closed.
        """
        connection, self._connection = self._connection, None
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.close()


def _target(base_url: str) -> tuple[bool, str, int, str]:
    """TLS, host, port and path of a base URL; no host where there is none to be had."""
    try:
        parts = urlsplit(base_url)
        tls = parts.scheme == "https"
        return tls, parts.hostname or "", parts.port or (443 if tls else 80), parts.path.rstrip("/")
    except ValueError:
        return False, "", 0, ""


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"[:200]


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # also UnicodeDecodeError: the caller judges by None
        return None


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; the date form is rare enough to be read as one minute."""
    if not header:
        return None
    try:
        return min(max(float(header), 0.0), 3600.0)
    except ValueError:
        return 60.0
