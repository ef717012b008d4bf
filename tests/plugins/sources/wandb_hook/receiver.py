"""A real HTTP receiver that keeps what it gets and can be told to be ill."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.stub_server import Answer, StubServer

Behaviour = Callable[["Request"], "Answer | None"]


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
        self._server = StubServer(self._answer, port)

    def _answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        request = Request(path, headers, body)
        answer = self.behaviour(request)
        with self._news:
            self.requests.append(request)
            self._news.notify_all()
        return answer

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    @property
    def url(self) -> str:
        """The base URL to give to the hook."""
        return f"{self._server.url}/api/v1"

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

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Speak TLS with every connection from now on."""
        self._server.use_tls(context)

    def hold_bodies(self, wait: Callable[[], object]) -> None:
        """Call `wait` before the body of each answer, when its headers are out."""
        self._server.before_body = wait

    def close(self) -> None:
        """Stop listening."""
        self._server.close()


@contextlib.contextmanager
def receiving(behaviour: Behaviour = accept, port: int = 0) -> Iterator[Receiver]:
    """A receiver for the length of a with statement."""
    receiver = Receiver(behaviour, port)
    try:
        yield receiver
    finally:
        receiver.close()
