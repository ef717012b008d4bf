"""An HTTP server on loopback that answers each request by a function, for tests and benchmarks."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable
from typing import Any

Answer = tuple[int, bytes, dict[str, str]]


class StubServer:
    """Serves from its creation until `close`, each connection in its own thread.

    `answer` gets the path, the headers and the body of a request, and returns status, body and headers, or None to
    close the connection without an answer. `before_body` is called when the headers of an answer are out.
    """

    def __init__(self, answer: Callable[[str, dict[str, str], bytes], Answer | None], port: int = 0) -> None:
        self.before_body: Callable[[], object] = lambda: None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                found = answer(self.path, dict(self.headers.items()), body)
                if found is None:
                    self.close_connection = True
                    return
                status, content, headers = found
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                outer.before_body()
                self.wfile.write(content)

            do_PUT = do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                return

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_: Any) -> None:  # a client that was killed is part of the tests
                return

        self._server = Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Speak TLS with every connection from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
