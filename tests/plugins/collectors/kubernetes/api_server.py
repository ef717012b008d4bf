"""An API server with the shapes that a real one answers: pages, watches, owners, discovery, and its bad moods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lens_core.http.server import HttpServer, bind

DISCOVERY = {
    "/api/v1": [("pods", "Pod", True), ("pods/status", "Pod", True), ("nodes", "Node", False)],
    "/apis/apps/v1": [("replicasets", "ReplicaSet", True), ("deployments", "Deployment", True)],
    "/apis/kubeflow.org/v1": [("pytorchjobs", "PyTorchJob", True), ("pytorchjobs/status", "PyTorchJob", True)],
    "/apis/batch/v1": [("jobs", "Job", True)],
}


def owner(kind: str, name: str, uid: str, api_version: str, controller: bool = True) -> dict[str, Any]:
    """An owner reference."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": controller}


def pod(uid: str, name: str, *owners: dict[str, Any], phase: str = "Running", node: str = "n1") -> dict[str, Any]:
    """A pod as the API lists it (shortened)."""
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": uid,
            "labels": {"training.kubeflow.org/job-name": "llama"},
            "ownerReferences": list(owners),
            "creationTimestamp": "2026-11-27T20:00:00Z",
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "train:1"}]},
        "status": {"phase": phase, "podIP": "10.0.0.7"},
    }


class ApiServer:
    """`pods` by uid; change them with `put` and `delete`. Attributes switch moods."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.oldest_version = 0
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        self.forbidden: set[str] = set()
        self.list_delay_seconds = 0.0
        self.failures = 0
        self.token = ""
        self.url = ""
        self._history: list[tuple[int, dict[str, Any]]] = []
        self._changed = asyncio.Condition()
        self._drop = 0
        self._end = 0

    async def put(self, thing: dict[str, Any]) -> None:
        """Add or change a pod."""
        uid = thing["metadata"]["uid"]
        kind = "MODIFIED" if uid in self.pods else "ADDED"
        self.pods[uid] = thing
        await self._note(kind, thing)

    async def delete(self, uid: str) -> None:
        """Remove a pod."""
        await self._note("DELETED", self.pods.pop(uid))

    async def _note(self, kind: str, thing: dict[str, Any]) -> None:
        async with self._changed:
            self.version += 1
            thing["metadata"]["resourceVersion"] = str(self.version)
            self._history.append((self.version, {"type": kind, "object": thing}))
            self._changed.notify_all()

    async def drop_watches(self) -> None:
        """Cut every watch in the middle."""
        async with self._changed:
            self._drop += 1
            self._changed.notify_all()

    async def forget_history(self) -> None:
        """Compact the history: earlier versions are gone (410)."""
        self.oldest_version = self.version + 1
        self._history.clear()

    def asked(self, what: str) -> int:
        """Return the number of requests of a path; `watch` for watches."""
        if what == "watch":
            return sum("watch" in query for _, query in self.requests)
        return sum(path == what and "watch" not in query for path, query in self.requests)

    async def answer(self, request: Request) -> Response:
        """Any request."""
        path, query = request.url.path, dict(request.query_params)
        self.requests.append((path, query))
        self.headers.append(dict(request.headers))
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return self._status(401, "Unauthorized")
        if self.failures:
            self.failures -= 1
            return self._status(500, "etcd is away")
        if path in DISCOVERY:
            names = DISCOVERY[path]
            return JSONResponse({"resources": [{"name": n, "kind": k, "namespaced": s} for n, k, s in names]})
        if path.endswith("/pods"):
            return await self._pods(query)
        if path in self.forbidden:
            return self._status(403, f"{path} is forbidden")
        return JSONResponse(self.objects[path]) if path in self.objects else self._status(404, "not found")

    async def _pods(self, query: dict[str, str]) -> Response:
        if "watch" in query:
            if int(query["resourceVersion"]) < self.oldest_version:
                return self._status(410, "too old resource version")
            return StreamingResponse(self._watch(int(query["resourceVersion"])), media_type="application/json")
        await asyncio.sleep(self.list_delay_seconds)
        first, limit = int(query.get("continue", "0")), int(query["limit"])
        items = list(self.pods.values())
        metadata = {"resourceVersion": str(self.version)}
        if first + limit < len(items):
            metadata["continue"] = str(first + limit)
        return JSONResponse({"kind": "PodList", "metadata": metadata, "items": items[first : first + limit]})

    async def _watch(self, seen: int) -> AsyncIterator[bytes]:
        drop = self._drop
        bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": str(seen)}}}
        yield json.dumps(bookmark).encode() + b"\n"
        while True:
            async with self._changed:
                await self._changed.wait_for(partial(self._has_news, drop, seen))
                if self._drop > drop:
                    raise ConnectionResetError("cut on purpose")
                events = [event for version, event in self._history if version > seen]
                if seen < self.oldest_version - 1:
                    events = [{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}]
                seen = self.version
            for event in events:
                yield json.dumps(event).encode() + b"\n"

    def _has_news(self, drop: int, seen: int) -> bool:
        return self._drop > drop or self.version > seen

    def _status(self, code: int, message: str) -> Response:
        return JSONResponse({"kind": "Status", "code": code, "message": message}, code)


@asynccontextmanager
async def running_server() -> AsyncIterator[ApiServer]:
    """A server on a free port."""
    state = ApiServer()
    app = Starlette(routes=[Route("/{path:path}", state.answer)])
    server = HttpServer(bind("127.0.0.1:0"), app)
    await server.start()
    state.url = server.url
    try:
        yield state
    finally:
        await state.drop_watches()
        await server.stop(2)
