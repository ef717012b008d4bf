"""An API server on loopback that real kubectl and helm talk to: discovery, objects, and exec into running containers.

It is as much of Kubernetes as the commands of the pages need. Schemas are Kubernetes' own and strict; access control,
watches, other groups and everything that reconciles are not there.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from tests.deploy.cluster.containers import Container
from tests.deploy.cluster.discovery import discovery_routes
from tests.deploy.cluster.objects import RESOURCES, Object, Objects, Refused, Resource
from tests.deploy.cluster.typed_bodies import MAGIC, object_of
from tests.end_to_end.running_lens import wait_for

_CHANNEL = "v5.channel.k8s.io"
_STDOUT, _STDERR, _ERROR = 1, 2, 3


class ApiServer:
    """`objects`, and `containers` by namespace and pod, which somebody else starts."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.containers: dict[tuple[str, str], Container] = {}
        one = "/{name}"
        routes = discovery_routes()
        for resource in RESOURCES:
            for prefix in (f"{resource.path}/namespaces/{{namespace}}", resource.path):
                path = f"{prefix}/{resource.plural}"
                routes.append(Route(path, self._endpoint(resource), methods=["GET", "POST"]))
                routes.append(Route(path + one, self._endpoint(resource), methods=["GET", "PUT", "PATCH"]))
        run = WebSocketRoute("/api/v1/namespaces/{namespace}/pods/{name}/exec", self._exec)
        self.app = Starlette(routes=[run, *routes])

    def _endpoint(self, resource: Resource) -> Any:
        async def endpoint(request: Request) -> Response:
            try:
                return JSONResponse(await asyncio.to_thread(self._answer, resource, request, await request.body()))
            except Refused as error:
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(error)}
                return JSONResponse({**status, "reason": error.reason, "code": error.code}, error.code)

        return endpoint

    def _answer(self, resource: Resource, request: Request, body: bytes) -> Object:
        namespace, name = request.path_params.get("namespace", ""), request.path_params.get("name", "")
        if request.method == "GET":
            return self.objects.get(resource, namespace, name) if name else self._list(resource, namespace, request)
        thing: Object = object_of(body) if body.startswith(MAGIC) else yaml.safe_load(body)
        if request.method == "POST" or (request.method == "PATCH" and not self._has(resource, namespace, name)):
            return self.objects.create(resource, namespace, thing)
        return self.objects.replace(resource, namespace, thing)

    def _has(self, resource: Resource, namespace: str, name: str) -> bool:
        return any(thing["metadata"]["name"] == name for thing in self.objects.list(resource, namespace))

    def _list(self, resource: Resource, namespace: str, request: Request) -> Object:
        selector = request.query_params.get("labelSelector", "")
        labels = dict(part.split("=", 1) for part in selector.split(",") if part)
        items = self.objects.list(resource, namespace, labels)
        return {"apiVersion": resource.version, "kind": f"{resource.kind}List", "metadata": {}, "items": items}

    async def _exec(self, socket: WebSocket) -> None:
        """Run a command in a pod's container; its output and its end go back on channels."""
        await socket.accept(_CHANNEL)
        container = self.containers[socket.path_params["namespace"], socket.path_params["name"]]
        done = await asyncio.to_thread(container.run, socket.query_params.getlist("command"))
        for channel, text in ((_STDOUT, done.stdout), (_STDERR, done.stderr)):
            await socket.send_bytes(bytes([channel]) + text)
        await socket.send_bytes(bytes([_ERROR]) + json.dumps(_ended(done.returncode)).encode())
        await socket.close()


def _ended(code: int) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    details = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
    return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": details}


@contextmanager
def served(server: ApiServer, folder: Path) -> Iterator[Path]:
    """Serve it; the kubeconfig with which clients find it."""
    http = uvicorn.Server(uvicorn.Config(server.app, port=0, log_level="error", lifespan="off", ws="websockets-sansio"))
    thread = threading.Thread(target=http.run)
    thread.start()
    try:
        wait_for(lambda: http.started, what="the API server")
        port = http.servers[0].sockets[0].getsockname()[1]
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "users": [{"name": "me", "user": {}}],
            "current-context": "here",
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))
        yield folder / "kubeconfig"
    finally:
        http.should_exit = True
        thread.join()
