"""A real HTTP receiver that keeps what it gets and can be told to be ill."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

Behaviour = Callable[["Request"], "tuple[int, bytes, dict[str, str]] | None"]


class Request:
    """One request: its path, headers, and body."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path = path
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        """The body, which must be strict JSON."""
        return json.loads(self.body, parse_constant=_refuse)


def _refuse(token: str) -> float:
    raise ValueError(f"bare {token} in JSON")


def accept(request: Request) -> tuple[int, bytes, dict[str, str]]:
    """The answer of a healthy receiver."""
    count = len(request.json().get("records", []))
    return 200, json.dumps({"success": True, "accepted": count, "rejected": []}).encode(), {}


class Receiver:
    """A receiver on a free port of the loopback interface."""

    def __init__(self, behaviour: Behaviour = accept, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.behaviour = behaviour
        self._news = threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                request = Request(self.path, dict(self.headers.items()), body)
                answer = outer.behaviour(request)
                with outer._news:
                    outer.requests.append(request)
                    outer._news.notify_all()
                if answer is None:
                    self.close_connection = True
                    return
                status, content, headers = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

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
        """The base URL to give to the hook."""
        return f"http://127.0.0.1:{self.port}/api/v1"

    def records(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Records of all /records requests, each with the origin that counts for it."""
        found: list[dict[str, Any]] = []
        for request in list(self.requests):
            if request.path == "/api/v1/records":
                envelope = request.json()
                for record in envelope["records"]:
                    found.append({"origin": envelope["origin"], **record})
        return [record for record in found if kind is None or record["record"] == kind]

    def rows(self) -> list[dict[str, Any]]:
        """All rows."""
        return self.records("step_metrics")

    def points(self) -> list[tuple[int, str, Any]]:
        """All metrics as (row_step, name, value)."""
        return [(row["row_step"], name, value) for row in self.rows() for name, value in row["values"].items()]

    def wait_for(self, condition: Callable[[], object], seconds: float = 240.0) -> None:
        """Wait until `condition()`, looked at after every request."""
        deadline = time.monotonic() + seconds
        with self._news:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, "the receiver did not get what it should have"
                self._news.wait(min(left, 0.2))

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def receiving(behaviour: Behaviour = accept, port: int = 0) -> Iterator[Receiver]:
    """A receiver for the length of a with statement."""
    receiver = Receiver(behaviour, port)
    try:
        yield receiver
    finally:
        receiver.close()
