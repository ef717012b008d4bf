"""An intake on loopback that is as strict as Datadog's: limits, strict JSON, names, times; it can be told to refuse."""

from __future__ import annotations

import gzip
import json
import math
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

import zstandard

KEY = "0123456789abcdef0123456789abcdef"
MAX_BYTES, MAX_BODY_BYTES = 512_000, 5_242_880
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,199}")
_TAG = re.compile(r"[^\W\d_][\w\-:./]{0,199}")


class Scripted(NamedTuple):
    """An answer instead of the usual one."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b'{"errors": ["scripted"]}'


class Intake:
    """`series` is all that was taken, `bodies` each payload's; `script` answers the next requests."""

    def __init__(self) -> None:
        self.url = ""
        self.series: list[dict[str, Any]] = []
        self.bodies: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.headers: list[dict[str, str]] = []
        self.script: list[Scripted] = []
        self.status: int | None = None
        self.max_bytes = MAX_BYTES
        self.requests = 0

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Scripted:
        """One request."""
        self.requests += 1
        if self.script:
            return self.script.pop(0)
        if self.status is not None:
            return Scripted(self.status)
        if headers.get("dd-api-key") != KEY:
            return Scripted(403, body=b'{"errors": ["Forbidden"]}')
        if method == "GET":
            return Scripted(200 if path == "/api/v1/validate" else 404, body=b'{"valid": true}')
        if path != "/api/v2/series":
            return Scripted(404)
        plain = decompress(body, headers.get("content-encoding", ""))
        if len(body) > self.max_bytes or len(plain) > MAX_BODY_BYTES:
            return Scripted(413, body=b'{"errors": ["Payload too large"]}')
        try:
            content = json.loads(plain, parse_constant=_refuse)
            for series in content["series"]:
                _check(series)
        except (ValueError, KeyError, TypeError) as error:
            return Scripted(400, body=json.dumps({"errors": [f"Bad request: {error}"]}).encode())
        self.bodies.append(content)
        self.series += content["series"]
        self.sizes.append(len(body))
        self.headers.append(headers)
        return Scripted(202, body=b'{"errors": []}')


def decompress(body: bytes, encoding: str) -> bytes:
    """A body as it was before it was compressed."""
    if encoding == "gzip":
        return gzip.decompress(body)
    return zstandard.ZstdDecompressor().decompressobj().decompress(body) if encoding == "zstd1" else body


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _check(series: dict[str, Any]) -> None:
    if not _NAME.fullmatch(series["metric"]):
        raise ValueError(f"bad name {series['metric']!r}")
    for tag in series.get("tags", []):
        if not _TAG.fullmatch(tag) or tag != tag.lower():
            raise ValueError(f"bad tag {tag!r}")
    if not series["points"]:
        raise ValueError("no points")
    for point in series["points"]:
        if not math.isfinite(point["value"]):
            raise ValueError("bad value")
        if not time.time() - 3600 <= point["timestamp"] <= time.time() + 600:
            raise ValueError("bad timestamp")


@contextmanager
def running(intake: Intake) -> Iterator[Intake]:
    """The intake on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self._answer("POST")

        def do_GET(self) -> None:
            self._answer("GET")

        def _answer(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = intake.handle(method, self.path, headers, body)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    intake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield intake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
