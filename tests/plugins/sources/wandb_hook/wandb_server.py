"""The little of W&B's server that a run needs which is online: to begin, to be resumed, to send its history."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.stub_server import Answer, StubServer

PROJECT = {"id": "cHJvamVjdA==", "name": "p", "entity": {"id": "ZW50aXR5", "name": "e"}}


class WandbServer:
    """A server on the loopback interface with one project; `last_step` is where its run was left, -1 for a new one."""

    def __init__(self, last_step: int = -1) -> None:
        self.last_step = last_step
        self._server = StubServer(self._answer)

    def _answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        answer = self.answer(json.loads(body)) if path == "/graphql" else {}
        return 200, json.dumps(answer).encode(), {"Content-Type": "application/json"}

    @property
    def variables(self) -> dict[str, str]:
        """The variables that make a wandb process use this server."""
        return {
            "WANDB_MODE": "online",
            "WANDB_BASE_URL": self._server.url,
            "WANDB_API_KEY": f"local-{'0' * 40}",
            "WANDB_ENTITY": "e",
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a GraphQL request, told by what it asks for."""
        query, variables = request["query"], request.get("variables") or {}
        data: dict[str, Any] = {}
        if "upsertBucket" in query:
            data["upsertBucket"] = {"bucket": self._run(variables.get("name") or "r"), "inserted": self.last_step < 0}
        elif "createRunFiles" in query:
            data["createRunFiles"] = {"runID": "cnVu", "uploadHeaders": [], "files": []}
        elif "bucket(" in query:
            data["model"] = {**PROJECT, "bucket": self._run(variables["name"]) if self.last_step >= 0 else None}
        elif "viewer" in query:
            viewer = {"id": "dXNlcg==", "entity": "e", "username": "u", "email": "u@example.org", "flags": "{}"}
            data["viewer"] = {**viewer, "teams": {"edges": []}}
        elif "__schema" in query or "__type" in query:
            data = {"__type": {"fields": [], "inputFields": []}}
        data["serverInfo"] = {"features": [], "cliVersionInfo": {}, "latestLocalVersionInfo": None}
        return {"data": data}

    def _run(self, name: str) -> dict[str, Any]:
        tail = json.dumps([json.dumps({"_step": self.last_step, "_runtime": 5})] if self.last_step >= 0 else [])
        return {
            "id": "cnVu",
            "name": name,
            "displayName": name,
            "description": None,
            "notes": None,
            "config": "{}",
            "sweepName": None,
            "project": PROJECT,
            "tags": [],
            "summaryMetrics": json.dumps({"_step": self.last_step} if self.last_step >= 0 else {}),
            "historyLineCount": self.last_step + 1,
            "logLineCount": 0,
            "eventsLineCount": 0,
            "historyTail": tail,
            "eventsTail": "[]",
            "wandbConfig": json.dumps({"t": 1}),
        }

    def close(self) -> None:
        """Stop listening."""
        self._server.close()


@contextlib.contextmanager
def serving(last_step: int = -1) -> Iterator[WandbServer]:
    """A server for the length of a with statement."""
    server = WandbServer(last_step)
    try:
        yield server
    finally:
        server.close()
