"""A W&B server on loopback: what the public API's clients ask for, over a project that a test fills, with faults."""

from __future__ import annotations

import base64
import csv
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEY = "0123456789abcdef0123456789abcdef01234567"
TABLE = Path(__file__).parents[3] / "data" / "wandb_runs.csv"
Run = dict[str, Any]


class WandbServer:
    """`runs` are nodes of the listing. `fault` is asked before each request: a status to answer, or None."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = list(runs)
        self.histories: dict[str, list[dict[str, Any]]] = {}
        self.requests: list[str] = []
        self.pages: list[int] = []
        self.fault: Callable[[int], int | None] = lambda number: None
        self.delay_seconds = 0.0
        self.url = ""
        self._lock = threading.Lock()

    def answer(self, body: Mapping[str, Any]) -> tuple[str, Any]:
        """The kind of a query, and its data."""
        query, variables = str(body.get("query")), body.get("variables") or {}
        if "history(" in query:
            return "history", {"project": {"run": {"history": self._history(variables)}}}
        if "runs(" in query:
            return "runs", {"project": self._runs(variables)}
        if "__type" in query:
            fields = [{"name": "internalId"}, {"name": "projectId"}]
            return "type", {"ProjectType": {"fields": fields}, "RunType": {"fields": fields}}
        if "viewer" in query:
            viewer = {"id": "VXNlcjox", "entity": "acme", "username": "me", "email": "me@acme", "flags": "{}"}
            return "viewer", {"viewer": {**viewer, "admin": False, "teams": {"edges": []}, "apiKeys": {"edges": []}}}
        return "other", {}

    def _runs(self, variables: Mapping[str, Any]) -> Any:
        if (variables["entity"], variables["project"]) != ("acme", "llm"):
            return None
        wanted = json.loads(variables["filters"] or "{}")
        found = [run for run in self.runs if matches(run, wanted)]
        found.sort(key=lambda run: str(run["createdAt"]), reverse=str(variables["order"]).startswith("-"))
        first = int(variables.get("cursor") or 0)
        page = found[first : first + variables["perPage"]]
        self.pages.append(len(page))
        edges = [{"node": run, "cursor": str(first + number + 1)} for number, run in enumerate(page)]
        more = first + len(page) < len(found)
        return {
            "internalId": "1",
            "runCount": len(found),
            "readOnly": True,
            "runs": {"edges": edges, "pageInfo": {"endCursor": str(first + len(page)), "hasNextPage": more}},
        }

    def _history(self, variables: Mapping[str, Any]) -> list[str]:
        rows = [row for row in self.histories.get(variables["run"], []) if row["_step"] >= variables["minStep"]]
        return [json.dumps(row) for row in rows[: variables["pageSize"]]]

    def handle(self, path: str, authorization: str, body: bytes) -> tuple[int, bytes]:
        """One request: its status and body."""
        if not path.startswith("/graphql"):
            return 200, b"{}"
        time.sleep(self.delay_seconds)
        with self._lock:
            number = len(self.requests)
            status = self.fault(number)
            if authorization != "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode():
                status = 401
            kind, data = self.answer(json.loads(body))
            self.requests.append(kind)
        if status is not None:
            return status, json.dumps({"errors": [{"message": f"status {status}"}]}).encode()
        return 200, json.dumps({"data": data}).encode()


def matches(run: Run, wanted: Mapping[str, Any]) -> bool:
    """The part of W&B's filters that is used here."""
    for key, condition in wanted.items():
        if key == "$or":
            if not any(matches(run, option) for option in condition):
                return False
        elif isinstance(condition, dict):
            if not (run[key] and str(run[key]) >= condition["$gte"]):
                return False
        elif run[key] != condition:
            return False
    return True


def iso(seconds: float) -> str:
    """A time as the server writes it."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(run_id: str, name: str | None, state: str, created: float, heartbeat: float | None, **more: Any) -> Run:
    """A run of the listing."""
    return {
        "id": base64.b64encode(f"Run:v1:{run_id}:llm:acme".encode()).decode(),
        "projectId": "1",
        "name": run_id,
        "displayName": name,
        "state": state,
        "createdAt": iso(created),
        "heartbeatAt": None if heartbeat is None else iso(heartbeat),
        "sweepName": None,
        "group": None,
        "jobType": None,
        "tags": [],
        "commit": None,
        "readOnly": True,
        "description": None,
        "notes": None,
        "historyLineCount": 0,
        "historyKeys": None,
        "user": {"name": "me", "username": "me"},
        "config": "{}",
        "systemMetrics": "{}",
        "summaryMetrics": "{}",
        **more,
    }


def table(now: float) -> list[Run]:
    """The sixty runs of the table, with times before `now`."""
    with TABLE.open(newline="") as file:
        return [_row(row, now) for row in csv.DictReader(file)]


def _row(row: Mapping[str, str], now: float) -> Run:
    ago = row["heartbeat_hours_ago"]
    config: dict[str, Any] = {"lr": {"value": 0.1}}
    if row["gpus"]:
        config["_wandb"] = {"value": {"e": {"writer": {"host": "n1", "gpu_count": int(row["gpus"])}}}}
    return node(
        row["id"],
        row["name"] or None,
        row["state"],
        now - 3600 * float(row["created_hours_ago"]),
        now - 3600 * float(ago) if ago else None,
        sweepName=row["sweep"] or None,
        config=json.dumps(config),
        summaryMetrics=_summary(row["summary_form"], row["summary"]),
    )


def _summary(form: str, text: str) -> Any:
    forms: dict[str, Any] = {"text": text, "twice": json.dumps(text), "broken": text[:-1] + ",", "null": None}
    return json.loads(text) if form == "object" else forms[form]


@contextmanager
def serving(server: WandbServer) -> Iterator[WandbServer]:
    """The server on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = server.handle(self.path, self.headers.get("Authorization") or "", body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    listener.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    server.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
