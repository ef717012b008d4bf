"""ClickHouse's own engine (chdb) behind HTTP, as far as clickhouse-connect speaks it; a program of its own.

`python engine.py FOLDER` prints its port. It is one process, because chdb has one database for each. `POST /faults`
takes the faults of the next inserts as JSON: "before" refuses one, "Code: …" refuses it with that text, "after" carries
it out and says that it failed, "lost" carries it out and breaks the connection, "" lets it pass. One user is known:
`lens` with the password in LENS_TEST_PASSWORD.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

_INSERT = re.compile(rb"^\s*insert\s+into\s", re.IGNORECASE)
_DATABASES = re.compile(rb"^\s*(rename|drop)\s+database\s", re.IGNORECASE)
_FORMAT = re.compile(rb"\bformat\s+(\w+)\s*$", re.IGNORECASE)


Data: TypeAlias = bytes | memoryview


class Engine:
    """One session of chdb; one statement at a time."""

    def __init__(self, folder: Path) -> None:
        # By its name: it is in the environment of this program, not in that of the tests.
        self._session = importlib.import_module("chdb.session").Session(str(folder / "engine"))
        self._lock = threading.Lock()
        self._database = ""
        self._query("set max_threads = 1", "TSV")
        self._query("set max_query_size = 16777216", "TSV")  # which the client asks for with each statement
        self.faults: list[str] = []

    def run(self, database: str, statement: bytes, data: Data, settings: dict[str, str], default: str) -> bytes:
        """The answer to a statement, or its data inserted."""
        with self._lock:
            if database and database != self._database:
                self._query(f"use {database}", "TSV")
                self._database = database
            if data:
                return self._insert(statement, data, settings)
            if _DATABASES.match(statement):
                self._database = ""  # it may be gone
            found = _FORMAT.search(statement)
            text = statement[: found.start()] if found else statement
            shape = found[1].decode() if found else default
            return self._query(text.decode(), shape)

    def _insert(self, statement: bytes, data: Data, settings: dict[str, str]) -> bytes:
        found = _FORMAT.search(statement)
        assert found is not None, statement
        token = settings.get("insert_deduplication_token", "").replace("'", "''")
        given = {"insert_deduplication_token": f"'{token}'"} if token else {}
        if "optimize_on_insert" in settings:
            given["optimize_on_insert"] = str(int(settings["optimize_on_insert"]))
        said = f" settings {', '.join(f'{name} = {value}' for name, value in given.items())}" if given else ""
        head = statement[: found.start()].decode()
        # chdb takes data out of files only; this one is in memory.
        with os.fdopen(os.memfd_create("insert"), "wb") as file:
            file.write(data)
            file.flush()
            name = f"/proc/self/fd/{file.fileno()}"
            return self._query(f"{head} from infile '{name}'{said} format {found[1].decode()}", "TSV")

    def _query(self, text: str, shape: str) -> bytes:
        answer: bytes = self._session.query(text, shape).bytes()
        return answer


class Handler(BaseHTTPRequestHandler):
    """One request of clickhouse-connect."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes in one piece, or the client waits for the second
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        """Answer /ping."""
        self._answer(200, b"Ok.\n")

    def do_POST(self) -> None:
        """Answer a statement."""
        body = self._body()
        url = urlsplit(self.path)
        if url.path == "/faults":
            self.server.engine.faults = json.loads(body)
            return self._answer(200, b"")
        if not self._is_allowed():
            return self._answer(401, b"Code: 516. DB::Exception: lens: Authentication failed. (AUTHENTICATION_FAILED)")
        options = {name: values[-1] for name, values in parse_qs(url.query).items()}
        statement = options.get("query", "").encode()
        data: Data = b""
        if not statement:
            end = body.find(b"\n")
            is_insert = end >= 0 and _INSERT.match(body)
            statement, data = (body[:end], memoryview(body)[end + 1 :]) if is_insert else (body, b"")
        elif _INSERT.match(statement):
            data = body
        else:
            statement += b"\n" + body
        fault = self._fault() if data else ""
        if fault == "before":
            return self._answer(
                500, b"Code: 241. DB::Exception: Memory limit (total) exceeded. (MEMORY_LIMIT_EXCEEDED)"
            )
        if fault.startswith("Code: "):
            return self._answer(500, fault.encode())
        try:
            default = options.get("default_format", "TabSeparated")
            answer = self.server.engine.run(options.get("database", ""), statement.strip(), data, options, default)
        except Exception as error:  # noqa: BLE001 - whatever the engine says goes to the client, as a server does it
            return self._answer(500, str(error).encode())
        if fault == "after":
            return self._answer(500, b"Code: 159. DB::Exception: Timeout exceeded. (TIMEOUT_EXCEEDED)")
        if fault == "lost":
            self.close_connection = True
            self.connection.close()
            return None
        return self._answer(200, answer)

    def _fault(self) -> str:
        faults = self.server.engine.faults
        return faults.pop(0) if faults else ""

    def _is_allowed(self) -> bool:
        user, password = self.headers.get("X-ClickHouse-User", ""), self.headers.get("X-ClickHouse-Key", "")
        given = self.headers.get("Authorization", "")
        if given.startswith("Basic "):
            user, _, password = base64.b64decode(given[6:]).decode().partition(":")
        return (user, password) == ("lens", os.environ["LENS_TEST_PASSWORD"])

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        found = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(found)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/octet-stream")
        if status != 200:
            self.send_header("X-ClickHouse-Exception-Code", "241")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Serves one engine."""

    daemon_threads = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.engine = engine

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error; of all others print the traceback."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


if __name__ == "__main__":
    running = Server(Engine(Path(sys.argv[1])))
    print(running.server_address[1], flush=True)
    running.serve_forever()
